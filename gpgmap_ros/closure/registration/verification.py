"""Evidence that two maps show the same ground, from slopes, which took no part in the fit.

**How well, against the variances of both maps.** Reduced chi-squares of heights and slopes,

    lambda_z = mean r_z^2 / (v_A + v_B),          lambda_g = mean |r_g|^2 / 2 (u_A + u_B),

with Student's t for the tails. They are 1 if the GP's kernel describes the terrain and grow with what it can't follow,
but they grow together: what is left between two maps of one place has the correlation length of the GP's errors.
Between different places forms are left over that are larger than that, and lambda_z is many times lambda_g. The test is
on their ratio. It knows no terrain, no unit and no noise level.

**How alike.** Over the shared cells, a the source's slopes (rotated), b the target's, both weighted by
1 / (1 + noise / relief), the correlation is rho = a.b / |a||b|. The likelihood ratio of "same ground" against
"unrelated ground of this roughness" for Gaussian fields is

    L = -n/2 log(1 - rho^2),       n = m |a|^2 |b|^2 / sum_s C(s)^2,      C(s) = sum a(x) b(x + s)

for m cells. n is the number of independent ones (Bartlett, 1946): the correlation at the pose is compared with that
at all other shifts s, so that parallel ridges, which correlate everywhere, count for little. Where few cells hold
most of the relief (the shore of a lake) no more than those can agree: n is also scaled by twice the participation
|a|^2 |b|^2 / (m sum |a_i|^2 |b_i|^2), which is 1 for Gaussian fields, where that is below 1.

**Better than chance.** The search tried many poses, of which M are independent: about 2 pi R / d yaws and A / d^2
shifts for maps of radius R, shifts over an area A, and d^2 = m / n cells to an independent one. The best of M unrelated
poses reaches L = log M. What counts is the surplus L - log M, of all relief or of detail alone, whichever says more.
Where a prior says roughly where to look, its density takes the place of 1 / M: with a Gaussian prior of covariance S
over x, y and yaw, log M = log((2 pi)^(3/2) |S|^(1/2) / volume of an independent pose) + d^2 / 2 at the distance d.
Between two fields of noise the residuals are noise as well, and the ratio above says nothing: the larger the share s of
noise in the slopes, the more surplus is asked for. Ground that is no Gaussian field, whose ditches or craters are all
alike, beats chance without being the same: what it reaches against itself is taken off (self_similarity.py).

**How much is white.** What is left between two maps of one place is noise: n_z independent cells of it, counted as n
is, from the autocorrelation of the height residuals. Forms that are left over are few.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.deformation import (
    LARGEST_DRIFT,
    bend_residuals,
    compute_jacobians,
    fit_bending,
    residual_patterns,
    trust,
)
from gpgmap_ros.closure.registration.octaves import (
    centre_fields,
    correlate_octaves,
    padded_shape,
    remove_trend,
    spectrum_energy,
)
from gpgmap_ros.closure.registration.overlay import Overlay, crop, overlay_maps
from gpgmap_ros.closure.registration.prior import SearchPrior
from gpgmap_ros.closure.registration.refinement import NU, Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.types import Evidence

MAX_CELLS = 4000
"""Above this many shared cells every second one is enough: slopes are smooth over two cells."""
EM_STEPS = 12
SHIFTS = 1.3
"""Radius of the shifts that the search allows, in radii of a map: beyond, equal discs share less than a fifth."""


def compute_evidence(
    alignment: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    expected: SearchPrior | None = None,
    stride: int = 1,
) -> Evidence | None:
    """The evidence for a pose; None where the maps share too little to tell.

    expected: the prior; stride: of the cells that are compared, in x and y, at least 2 where there are many
    """
    stride = max(stride, 2 if alignment.shared > MAX_CELLS else 1)
    over = overlay_maps(alignment, source, target, config, stride)
    shared = over.weight > 0.0
    cells = int(shared.sum())
    if cells * stride**2 < config.min_cells:
        return None
    over = crop(over, shared)
    shared, total = over.weight > 0.0, float(over.weight.sum())
    slope_residual = np.sum((over.source_slope - over.target_slope) ** 2, axis=0)
    straight, bend = take_off_bending(alignment, source, target, over, config)
    height_scale = estimate_scale(straight[shared] ** 2 / over.variance[shared], 1)
    slope_scale = estimate_scale(slope_residual[shared] / over.slope_variance[shared], 2)
    w = trust_weights(over, slope_scale)
    a, b = select_fields(over, config)
    blur = config.detail_cells / stride
    octaves, bands = correlate_octaves(w, a, b, blur)
    evidences = [likelihood_ratio(*bands[0]), likelihood_ratio(*bands[1])]
    evidences.append(sum(likelihood_ratio(rho, n) for rho, n in octaves))
    counts = [bands[0][1], bands[1][1], float(np.sum(octaves[:, 1]))]
    radius = 0.5 * (source.radius + target.radius)
    mahalanobis_sq = prior_mahalanobis_sq(alignment, target, expected) if expected else 0.0
    each = [cells * stride**2 / max(n, 1e-9) for n in counts]
    chances = [log_chance(area, radius, mahalanobis_sq, expected) for area in each]
    surplus = np.array(evidences) - chances
    best = int(np.argmax(surplus))
    return Evidence(
        overlap=total * stride**2 / min(source.area, target.area),
        cells=cells,
        coherence=bands[0][0],
        detail_coherence=bands[1][0],
        independent=bands[0][1],
        detail_independent=bands[1][1],
        likelihood=float(evidences[best]),
        surplus=float(surplus[best]),
        height_scale=height_scale,
        slope_scale=slope_scale,
        ratio=slope_scale / height_scale,
        white=count_independent(w, straight[None]),
        noise_share=noise_share(over, slope_scale),
        height_rms=float(np.sqrt(np.sum(over.weight * over.residual**2) / total)),
        slope_rms=float(np.sqrt(np.sum(over.weight * slope_residual) / total)),
        tilt=float(np.rad2deg(np.hypot(alignment.R[0, 2], alignment.R[1, 2]))),
        converged=alignment.converged,
        mahalanobis_sq=mahalanobis_sq,
        bend=bend,
        height_change=slow_change(over, blur),
    )


def take_off_bending(
    alignment: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    over: Overlay,
    config: ClosureConfig,
) -> tuple[Array, float]:
    """Residuals of the heights without what drift inside the maps explains, and how much drift that takes.

    The drift in units of what `drift_*` states: the root mean square of the patterns' amplitudes
    """
    mask = over.weight > 0.0
    scale = estimate_scale(over.residual[mask] ** 2 / over.variance[mask], 1)
    root = np.where(mask, 1.0 / np.sqrt(scale * np.where(mask, over.variance, 1.0)), 0.0)
    u = root * over.residual
    slope = 0.5 * (over.source_slope + over.target_slope)
    X = root * compute_jacobians(over.points, slope, alignment.centre)
    H = root * bend_residuals(alignment, source, target, over, config)
    prior = np.diag(np.array([0.0, 0.0, 0.0, 1.0, 1.0, 0.0]) * np.deg2rad(config.tilt_std) ** -2.0)
    patterns = residual_patterns(H, X, np.where(mask, trust(u), 0.0), prior)
    fit = fit_bending(u, X, patterns.E, LARGEST_DRIFT * patterns.sizes, mask)
    straight = np.divide(fit.rest, root, out=np.zeros_like(root), where=mask)
    return straight, float(np.sqrt(np.mean((fit.amplitudes / patterns.sizes) ** 2)))


def slow_change(over: Overlay, blur: float) -> float:
    """Root mean square of the height difference that varies slowly: snow, a wet season; in cells."""
    w = over.weight
    smooth = over.residual - remove_trend(w, over.residual[None], blur)[0]
    return float(np.sqrt(np.sum(w * smooth**2) / np.sum(w)))


def trust_weights(over: Overlay, slope_scale: float) -> Array:
    """The weights with which slopes are compared: less where noise is more than relief."""
    relief = 0.5 * (
        mean_slope_variance(over.weight, over.source_slope)
        + mean_slope_variance(over.weight, over.target_slope)
    )
    noise = slope_scale * over.slope_variance
    return np.where(over.weight > 0.0, over.weight / (1.0 + noise / max(relief, 1e-12)), 0.0)


def prior_mahalanobis_sq(alignment: Alignment, target: RegistrationMap, expected: SearchPrior) -> float:
    """Squared Mahalanobis distance of a pose from what was expected."""
    x, y = alignment.t[:2] - target.centre
    return float(expected.mahalanobis_sq(x, y, np.float64(alignment.yaw)))


def mean_slope_variance(w: Array, slope: Array) -> float:
    """Weighted variance of a slope field (2, rows, columns), mean of both components."""
    mean = np.sum(w * slope, axis=(1, 2)) / w.sum()
    return float(0.5 * (np.sum(w * np.sum(slope**2, axis=0)) / w.sum() - mean @ mean))


def noise_share(over: Overlay, slope_scale: float) -> float:
    """Noise over noise plus relief of the slopes, where they are known best (weights 1 / variance)."""
    shared = over.weight > 0.0
    precision = np.where(shared, over.weight / np.where(shared, over.slope_variance, 1.0), 0.0)
    noise = slope_scale * float(over.weight.sum() / precision.sum())
    both = mean_slope_variance(precision, over.source_slope) + mean_slope_variance(
        precision, over.target_slope
    )
    return noise / max(both, 1e-12)


def log_chance(each: float, radius: float, mahalanobis_sq: float, expected: SearchPrior | None) -> float:
    """log M: what the best of unrelated poses reaches. each: cells to an independent one; radius: of the maps"""
    chance = log_poses(radius, each)
    if expected:
        chance = min(chance, expected.log_poses(mahalanobis_sq, radius, max(each, 1.0)))
    return chance


def log_poses(radius: float, cells_each: float) -> float:
    """log M: independent poses of a search over maps of this radius, with so many cells to an independent one."""
    each = max(cells_each, 1.0)
    yaws = max(2.0 * np.pi * radius / np.sqrt(each), 1.0)
    shifts = max(np.pi * (SHIFTS * radius) ** 2 / each, 1.0)
    return float(np.log(yaws * shifts))


def select_fields(over: Overlay, config: ClosureConfig) -> tuple[Array, Array]:
    """The fields (C, rows, columns) that are correlated: slopes, or heights where gradients are left out."""
    if config.use_gradient:
        return over.source_slope, over.target_slope
    height = over.points[2]
    return height[None], (height - over.residual)[None]


def count_independent(w: Array, a: Array) -> float:
    """Independent cells of a field (C, rows, columns) with weights w, from its autocorrelation; 0 for a constant.

    Correlations by chance count as well, so that white noise has half of its cells.
    """
    x = centre_fields(w, a)
    total = float(np.sum(x * x, dtype=np.float64))
    if total <= 0.0:
        return 0.0
    shape = padded_shape(w)
    power = np.sum(np.abs(fft.rfft2(x, s=shape)) ** 2, axis=0)
    return int(np.count_nonzero(w)) * total**2 / spectrum_energy(power, shape)


def likelihood_ratio(rho: float, n: float) -> float:
    """L; 0 for an anticorrelation."""
    return -0.5 * n * float(np.log1p(-min(max(rho, 0.0) ** 2, 1.0 - 1e-6)))


def estimate_scale(squared: Array, dimensions: int) -> float:
    """Scale of multivariate Student's t from squared normalised residuals (N,), by EM."""
    scale = float(np.mean(squared)) / dimensions
    for _ in range(EM_STEPS):
        if scale <= 0.0:
            return float(np.finfo(float).tiny)
        scale = float(np.mean((NU + dimensions) / (NU + squared / scale) * squared)) / dimensions
    return scale
