"""Covariance of a pose, from the residuals between the two maps.

Heights at neighbouring cells err together, so that the inverse of the normal matrix, which counts each cell as
independent, is far too small. The pose error of a robust fit is A^-1 sum_i x_i psi_i, with
x_i = J_i / sqrt(lambda v_i) and psi_i the influence of the normalised residuals u_i, and its covariance

    Sigma = A^-1 B A^-1,      A = sum_i psi'_i sym(x_i^A x_i^B'),      B = sum_ij s_i s_j x_i x_j' C(p_i - p_j)

with C the autocorrelation of psi_i / s_i (Conley, 1999). J is the direction in which each cell is informative: a smooth
slope says nothing along its contour, A is small there, and Sigma is large. No factor is fitted to any terrain; all of
it is estimated from the residuals, with care for what would make Sigma too small:

- **The tail of C** is noise about zero, and pulled below it by the fit. C is the mean over directions and ends where it
  first reaches zero, as the sums over Markov chains do (Geyer, 1992).
- **The fit takes up part of the errors,** just the part that moves the pose: psi^_i = psi_i - y_i' A^-1 sum x psi, with
  y_i = psi'_i x_i. What is expected to be missing in the autocovariance, 2 Re(Y A^-1 X* C) - Y Sigma Y* in the
  frequency domain, is put back, and C and Sigma are computed again.
- **Rough ground errs more,** and is where the slopes are. s_i is the spread of psi around each cell.
- **Slopes err, too,** and their errors look like relief that holds the pose. A takes one slope from each map: their
  errors are independent, and cancel in the product.
- **Where a cell errs much, it holds little:** psi', the slope of the influence, falls with the residual and is negative
  in the tails. Steep ground errs most and weighs most, so that a mean of psi' over all cells makes A too large, by
  a tenth in the middle and by half in some pairs; A has each cell's own.

Maps are bent by the drift of the odometry while they were made; part of that leaves no residual. bending.py estimates
its amplitude from the part that does. What is left of the residuals when the bending is taken off is the noise above.
Two more errors leave no residual. One is a mean change of height between two visits, which is as uncertain as what
varies slowly of it beyond such noise. The other is what a whole georeferenced map shares. Nothing shows it; but where
heights differ by no more than both maps' own variances say, nothing is left that they do not know of, and a fifth of it
is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import gaussian_filter

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.bending import amplitude_likelihoods, weigh_cases
from gpgmap_ros.closure.registration.correlation import half_spectrum_weights
from gpgmap_ros.closure.registration.deformation import (
    LARGEST_DRIFT,
    Patterns,
    bend_residuals,
    compute_jacobians,
    fit_bending,
    pose_spread,
    residual_patterns,
    score_spread,
    split_upright,
    trust,
)
from gpgmap_ros.closure.registration.octaves import remove_trend
from gpgmap_ros.closure.registration.overlay import Overlay, crop, overlay_maps
from gpgmap_ros.closure.registration.refinement import INDEPENDENT_STRIDE, NU, Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.registration.stated_drift import stated_factors

Mask = NDArray[np.bool_]

LAGS = 24
"""Cells beyond which residuals are taken as independent in any case."""
AROUND = 6.0
"""Cells, standard deviation of the window over which the spread of the residuals is taken."""
ROUNDS = 3
"""Of putting back what the fit took up: each adds about a tenth of what the one before did."""
MIN_GAIN = 0.2
"""Of the information of all cells that is left in any direction, whatever their residuals and errors of slopes."""
COMMON_METRES, COMMON_RESIDUALS = 0.06, 2.0
"""The error that a georeferenced map shares, at most: metres, and root mean squares of the residuals. In cells below
one metre it is less, by their size to the power of 3/2: who makes finer cells measures from nearer."""
KNOWN_SCALE, LEAST_COMMON = 3.0, 0.2
"""lambda up to which noise and interpolation explain the residuals, and the part of the common error that is left."""
COMMON_SHARES = np.array([1.0, 1.0, 0.85, 0.12, 0.12, 0.22])
"""Of `common_error`, in x, y, z, roll, pitch and yaw, angles times the lever: as two flight lines differ."""
CHANGE, CHANGE_TILT = 1.5, 0.7
"""Standard deviations of the mean change of height between two visits, and of its tilt times the lever, over what
varies slowly of it: snow fills hollows."""
SLOW_EXCESS = 2.0
"""Of what a mean leaves of noise, that is no change of height."""


def compute_covariance(
    alignment: Alignment, source: RegistrationMap, target: RegistrationMap, config: ClosureConfig
) -> Array:
    """(6, 6) covariance of (x, y, z, roll, pitch, yaw) at `alignment.centre`, target's axes, cells and radians."""
    over = overlay_maps(alignment, source, target, config)
    over = crop(over, over.weight > 0.0)
    mask = over.weight > 0.0
    root = np.where(mask, 1.0 / np.sqrt(alignment.scale * np.where(mask, over.variance, 1.0)), 0.0)
    sides = [
        root * compute_jacobians(over.points, slope, alignment.centre)
        for slope in (over.source_slope, over.target_slope)
    ]
    X, u = 0.5 * (sides[0] + sides[1]), root * over.residual
    weight = INDEPENDENT_STRIDE**2 * np.deg2rad(config.tilt_std) ** -2.0
    prior = np.diag([0.0, 0.0, 0.0, weight, weight, 0.0])
    trusted = np.where(mask, trust(u), 0.0)
    driven = len(source.way) > 1 and len(target.way) > 1
    factors = stated_factors(source, target, config)
    bends, doubts = (
        split_upright(root * bend_residuals(alignment, source, target, over, config, doubt, factors))
        for doubt in (False, True)
    )
    level, upright = (residual_patterns(part, X, trusted, prior) for part in bends)
    found = weigh_cases(
        score_likelihoods(u, X, level, doubts[0], mask),
        score_likelihoods(u, X, upright, None, mask),
        driven,
    )
    level_sq, upright_sq = found.drift * found.level_sq, found.drift * found.upright_sq
    expected = np.concatenate(
        [
            np.sqrt(level_sq) * level.sizes,
            np.sqrt(upright_sq + found.change * found.changed_sq) * upright.sizes,
        ]
    )
    fit = fit_bending(u, X, np.concatenate([level.E, upright.E]), expected, mask)
    size = np.sqrt(fit.scale)
    psi, gain = influence(fit.rest / size)
    psi, gain = size * psi, np.where(mask, gain, 0.0)
    A = bound_information(inner_products(X, X), inner_products(gain * sides[0], sides[1]))
    inverse: Array = np.asarray(np.linalg.inv(A + prior + 1e-9 * np.diag(np.diag(A))))
    spread = local_spread(psi, mask)
    B, correlated_cells = score_covariance(X, gain, psi, spread, mask, inverse)
    sigma = inverse @ (B + fit.scale * INDEPENDENT_STRIDE**2 * prior) @ inverse
    rest = np.divide(fit.rest, root, out=np.zeros_like(root), where=mask)
    rms = float(np.sqrt(np.sum(over.weight * rest**2) / np.sum(over.weight)))
    sigma += level_sq * pose_spread(level, doubts[0], X, trusted)
    sigma += upright_sq * pose_spread(upright, doubts[1], X, trusted)
    left, whole = (
        slow_change(over.weight, part, rms, correlated_cells, config.detail_cells)
        for part in (rest, over.residual)
    )
    lever = lever_of(over, mask, alignment)
    sigma[2, 2] += CHANGE**2 * (left + found.change * (whole - left))
    sigma[[3, 4], [3, 4]] += found.change * whole * (CHANGE_TILT / lever) ** 2
    common = common_error(rms, alignment.scale, target.resolution, driven, config)
    shares = COMMON_SHARES / np.array([1.0, 1.0, 1.0, lever, lever, lever])
    return 0.5 * (sigma + sigma.T) + np.diag((common * shares) ** 2)


