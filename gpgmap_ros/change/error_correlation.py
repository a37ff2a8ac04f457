"""Correlation of the errors of neighbouring cells, and draws of whole error fields.

The normal scores of the differences are correlated over the length of the prior, over that of the filters of both
surveys, and over that of their strips and trajectories. Their correlation at distance h is taken as

    rho(h) = sum over k of w_k exp(-h^2 / (2 l_k^2)),      w_k >= 0,  sum of w_k = 1

with lengths l_k doubling from half a cell to a quarter of the map, and weights by non-negative least squares: a
mixture of all lengths, which is a covariance whatever the weights. A volume errs by the sum of rho over all pairs of
its cells, so that independent cells would understate it several times (Rolstad et al., 2009; Hugonnet et al., 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize

from gp_core.arrays import Array

BINS_PER_OCTAVE = 4
LEAST_PAIRS = 200.0
"""Pairs of cells at a distance for that to count."""
PADDING = 3.0
"""Longest lengths around the map on the torus on which fields are drawn, so that its edges do not meet."""


@dataclass(frozen=True)
class Correlation:
    """lengths: (K,) in cells; weights: (K,), which sum to 1"""

    lengths: Array
    weights: Array

    def at(self, distance: Array) -> Array:
        """rho at distances in cells, of any shape."""
        return np.asarray(
            sum(
                w * np.exp(-0.5 * (distance / length) ** 2)
                for w, length in zip(self.weights, self.lengths, strict=True)
                if w > 0.0
            )
        )

    def correlated_cells(self) -> float:
        """Area over which errors are alike, in cells: sum of rho over the plane."""
        return float(max(2.0 * np.pi * np.sum(self.weights * self.lengths**2), 1.0))


def estimate_correlation(scores: Array, mask: NDArray[np.bool_]) -> Correlation:
    """The correlation of normal scores (rows, columns) where `mask` is set."""
    distance, observed, weight = correlogram(scores, mask)
    largest = max(min(mask.shape) / 4.0, 1.0)
    lengths = 0.5 * 2.0 ** np.arange(0.0, np.log2(largest / 0.5) + 1e-9, 1.0)
    model = np.exp(-0.5 * (distance[:, None] / lengths) ** 2)
    model = np.vstack([model * weight[:, None], 1e3 * np.ones(len(lengths))])  # the sum is 1
    found, _ = optimize.nnls(model, np.append(observed * weight, 1e3))
    return Correlation(lengths, found / found.sum())


def correlogram(scores: Array, mask: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Distances in cells, the mean product of scores at each in shares of their mean square, and weights for a fit."""
    reach = max(min(mask.shape) // 2, 2)
    shape = tuple(fft.next_fast_len(size + reach, real=True) for size in mask.shape)
    values = np.where(mask, scores, 0.0)
    products = fft.irfft2(np.abs(fft.rfft2(values, s=shape)) ** 2, s=shape)
    pairs = fft.irfft2(np.abs(fft.rfft2(mask.astype(float), s=shape)) ** 2, s=shape)
    y, x = (np.minimum(np.arange(size), size - np.arange(size)) for size in shape)
    distance = np.hypot(y[:, None], x[None, :])
    near = (distance > 0.0) & (distance <= reach)
    number = np.rint(BINS_PER_OCTAVE * np.log2(np.where(near, distance, 1.0))).astype(int)
    number, total, count = number[near], products[near], pairs[near]
    sums = [np.bincount(number, item) for item in (total, count, count * distance[near])]
    some = sums[1] > LEAST_PAIRS
    square = max(float(np.mean(values[mask] ** 2)), np.finfo(float).tiny)
    return sums[2][some] / sums[1][some], sums[0][some] / sums[1][some] / square, np.ones(int(some.sum()))


def draw_fields(
    correlation: Correlation, shape: tuple[int, int], count: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Gaussian fields of unit variance with this correlation, one after another, by FFT on a torus."""
    used = correlation.weights > 1e-4
    pad = int(np.ceil(PADDING * float(correlation.lengths[used].max())))
    padded = tuple(fft.next_fast_len(size + pad) for size in shape)
    y, x = (np.minimum(np.arange(size), size - np.arange(size)) for size in padded)
    power = np.maximum(fft.fft2(correlation.at(np.hypot(y[:, None], x[None, :]))).real, 0.0)
    root = np.sqrt(power * padded[0] * padded[1] / power.sum()).astype(np.float32)
    for k in range(0, count, 2):
        white = rng.standard_normal((2, *padded), dtype=np.float32)
        both = fft.ifft2(root * (white[0] + 1j * white[1])) * np.float32(np.sqrt(root.size))
        both = both[: shape[0], : shape[1]]
        yield both.real.astype(np.float64)
        if k + 1 < count:
            yield both.imag.astype(np.float64)
