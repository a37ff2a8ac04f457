"""The smooth basis: B-splines of degree 5 on the corners of the blocks.

On one block, six splines are non-zero; with t in [-1, 1] across the block each is a polynomial of degree 5:
beta_k(t) = sum_a PIECES[k, a] t^a.
Degree 5 and not 3: at equal accuracy the blocks may be 1.6 times as wide (see docs/grid_gp.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.moments import QUINTIC

DEGREE: Final = 5
ORDER: Final = DEGREE + 1
"""Splines that are non-zero on a block, and monomials per axis in the moments of the heights."""
MOMENTS: Final = QUINTIC.weights
"""Monomials per axis in the moments of the weights."""
PAIR_DEGREE: Final = MOMENTS - 1
"""Degree to which products of two functions are followed on a block."""


def _unit_weights(s: Array) -> Array:
    """(..., ORDER) values of the splines at s in [0, 1], by the Cox-de Boor recursion on uniform knots."""
    weights = [np.ones_like(s)]
    for d in range(1, ORDER):
        previous = weights
        weights = [
            (previous[k - 1] * (s + d - k) / d if k > 0 else 0.0 * s)
            + (previous[k] * (1.0 - s + k) / d if k < d else 0.0 * s)
            for k in range(d + 1)
        ]
    return np.stack(weights, axis=-1)


def _pieces() -> Array:
    nodes = np.cos(np.pi * (np.arange(ORDER) + 0.5) / ORDER)
    return np.linalg.solve(np.vander(nodes, ORDER, increasing=True), _unit_weights((nodes + 1.0) / 2.0)).T


PIECES: Final[Array] = _pieces()
"""(ORDER, ORDER) monomial coefficients in t in [-1, 1] of the splines on one block, the leftmost first."""


def weights(t: Array) -> Array:
    """(..., ORDER) values of the splines at t in [-1, 1] inside a block."""
    return np.vander(t.ravel(), ORDER, increasing=True).reshape(*t.shape, ORDER) @ PIECES.T


def slopes(t: Array, spacing: float) -> Array:
    """(..., ORDER) derivatives of the splines by the coordinate (not by t) at t in [-1, 1]."""
    powers = np.vander(t.ravel(), ORDER, increasing=True).reshape(*t.shape, ORDER)
    exponents = np.arange(1, ORDER)
    return (powers[..., :-1] @ (PIECES[:, 1:] * exponents).T) * (2.0 / spacing)


def spectrum(frequency: Array) -> Array:
    """Fourier transform of the spline, sinc(f)^ORDER, at f in cycles per block."""
    return np.sinc(frequency) ** ORDER


def gram_spectrum(frequency: Array) -> Array:
    """sum_k sinc(f + k)^(2 ORDER): the Fourier transform of the splines' inner products."""
    shifts = np.arange(-3, 4)
    total: Array = (np.sinc(frequency[..., None] + shifts) ** (2 * ORDER)).sum(-1)
    return total


def spline_gram(window: Array) -> Array:
    """(n, n) integrals of window beta_i beta_j, with a window (n - 5,) that is constant on each block."""
    nodes, mass = np.polynomial.legendre.leggauss(ORDER)
    beta = _unit_weights((nodes + 1.0) / 2.0)
    block = (beta * mass[:, None] / 2.0).T @ beta
    n = window.size + DEGREE
    gram = np.zeros((n, n))
    for i, w in enumerate(window):
        gram[i : i + ORDER, i : i + ORDER] += w * block
    return gram
