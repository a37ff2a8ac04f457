"""Holes in the data: where a strip must see farther than usual."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import ndimage

from gp_core.grid.statistics import Mask

_SIDE: Final = 4
"""Blocks of the square without data from which on a gap is a hole."""


def find_holes(with_data: Mask) -> Mask:
    """(J, I) blocks in a square without data, between data on the left and on the right.

    Ground beyond the last data of a row is no hole: what is known there comes from one side, and soon little is.
    """
    empty = ndimage.binary_opening(~with_data, np.ones((_SIDE, _SIDE), dtype=np.bool_))
    seen = with_data.astype(np.int8)
    from_left = np.maximum.accumulate(seen, axis=1)
    from_right = np.maximum.accumulate(seen[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(empty & (from_left > 0) & (from_right > 0), dtype=bool)
