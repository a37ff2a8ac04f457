"""Is this function a kernel on this data? Symmetry and positive semi-definiteness, with what breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gp_core.arrays import Array
from gp_core.kernels.base import Kernel


@dataclass(frozen=True)
class Validity:
    """What `is_valid_kernel` found; true where the kernel is valid.

    valid: symmetric and positive semi-definite on the data, to rounding
    smallest_eigenvalue: of the symmetrised Gram matrix; NaN if it is not finite
    asymmetry: max |K_ij - K_ji|
    reason: what breaks, empty if nothing does
    """

    valid: bool
    smallest_eigenvalue: float
    asymmetry: float
    reason: str

    def __bool__(self) -> bool:
        return self.valid


def is_valid_kernel(k: Kernel | Callable[[Any, Any], Array], X: Any, tolerance: float = 1e-10) -> Validity:
    """Check the Gram matrix of k on X.

    k: a Kernel, or any function of (X, Z) that returns the matrix (N, N)
    X: points (N, D), or a sequence of objects
    tolerance: what counts as rounding, relative to the largest entry (times N for the eigenvalue)
    """
    K = k._matrix(k._check(X), None) if isinstance(k, Kernel) else np.asarray(k(X, X), dtype=np.float64)
    n = len(X)
    if K.shape != (n, n):
        raise ValueError(f"k must return a matrix ({n}, {n}) on {n} points, got shape {K.shape}")
    if not np.isfinite(K).all():
        return Validity(False, float("nan"), float("nan"), "the Gram matrix contains NaN or infinity")
    size = max(float(np.abs(K).max()), np.finfo(float).tiny)
    asymmetry = float(np.abs(K - K.T).max())
    smallest = float(np.linalg.eigvalsh((K + K.T) / 2.0)[0])
    if asymmetry > tolerance * size:
        i, j = np.unravel_index(int(np.abs(K - K.T).argmax()), K.shape)
        reason = f"not symmetric: k(x_{i}, x_{j}) = {K[i, j]:.6g} but k(x_{j}, x_{i}) = {K[j, i]:.6g}"
        return Validity(False, smallest, asymmetry, reason)
    if smallest < -tolerance * size * n:
        vector = np.linalg.eigh((K + K.T) / 2.0)[1][:, 0]
        worst = int(np.abs(vector).argmax())
        reason = (
            f"not positive semi-definite: smallest eigenvalue {smallest:.6g}, "
            f"its vector weighs point {worst} most"
        )
        return Validity(False, smallest, asymmetry, reason)
    return Validity(True, smallest, asymmetry, "")
