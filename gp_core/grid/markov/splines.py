"""Quadratic B-splines on the blocks of a lattice: the functions in which a rough map is written.

f(x) = sum_j c_j beta(x / h - j). Block i is touched by the coefficients i, i + 1 and i + 2, so a window of I blocks has
I + 2 of them. The slope is continuous, and products of two splines have degree 4: moments of that degree hold them
without loss.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from gp_core.arrays import Array

DEGREE: Final = 2
ORDER: Final = DEGREE + 1
"""Coefficients that touch a block, along each axis."""
DUAL_REACH: Final = 26
"""Blocks after which the dual spline has died out (0.43 per block)."""
_DUAL_SAMPLES: Final = 512
"""Blocks of the torus on which the dual spline is computed."""

PIECES: Final[Array] = np.array([[1.0, -2.0, 1.0], [6.0, 0.0, -2.0], [1.0, 2.0, 1.0]]) / 8.0
"""(3, 3) monomial coefficients in t in [-1, 1] of the splines on one block, the leftmost first."""


def weights(t: Array) -> Array:
    """(..., 3) values of the splines at t in [-1, 1] inside a block."""
    return np.stack([np.ones_like(t), t, t * t], axis=-1) @ PIECES.T


def slopes(t: Array, spacing: float) -> Array:
    """(..., 3) derivatives of the splines by the coordinate (not by t) at t in [-1, 1]."""
    return np.stack([np.ones_like(t), 2.0 * t], axis=-1) @ PIECES[:, 1:].T * (2.0 / spacing)


def products() -> Array:
    """(3, 3, 5) monomial coefficients in t of the products of two splines on one block."""
    out = np.zeros((ORDER, ORDER, 2 * DEGREE + 1))
    for p in range(ORDER):
        for q in range(ORDER):
            out[p, q] = np.convolve(PIECES[p], PIECES[q])
    return out


def inner_products() -> Array:
    """(5,) integral of beta(x) beta(x - d) at d = -2 ... 2: the quintic spline at whole numbers."""
    return np.array([1.0, 26.0, 66.0, 26.0, 1.0]) / 120.0


def slope_products() -> Array:
    """(5,) integral of beta'(x) beta'(x - d) at d = -2 ... 2: minus the second derivative of the quintic spline."""
    return np.array([-1.0, -2.0, 6.0, -2.0, -1.0]) / 6.0


def transform(frequency: Array) -> Array:
    """Fourier transform of the spline at f in cycles per block."""
    return np.asarray(np.sinc(frequency) ** ORDER)


def inner_product_transform(frequency: Array) -> Array:
    """sum_k sinc(f + k)^6: the Fourier transform of the inner products."""
    shifts = np.arange(-20, 21)
    return np.asarray((np.sinc(frequency[..., None] + shifts) ** (2 * ORDER)).sum(-1))


@cache
def dual_autocorrelation(samples: int) -> Array:
    """(2 * 26 * samples + 1,) autocorrelation of the dual spline, `samples` per block, times the step between them.

    The dual spline gives the coefficients of a projection in L2: c_j = integral of dual(x - j) f(x). Their covariance
    is therefore the kernel, smoothed by this along both axes.
    """
    count = _DUAL_SAMPLES * samples
    f = np.asarray(np.fft.fftfreq(count, 1.0 / samples), dtype=np.float64)
    spectrum = (transform(f) / inner_product_transform(f)) ** 2
    sequence = np.fft.ifft(spectrum).real  # df = 1 / 512 and dx = 1 / samples: their product is 1 / count
    reach = np.arange(-DUAL_REACH * samples, DUAL_REACH * samples + 1)
    return np.asarray(sequence[reach % count])
