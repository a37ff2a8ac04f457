"""Is it the same ground? Evidence that stands a test, from slopes, which took no part in the fit.

**How well, against the variances of both maps.** Reduced chi-squares of heights and slopes,

    lambda_z = mean r_z^2 / (v_A + v_B),          lambda_g = mean |r_g|^2 / 2 (u_A + u_B),

with Student's t for the tails. They are 1 if the GP's kernel describes the terrain and grow with what it can't follow,
but they grow together: what is left between two maps of one place has the correlation length of the GP's errors.
Between different places forms are left over that are larger than that, and lambda_z is many times lambda_g. The test is
on their ratio. It knows no terrain, no unit and no noise level.

**How alike.** Over the shared cells, a the source's slopes (turned), b the target's, both weighted by
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
alike, beats chance without being the same: what it reaches against itself is taken off (repetition.py).

**How much is white.** What is left between two maps of one place is noise: n_z independent cells of it, counted as n
is, from the autocorrelation of the height residuals. Forms that are left over are few.

**Probability.** A logistic function of log ratio, surplus, log n_z and log 1/s, each up to where more says no more,
its constants chosen once, on training draws.

**Uniqueness.** Only one pose can be right. A rival, a distinct pose that might be believed on its own, is dismissed
only if it fits worse than the best pose by more than chance: on ground that repeats itself both fit down to the noise,
and which of them has the higher L is decided by noise and by how much they happen to share. The slopes are split into
octaves, which are nearly independent, each with its own rho and n (the smaller of both poses'). Of what is left, 1 -
rho^2, each pose's estimate has the relative variance 2 / n, so that

    D = sum over octaves of n/2 log((1 - rho_i^2) / (1 - rho_1^2)),      z = D / sqrt(sum of n)

is a standard normal variable where both fit equally well. With the odds o_1 of the best pose alone and p_i = o_i / (1 +
o_i) of each rival,

    P = 1 / (1 + 1 / o_1 + sum p_i 2 Q(z_i)),      Q(z): that a standard normal variable exceeds z.

Places that share their large forms alone, two flat valley floors, are told apart by the finer octaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import gaussian_filter

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.overlay import Overlay, overlay
from gpgmap_ros.closure.prior import BELIEVED, Expectation
from gpgmap_ros.closure.refinement import NU, Alignment
from gpgmap_ros.closure.surface import Surface

Array = NDArray[np.float64]

MOST_CELLS = 4000
"""Above this many shared cells every second one is enough: slopes are smooth over two cells."""
EM_STEPS = 12
INTERCEPT, WEIGHTS = -1.5, np.array([12.2, 0.39, 3.6, 1.5])
"""Of the logistic function of `terms`, from ground that repeats itself and pairs that noise makes hard (--calibrate of
benchmark/closure_pairs.py), for a robot that compares forty pairs of different places for one of the same."""
MOST_RATIO, ENOUGH_NATS, MANY_CELLS, LEAST_NOISE = 1.22, 25.0, 300.0, 0.01
"""Where more of a term says no more."""
FEW_CELLS, SOME_NOISE = 50.0, 0.1
"""Where the terms of n_z and of noise change their signs."""
SHIFTS = 1.3
"""Radius of the shifts that the search allows, in radii of a map: beyond, equal discs share less than a fifth."""
NATS_PER_NOISE = 20.0
"""Surplus that is asked for, per part of noise: 7 nats where there is nothing but noise, whose share is then about 0.35
(half of the sum of two noises, by the scale of Student's t), next to nothing on clear relief."""
OCTAVES = 3
"""Of the slopes, below `detail_cells`: from 6 to 3, to 1.5, and 0.75 cells, where a GP's map has no more to say."""
RIVAL = -3.0
"""Log odds from which on a pose counts as a rival: below, it is wrong in 95 of 100 cases whatever the others are."""
OF_SEARCHED = 0.6
"""Of `min_overlap`, from which on poses are looked for: weighed cell by cell, a right one may share less than it seemed
to. What little ground can tell is in the probability."""
LEAST_RATIO = 0.4
"""Of lambda_g to lambda_z."""
TILT_LIMIT = 3.7
"""In standard deviations of the prior: 99.9 % of two-dimensional Gaussian errors are smaller."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for one pose.

    overlap: shared part of the smaller map, by weight; cells: shared cells that were compared
    coherence, detail_coherence: rho of all relief and of detail; independent, detail_independent: n of both
    likelihood: L of the band that says more, in nats; surplus: L - log M of that band
    height_scale, slope_scale: lambda_z, lambda_g; ratio: lambda_g / lambda_z; white: n_z
    noise_share: part of the slopes' variance that is noise
    height_rms, slope_rms: of the residuals, weighted; heights in cells
    tilt: roll and pitch together, degrees; converged: whether the refinement did
    surprise: squared Mahalanobis distance of x, y and yaw from the prior, 0 without one
    """

    overlap: float
    cells: int
    coherence: float
    detail_coherence: float
    independent: float
    detail_independent: float
    likelihood: float
    surplus: float
    height_scale: float
    slope_scale: float
    ratio: float
    white: float
    noise_share: float
    height_rms: float
    slope_rms: float
    tilt: float
    converged: bool
    surprise: float = 0.0


def evidence(
    alignment: Alignment,
    source: Surface,
    target: Surface,
    config: ClosureConfig,
    expected: Expectation | None = None,
    every: int = 1,
) -> Evidence | None:
    """The evidence for a pose; None where the maps share too little to tell.

    expected: what was known before; every: cells that are compared, in x and y, at least every second of many
    """
    every = max(every, 2 if alignment.shared > MOST_CELLS else 1)
    over = overlay(alignment, source, target, config, every)
    shared = over.weight > 0.0
    cells = int(shared.sum())
    if cells * every**2 < config.min_cells:
        return None
    over = cropped(over, shared)
    shared = over.weight > 0.0
    slope_residual = np.sum((over.source_slope - over.target_slope) ** 2, axis=0)
    height_scale = unit_variance(over.residual[shared] ** 2 / over.variance[shared], 1)
    slope_scale = unit_variance(slope_residual[shared] / over.slope_variance[shared], 2)
    w = trusted_weight(over, slope_scale)
    a, b = compared(over, config)
    blur = config.detail_cells / every
    bands = [likeness(w, a, b), likeness(w, without_trend(w, a, blur), without_trend(w, b, blur))]
    evidences = [likelihood(rho, n) for rho, n in bands]
    radius = 0.5 * (source.radius + target.radius)
    surprise = surprise_of(alignment, target, expected) if expected else 0.0
    surplus = []
    for value, (_, n) in zip(evidences, bands, strict=True):
        each = cells * every**2 / max(n, 1e-9)
        chance = log_poses(radius, each)
        if expected:
            chance = min(chance, expected.log_poses(surprise, radius, max(each, 1.0)))
        surplus.append(value - chance)
    best = int(np.argmax(surplus))
    total = float(over.weight.sum())
    return Evidence(
        overlap=total * every**2 / min(source.area, target.area),
        cells=cells,
        coherence=bands[0][0],
        detail_coherence=bands[1][0],
        independent=bands[0][1],
        detail_independent=bands[1][1],
        likelihood=evidences[best],
        surplus=surplus[best],
        height_scale=height_scale,
        slope_scale=slope_scale,
        ratio=slope_scale / height_scale,
        white=independent(w, over.residual[None]),
        noise_share=noise_share(over, slope_scale),
        height_rms=float(np.sqrt(np.sum(over.weight * over.residual**2) / total)),
        slope_rms=float(np.sqrt(np.sum(over.weight * slope_residual) / total)),
        tilt=float(np.rad2deg(np.hypot(alignment.R[0, 2], alignment.R[1, 2]))),
        converged=alignment.converged,
        surprise=surprise,
    )


def octaves(
    alignment: Alignment, found: Evidence, source: Surface, target: Surface, config: ClosureConfig
) -> Array:
    """(OCTAVES + 1, 2) rho and n of the slopes coarser than `detail_cells`, of each octave below, and of the rest."""
    every = 2 if alignment.shared > MOST_CELLS else 1
    over = overlay(alignment, source, target, config, every)
    over = cropped(over, over.weight > 0.0)
    w = trusted_weight(over, found.slope_scale)
    inside = w > 0.0
    a, b = compared(over, config)
    out = []
    for octave in range(OCTAVES):
        blur = config.detail_cells / every / 2.0**octave
        finer_a, finer_b = without_trend(w, a, blur), without_trend(w, b, blur)
        out.append(likeness(w, np.where(inside, a - finer_a, 0.0), np.where(inside, b - finer_b, 0.0)))
        a, b = finer_a, finer_b
    return np.array([*out, likeness(w, a, b)])


def worse_by(rival: Array, best: Array) -> float:
    """z: how much worse a rival fits than the best pose, in standard deviations of what chance does. From `octaves`."""
    left = [np.log1p(-np.minimum(np.maximum(pose[:, 0], 0.0) ** 2, 1.0 - 1e-6)) for pose in (rival, best)]
    n = np.minimum(rival[:, 1], best[:, 1])
    return float(np.sum(0.5 * n * (left[0] - left[1])) / np.sqrt(max(n.sum(), 1.0)))


def trusted_weight(over: Overlay, slope_scale: float) -> Array:
    """The weights with which slopes are compared: less where noise is more than relief."""
    relief = 0.5 * (spread(over.weight, over.source_slope) + spread(over.weight, over.target_slope))
    noise = slope_scale * over.slope_variance
    return np.where(over.weight > 0.0, over.weight / (1.0 + noise / max(relief, 1e-12)), 0.0)


def surprise_of(alignment: Alignment, target: Surface, expected: Expectation) -> float:
    """Squared Mahalanobis distance of a pose from what was expected."""
    x, y = alignment.t[:2] - target.centre
    return float(expected.distances(x, y, np.float64(alignment.yaw)))


def spread(w: Array, slope: Array) -> float:
    """Weighted variance of a slope field (2, rows, columns), mean of both components."""
    mean = np.sum(w * slope, axis=(1, 2)) / w.sum()
    return float(0.5 * (np.sum(w * np.sum(slope**2, axis=0)) / w.sum() - mean @ mean))


def noise_share(over: Overlay, slope_scale: float) -> float:
    """Noise over noise plus relief of the slopes, where they are known best (weights 1 / variance)."""
    shared = over.weight > 0.0
    precision = np.where(shared, over.weight / np.where(shared, over.slope_variance, 1.0), 0.0)
    noise = slope_scale * float(over.weight.sum() / precision.sum())
    both = spread(precision, over.source_slope) + spread(precision, over.target_slope)
    return noise / max(both, 1e-12)


def log_poses(radius: float, cells_each: float) -> float:
    """log M: independent poses of a search over maps of this radius, with so many cells to an independent one."""
    each = max(cells_each, 1.0)
    yaws = max(2.0 * np.pi * radius / np.sqrt(each), 1.0)
    shifts = max(np.pi * (SHIFTS * radius) ** 2 / each, 1.0)
    return float(np.log(yaws * shifts))


def compared(over: Overlay, config: ClosureConfig) -> tuple[Array, Array]:
    """The fields (C, rows, columns) whose likeness is tested: slopes, or heights where gradients are left out."""
    if config.use_gradient:
        return over.source_slope, over.target_slope
    height = over.points[2]
    return height[None], (height - over.residual)[None]


def cropped(over: Overlay, shared: NDArray[np.bool_]) -> Overlay:
    """The part of the lattice that holds the shared cells."""
    rows, columns = np.flatnonzero(shared.any(1)), np.flatnonzero(shared.any(0))
    box = np.s_[..., rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return Overlay(*(getattr(over, name)[box] for name in Overlay.__dataclass_fields__))


def likeness(w: Array, a: Array, b: Array) -> tuple[float, float]:
    """rho and n of two fields (C, rows, columns) with weights w (rows, columns)."""
    a, b = centred(w, a), centred(w, b)
    energy_a, energy_b = np.sum(a * a, axis=0, dtype=np.float64), np.sum(b * b, axis=0, dtype=np.float64)
    product = float(energy_a.sum() * energy_b.sum())
    if product <= 0.0:
        return 0.0, 0.0
    shape = padded(w)
    cross = np.sum(np.conj(fft.rfft2(a, s=shape)) * fft.rfft2(b, s=shape), axis=0)
    cells = int(np.count_nonzero(w))
    together = float(np.sum(energy_a * energy_b)) * cells
    concentration = min(1.0, 2.0 * product / together) if together > 0.0 else 0.0
    rho = float(np.sum(a * b, dtype=np.float64)) / np.sqrt(product)
    return float(np.clip(rho, -1.0, 1.0)), cells * product / energy(cross, shape) * concentration


def independent(w: Array, a: Array) -> float:
    """Independent cells of a field (C, rows, columns) with weights w, from its autocorrelation; 0 for a constant.

    Correlations by chance count as well, so that white noise has half of its cells.
    """
    a = centred(w, a)
    total = float(np.sum(a * a, dtype=np.float64))
    if total <= 0.0:
        return 0.0
    shape = padded(w)
    power = np.sum(np.abs(fft.rfft2(a, s=shape)) ** 2, axis=0)
    return int(np.count_nonzero(w)) * total**2 / energy(power, shape)


def centred(w: Array, a: Array) -> NDArray[np.float32]:
    """A field (C, rows, columns) less its mean, times the root of its weights."""
    return (np.sqrt(w) * (a - np.sum(w * a, axis=(1, 2), keepdims=True) / w.sum())).astype(np.float32)


def padded(w: Array) -> list[int]:
    """Shape of a transform in which no shift wraps around."""
    return [fft.next_fast_len(2 * size, real=True) for size in w.shape]


def energy(spectrum: NDArray[np.inexact], shape: list[int]) -> float:
    """Sum of squares of the field with this half spectrum (Parseval)."""
    # all columns but the first (and an even last one) stand for two
    twice = np.full(spectrum.shape[1], 2.0)
    twice[0] = 1.0
    if shape[1] % 2 == 0:
        twice[-1] = 1.0
    return float(np.sum(twice * np.abs(spectrum).astype(np.float64) ** 2)) / (shape[0] * shape[1])


def without_trend(w: Array, a: Array, blur: float) -> Array:
    """The fields less their weighted mean over `blur` cells."""
    total = np.maximum(gaussian_filter(w, blur, mode="constant", truncate=3.0), 1e-9)
    trend = [gaussian_filter(w * part, blur, mode="constant", truncate=3.0) / total for part in a]
    return np.where(w > 0.0, a - np.stack(trend), 0.0)


def likelihood(rho: float, n: float) -> float:
    """L; 0 for an anticorrelation."""
    return -0.5 * n * float(np.log1p(-min(max(rho, 0.0) ** 2, 1.0 - 1e-6)))


def unit_variance(squared: Array, dimensions: int) -> float:
    """Scale of multivariate Student's t from squared normalised residuals (N,), by EM."""
    scale = float(np.mean(squared)) / dimensions
    for _ in range(EM_STEPS):
        if scale <= 0.0:
            return float(np.finfo(float).tiny)
        scale = float(np.mean((NU + dimensions) / (NU + squared / scale) * squared)) / dimensions
    return scale


def terms(found: Evidence, config: ClosureConfig, repeats: float = 0.0) -> Array:
    """(4,) what the probability depends on: log ratio, surplus, log n_z, log 1/s, none beyond where it says more.

    repeats: nats that a wrong pose reaches beyond chance on this ground
    """
    ratio = np.log(min(max(found.ratio, 1e-12), MOST_RATIO)) if compares_scales(config) else 0.0
    surplus = min(found.surplus - repeats, ENOUGH_NATS)
    white = np.log(min(max(found.white, 1.0), MANY_CELLS) / FEW_CELLS)
    return np.array([ratio, surplus, white, np.log(SOME_NOISE / max(found.noise_share, LEAST_NOISE))])


def log_odds(found: Evidence, config: ClosureConfig, repeats: float = 0.0) -> float:
    """log of P(right) / P(wrong) of one pose, before others are considered."""
    return float(INTERCEPT + WEIGHTS @ terms(found, config, repeats))


def standing(found: Evidence, config: ClosureConfig) -> float:
    """By which the best of several poses is chosen: here more evidence always counts for more."""
    return log_odds(found, config) + float(WEIGHTS[1]) * max(found.surplus - ENOUGH_NATS, 0.0)


def objection(found: Evidence, config: ClosureConfig) -> str:
    """Why a pose can't be accepted whatever its probability; empty where nothing speaks against it."""
    needed = OF_SEARCHED * config.min_overlap
    if found.overlap < needed:
        return f"too little overlap: {found.overlap:.1%} of the smaller map, {needed:.1%} is needed"
    if not found.converged:
        return "the refinement did not converge: the surfaces do not lie on each other"
    if compares_scales(config) and found.ratio < LEAST_RATIO:
        return f"the heights disagree {1.0 / found.ratio:.1f} times more than the slopes: different forms"
    if found.surplus <= NATS_PER_NOISE * found.noise_share:
        return "no better than chance: the best of as many unrelated poses would fit as well"
    if found.tilt > TILT_LIMIT * config.tilt_std:
        return f"the maps fit only if one is tilted by {found.tilt:.1f} deg: their frames are gravity-aligned"
    if found.surprise > BELIEVED:
        return f"{np.sqrt(found.surprise):.1f} standard deviations away from where the prior expects it"
    return ""


def compares_scales(config: ClosureConfig) -> bool:
    """Whether the two scales can be compared: they need slopes, and variances that give both their units."""
    return config.use_gradient and config.use_variance
