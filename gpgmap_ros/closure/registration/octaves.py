"""Two fields of slopes octave by octave: how well they correlate in each, and in how many independent cells.

What is coarser than `blur` cells, each octave below, and the rest are nearly independent of each other. A field is
smoothed by a product with a matrix from each side; transforms are linear, so that those of an octave follow from the
transforms of what is finer than its two ends.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from gp_core.arrays import Array
from gpgmap_ros.closure.registration.correlation import half_spectrum_weights

Fields = NDArray[np.float32]
Spectrum = NDArray[np.complexfloating]

OCTAVES = 3
"""Of the slopes, below `detail_cells`: from 6 to 3, to 1.5, and 0.75 cells, where a GP's map has no more to say."""
TRUNCATE = 3.0
"""Standard deviations of a Gaussian window that are summed over."""


def correlate_octaves(w: Array, a: Array, b: Array, blur: float) -> tuple[Array, list[tuple[float, float]]]:
    """(OCTAVES + 1, 2) rho and n of two fields coarser than `blur` cells, of each octave below, and of the rest.

    And rho and n of everything, and of all that is finer than `blur`.
    w: (rows, columns) weights; a, b: (C, rows, columns)
    """
    both, half, shape = np.concatenate([a, b]), len(a), padded_shape(w)
    finer = [both]
    for octave in range(OCTAVES):
        finer.append(remove_trend(w, finer[-1], blur / 2.0**octave))
    fields = [centre_fields(w, part) for part in finer]
    spectra = [fft.rfft2(part, s=shape) for part in fields]
    cells = int(np.count_nonzero(w))

    def correlate(field: Fields, spectrum: Spectrum) -> tuple[float, float]:
        cross = np.sum(np.conj(spectrum[:half]) * spectrum[half:], axis=0)
        return compute_correlation(field[:half], field[half:], cross, shape, cells)

    octaves = [correlate(fields[k] - fields[k + 1], spectra[k] - spectra[k + 1]) for k in range(OCTAVES)]
    octaves.append(correlate(fields[-1], spectra[-1]))
    return np.array(octaves), [correlate(fields[0], spectra[0]), correlate(fields[1], spectra[1])]


def correlate_fields(w: Array, a: Array, b: Array) -> tuple[float, float]:
    """rho and n of two fields (C, rows, columns) with weights w (rows, columns)."""
    x, y, shape = centre_fields(w, a), centre_fields(w, b), padded_shape(w)
    cross = np.sum(np.conj(fft.rfft2(x, s=shape)) * fft.rfft2(y, s=shape), axis=0)
    return compute_correlation(x, y, cross, shape, int(np.count_nonzero(w)))


def compute_correlation(
    x: Fields, y: Fields, cross: Spectrum, shape: tuple[int, int], cells: int
) -> tuple[float, float]:
    """rho and n of two centred fields. cross: half spectrum of their correlation at all shifts, of this shape"""
    energy_a, energy_b = np.sum(x * x, axis=0, dtype=np.float64), np.sum(y * y, axis=0, dtype=np.float64)
    product = float(energy_a.sum() * energy_b.sum())
    if product <= 0.0:
        return 0.0, 0.0
    together = float(np.sum(energy_a * energy_b)) * cells
    concentration = min(1.0, 2.0 * product / together) if together > 0.0 else 0.0
    rho = float(np.sum(x * y, dtype=np.float64)) / np.sqrt(product)
    return float(np.clip(rho, -1.0, 1.0)), cells * product / spectrum_energy(cross, shape) * concentration


def centre_fields(w: Array, a: Array) -> Fields:
    """A field (C, rows, columns) less its mean, times the root of its weights."""
    centred = np.sqrt(w) * (a - np.sum(w * a, axis=(1, 2), keepdims=True) / w.sum())
    return np.asarray(centred, dtype=np.float32)


def padded_shape(w: Array) -> tuple[int, int]:
    """Shape of a transform in which no shift wraps around."""
    rows, columns = (fft.next_fast_len(2 * size, real=True) for size in w.shape)
    return rows, columns


def spectrum_energy(spectrum: Spectrum, shape: tuple[int, int]) -> float:
    """Sum of squares of the field with this half spectrum (Parseval)."""
    squares = spectrum.real.astype(np.float64) ** 2 + spectrum.imag.astype(np.float64) ** 2
    return float(np.sum(half_spectrum_weights(shape[1]) * squares)) / (shape[0] * shape[1])


def remove_trend(w: Array, a: Array, blur: float) -> Array:
    """The fields less their weighted mean over `blur` cells."""
    rows, columns = (gaussian_matrix(size, blur) for size in w.shape)
    smoothed = rows @ np.concatenate([w[None], w * a]) @ columns
    return np.where(w > 0.0, a - smoothed[1:] / np.maximum(smoothed[0], 1e-9), 0.0)


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, blur: float) -> Array:
    """(size, size) that smooths a row of values with zeros around it, symmetric."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    reach = int(TRUNCATE * blur + 0.5)
    window = np.where(apart <= reach, np.exp(-0.5 * (apart / blur) ** 2), 0.0)
    total = np.sum(np.exp(-0.5 * (np.arange(-reach, reach + 1) / blur) ** 2))
    return np.asarray(window / total)