def slow_change(weight: Array, residual: Array, rms: float, correlated_cells: float, blur: float) -> float:
    """Mean square of what varies over more than `blur` cells, less what a mean over that many leaves of noise.

    rms: of the residuals; correlated_cells: area of their correlation
    """
    slow = residual - remove_trend(weight, residual[None], blur)[0]
    squared = float(np.sum(weight * slow**2) / np.sum(weight))
    return max(squared - SLOW_EXCESS * rms**2 * min(correlated_cells / (4.0 * np.pi * blur**2), 1.0), 0.0)


def common_error(rms: float, scale: float, resolution: float, driven: bool, config: ClosureConfig) -> float:
    """Of the position, in cells, that leaves no residual. rms: of the residuals of heights, in cells; scale: lambda.

    What a drive made stands in the frame of its odometry, whose errors are those of the bending.
    """
    if config.common_error >= 0.0:
        return config.common_error / resolution
    if driven:
        return 0.0
    most = min(COMMON_METRES / resolution * min(resolution, 1.0) ** 1.5, COMMON_RESIDUALS * rms)
    unexplained = max(1.0 - (KNOWN_SCALE / scale) ** 2, 0.0) if scale > 0.0 else 0.0
    return float(most * np.sqrt(LEAST_COMMON**2 + (1.0 - LEAST_COMMON**2) * unexplained))


def score_likelihoods(u: Array, X: Array, bend: Patterns, doubt: Array | None, mask: Mask) -> Array:
    """`amplitude_likelihoods` of patterns, against the noise that the autocovariance of the other residuals implies.

    doubt: as of `score_spread`
    """
    fit = fit_bending(u, X, bend.E, LARGEST_DRIFT * bend.sizes, mask)
    psi = np.sqrt(fit.scale) * influence(fit.rest / np.sqrt(fit.scale))[0]
    nothing = np.zeros((len(bend.E), len(bend.E)))
    noise, _ = score_covariance(bend.E, 0.0, psi, local_spread(psi, mask), mask, nothing)
    scores = fit.amplitudes + inner_products(bend.E, psi[None])[:, 0]
    return amplitude_likelihoods(scores, noise, score_spread(bend, doubt))


