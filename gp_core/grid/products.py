"""Matrix products for compiled loops: one way to call BLAS, so that it is compiled once for each precision.

Every form of a numpy function that a compiled loop uses (shape, layout, precision) is compiled for itself, and many
of them bring code for error messages along. So the loops use few forms: `np.empty` of two dimensions, products of
row-major matrices into room that is there, and copies by loops of their own.
"""

from __future__ import annotations

import numpy as np

from gp_core.compiled import compiled


@compiled()
def multiply(A, B, out):  # type: ignore[no-untyped-def]
    """out = A B, all of them row-major and of the same precision."""
    np.dot(A, B, out)


@compiled()
def copy_columns(source, first, out):  # type: ignore[no-untyped-def]
    """Copy columns from the given one on, as many and as long as `out` has."""
    for i in range(out.shape[0]):
        # from 0 on: no index can be negative, and the loop is vectorised
        row = source[i, first:]
        for j in range(out.shape[1]):
            out[i, j] = row[j]
