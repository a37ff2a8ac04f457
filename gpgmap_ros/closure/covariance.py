"""How well a pose is known, from what is left between the two surfaces.

Heights at neighbouring cells err together, so that the inverse of the normal matrix, which counts each cell as
independent, is far too small. The pose error of a weighted fit is A^-1 sum_i x_i psi(u_i), with
x_i = J_i / sqrt(lambda v_i) and u_i the normalised residuals, and its covariance

    Sigma = A^-1 B A^-1,      A = sum_i psi'_i x_i x_i',      B = sum_ij x_i x_j' C(p_i - p_j)

with C the autocovariance of the psi(u_i), estimated from the residuals themselves at all lags up to `LAGS` cells,
averaged over directions and tapered (Conley, 1999). J is the direction in which each cell is informative: a smooth
slope says nothing along its contour, A is small there, and Sigma is large.

Errors that are common to a whole map leave no residual: georeference, sensor mount, drift within the submap. They can't
be seen in a pair, and `common_error` is added for them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.overlay import Overlay, overlay
from gpgmap_ros.closure.refinement import INDEPENDENT_EVERY, NU, Alignment
from gpgmap_ros.closure.surface import Surface

Array = NDArray[np.float64]

LAGS = 24
"""Cells beyond which residuals are taken as independent."""
INFLATION = 2.6
"""Ratio of real squared errors to Sigma: the fit takes up part of what it should leave as residual, and the errors have
heavier tails than a stationary field. 2.2 makes the mean right over 200 pairs of five DEMs; 2.6 is the safe side."""
VERTICAL = 0.6
"""Common error of heights over that of positions."""


def covariance_of(alignment: Alignment, source: Surface, target: Surface, config: ClosureConfig) -> Array:
    """(6, 6) covariance of (x, y, z, roll, pitch, yaw) at `alignment.centre`, target's axes, cells and radians."""
    over = overlay(alignment, source, target, config)
    mask = over.weight > 0.0
    X, u = influences(over, mask, alignment)
    squared = u * u
    trust = (NU + 1.0) / (NU + squared)
    slope = np.where(mask, (NU + 1.0) * (NU - squared) / (NU + squared) ** 2, 0.0)  # psi' of Student's t
    # psi' is negative in the tails; its mean, not each value, scales the information of a cell.
    gain = float(slope[mask].mean())
    A = max(gain, 0.2) * np.einsum("mij,nij->mn", X, X)
    B = correlated(X, np.where(mask, trust * u, 0.0), mask)
    weight = INDEPENDENT_EVERY**2 * np.deg2rad(config.tilt_std) ** -2.0
    for axis in (3, 4):
        A[axis, axis] += weight
        B[axis, axis] += weight * INDEPENDENT_EVERY**2
    inverse = np.linalg.inv(A + 1e-9 * np.diag(np.diag(A)))
    sigma = INFLATION * inverse @ B @ inverse
    spread = over.points[:, mask] - alignment.centre[:, None]
    lever = float(
        np.sqrt(np.mean(np.sum(spread[:2] ** 2, axis=0)))
    )  # a rotation moves the cells by its lever
    common = (
        config.common_error
        / target.resolution
        * np.array([1.0, 1.0, VERTICAL, VERTICAL / lever, VERTICAL / lever, 1.0 / lever])
    )
    sigma[np.diag_indices(6)] += common**2
    return 0.5 * (sigma + sigma.T)


def influences(over: Overlay, mask: NDArray[np.bool_], alignment: Alignment) -> tuple[Array, Array]:
    """x (6, rows, columns) and u (rows, columns), zero outside the mask."""
    root = np.where(mask, 1.0 / np.sqrt(alignment.scale * np.where(mask, over.variance, 1.0)), 0.0)
    gx, gy = 0.5 * (over.source_slope + over.target_slope)
    d = over.points - alignment.centre[:, None, None]
    J = np.stack([-gx, -gy, np.ones_like(gx), d[1] + gy * d[2], -d[0] - gx * d[2], gx * d[1] - gy * d[0]])
    return J * root, over.residual * root


def correlated(X: Array, psi: Array, mask: NDArray[np.bool_]) -> Array:
    """B (6, 6), summed in the frequency domain: C is a convolution."""
    rows, columns = mask.shape
    shape = (fft.next_fast_len(rows + LAGS, real=True), fft.next_fast_len(columns + LAGS, real=True))
    C = autocovariance(psi, mask, shape)
    density = np.maximum(fft.rfft2(C).real, 0.0)  # a covariance has no negative power; estimates of it may
    spectra = fft.rfft2(X, s=shape)
    twice = np.full(density.shape[1], 2.0)
    twice[0] = 1.0
    if shape[1] % 2 == 0:
        twice[-1] = 1.0
    B = np.einsum("mij,nij,ij->mn", spectra, np.conj(spectra), density * twice, optimize=True).real
    return B / (shape[0] * shape[1])


def autocovariance(psi: Array, mask: NDArray[np.bool_], shape: tuple[int, int]) -> Array:
    """C at all lags of a periodic lattice of this shape: mean over pairs of cells and over directions, tapered."""
    full = tuple(fft.next_fast_len(size + LAGS, real=True) for size in psi.shape)
    sums = fft.irfft2(np.abs(fft.rfft2(psi, s=full)) ** 2, s=full)
    pairs = fft.irfft2(np.abs(fft.rfft2(mask.astype(float), s=full)) ** 2, s=full)
    distance = lag_distance(full)
    rings = np.rint(distance).astype(int)
    near = rings <= LAGS
    total = np.bincount(rings[near], sums[near], LAGS + 1)
    count = np.bincount(rings[near], pairs[near], LAGS + 1)
    profile = total / np.maximum(count, 1.0)
    profile *= 1.0 - np.arange(LAGS + 1) / (LAGS + 1.0)
    return np.interp(lag_distance(shape), np.arange(LAGS + 1), profile, right=0.0)


def lag_distance(shape: tuple[int, ...]) -> Array:
    y, x = (np.minimum(np.arange(size), size - np.arange(size)) for size in shape)
    return np.hypot(y[:, None], x[None, :])