def lever_of(over: Overlay, mask: Mask, alignment: Alignment) -> float:
    """Distance of the shared cells from their middle: a rotation moves them by as much."""
    apart = over.points[:2, mask] - alignment.centre[:2, None]
    return float(np.sqrt(np.mean(np.sum(apart**2, axis=0))))


def influence(u: Array) -> tuple[Array, Array]:
    """psi and psi' of Student's t: how much a normalised residual pulls, and how that changes with it."""
    squared = u * u
    return (NU + 1.0) / (NU + squared) * u, (NU + 1.0) * (NU - squared) / (NU + squared) ** 2


def inner_products(a: Array, b: Array) -> Array:
    return np.asarray(a.reshape(len(a), -1) @ b.reshape(len(b), -1).T)


def bound_information(both: Array, across: Array) -> Array:
    """The information (6, 6) with one slope from each map, `across`, but no less than a part of that of `both`."""
    L = np.linalg.cholesky(both + 1e-9 * np.diag(np.diag(both)))
    ratio = np.linalg.solve(L, np.linalg.solve(L, 0.5 * (across + across.T)).T)
    values, vectors = np.linalg.eigh(0.5 * (ratio + ratio.T))
    half = L @ vectors
    return np.asarray((half * np.clip(values, MIN_GAIN, None)) @ half.T)


def local_spread(psi: Array, mask: Mask) -> Array:
    """Standard deviation of psi around every cell; 0 outside the mask."""
    count = gaussian_filter(mask.astype(float), AROUND, mode="constant", truncate=3.0)
    squares = gaussian_filter(np.where(mask, psi**2, 0.0), AROUND, mode="constant", truncate=3.0)
    floor = 1e-6 * max(float(np.mean(psi[mask] ** 2)), np.finfo(float).tiny)
    return np.where(mask, np.sqrt(np.maximum(squares / np.maximum(count, 1e-9), floor)), 0.0)


def score_covariance(
    X: Array, gain: Array | float, psi: Array, spread: Array, mask: Mask, taken: Array
) -> tuple[Array, float]:
    """B (6, 6), and the area of correlated errors in cells.

    gain: psi'; taken: (6, 6) G of the part psi' x' G sum x psi of every psi that the fit took up
    """
    shape = tuple(fft.next_fast_len(size + LAGS, real=True) for size in mask.shape)
    safe = np.where(mask, spread, 1.0)
    power = np.abs(fft.rfft2(np.where(mask, psi / safe, 0.0), s=shape)) ** 2
    pairs = fft.irfft2(np.abs(fft.rfft2(mask.astype(float), s=shape)) ** 2, s=shape)
    scores = fft.rfft2(X * spread, s=shape)
    fitted = fft.rfft2(gain * X / safe, s=shape)
    missing = np.zeros_like(power)
    for _ in range(ROUNDS):
        C = autocovariance(power + missing, pairs)
        # A covariance has no negative power; estimates of it may.
        density = np.maximum(fft.rfft2(C).real, 0.0)
        B = weighted_inner(scores, density, shape[1])
        with_errors = np.tensordot(taken, scores, 1) * density
        of_fit = np.tensordot(taken @ B @ taken.T, fitted, 1)
        missing = np.sum(((2.0 * with_errors - of_fit) * np.conj(fitted)).real, axis=0)
    return B, float(max(C.sum() / C[0, 0], 1.0)) if C[0, 0] > 0.0 else 1.0


def weighted_inner(spectra: NDArray[np.complex128], density: Array, columns: int) -> Array:
    """sum_ij x_i x_j' C(p_i - p_j) from half spectra (6, P, Q) of x and (P, Q) of C.

    columns: of the lattice
    """
    weighted = (spectra * (density * half_spectrum_weights(columns))).reshape(len(spectra), -1)
    flat = spectra.reshape(len(spectra), -1)
    return np.asarray(np.asarray((weighted @ np.conj(flat).T).real) / (density.shape[0] * columns))


def autocovariance(power: Array, pairs: Array) -> Array:
    """C at all lags of a periodic lattice: mean over pairs of cells and directions, up to where it first reaches 0.

    power: (P, Q) half spectrum, squared; pairs: (P, R) of cells at every lag
    """
    distance = lag_distance(pairs.shape)
    rings = np.rint(distance).astype(int)
    near = rings <= LAGS
    total = np.bincount(rings[near], fft.irfft2(power, s=pairs.shape)[near], LAGS + 1)
    count = np.bincount(rings[near], pairs[near], LAGS + 1)
    profile = total / np.maximum(count, 1.0)
    ends = np.flatnonzero(profile[1:] <= 0.0)
    if ends.size:
        profile[1 + ends[0] :] = 0.0
    return np.interp(distance, np.arange(LAGS + 1), profile, right=0.0)


def lag_distance(shape: tuple[int, ...]) -> Array:
    y, x = (np.minimum(np.arange(size), size - np.arange(size)) for size in shape)
    return np.hypot(y[:, None], x[None, :])
