"""From a coarse pose to a fraction of a cell: Gauss-Newton on heights, weighted by both maps' variances.

A source cell p is transformed to q = R p + t, and its height there must be the target's, up to noise:

    r = q_z - z_B(q_x, q_y)  ~  t_nu(0, lambda (v_A + v_B)),

with v the GP variances of height. lambda is the variance of unit weight: the GP does not know what its kernel can't
follow, and the pair itself tells by how much its variances are too small. Student's t instead of the Gaussian keeps a
rock that moved, or the rim of a hole, from pulling the pose. lambda and the weights of the cells follow by EM (Lange,
Little & Taylor, 1989), the pose by Gauss-Newton with the tangents of both surfaces (Malis, 2004); roll and pitch have a
Gaussian prior. Slopes stay out of the fit, so that verification can use them as independent evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p
from typing import NamedTuple

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.cell_comparison import MapPair, compare_cell, transform_cell
from gpgmap_ros.closure.registration.inlined_algorithms import select_rank, solve_definite
from gpgmap_ros.closure.registration.registration_map import HEIGHT, WEIGHT, RegistrationMap
from gpgmap_ros.closure.registration.search import PoseCandidate, absolute_angle

NU = 4.0
"""Degrees of freedom of Student's t."""
MIN_MOTION = 2e-3
"""A step that moves no cell by more than this, in cells, is the last."""
MAX_STEP = 2.0
"""In cells: a step beyond the width of a form is not to be believed."""
MIN_SHARED_CELLS = 12
"""Fewer shared cells than that do not hold six parameters."""
MAX_LAST_MOTION = 0.25
"""The fit has converged if the last step moved no cell by more than this: cells that enter and leave what is shared
can keep a good pose swaying by a little for ever, with steps that are halved each time."""
INDEPENDENT_STRIDE = 5.0
"""Cells between independent heights, roughly: a GP's errors are as smooth as its kernel."""
COARSE_CELLS, COARSE_STEPS = 20, 8
"""Candidates are first refined on so many cells across the smaller map, and for so many steps."""
SAME_CELLS, SAME_YAW = 3.0, np.deg2rad(5.0)
"""Refined poses closer than this are one pose."""


@dataclass(frozen=True)
class Alignment:
    """A pose, in units of cells.

    R, t: q = R (p - source centre) + t, from source cells (height over its base) to target cells (likewise)
    centre: (3,) weighted middle of the shared cells, in the target; perturbations are taken about it
    scale: lambda, variance of unit weight of the heights; 0 before any step
    shared: sum of w_A w_B over the shared cells
    steps: of Gauss-Newton so far; converged: whether the last one was small
    """

    R: Array
    t: Array
    centre: Array
    scale: float = 0.0
    shared: float = 0.0
    steps: int = 0
    converged: bool = False

    @property
    def yaw(self) -> float:
        return float(np.arctan2(self.R[1, 0] - self.R[0, 1], self.R[0, 0] + self.R[1, 1]))


class Pose(NamedTuple):
    """q = R (p - source centre) + t; centre: (3,) about which perturbations are taken, in the target."""

    R: Array
    t: Array
    centre: Array


class FitOptions(NamedTuple):
    """scale: lambda to begin with, 0 where it is not known; steps: at most so many
    tilt_information: of the prior on roll and pitch; radius: of the source, cells."""

    scale: float
    steps: int
    tilt_information: float
    radius: float


def make_alignment(candidate: PoseCandidate, target: RegistrationMap) -> Alignment:
    """A candidate as an alignment without tilt, the heights not yet adjusted."""
    t = np.array([*(target.centre + candidate.shift), 0.0])
    return Alignment(rotation_matrix(np.array([0.0, 0.0, candidate.yaw])), t, t)


def refine(
    start: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    stride: int = 1,
    steps: int = 20,
) -> Alignment:
    """The pose after at most `steps` steps of Gauss-Newton from `start`, on every `stride`-th cell in x and y."""
    maps = MapPair(source.fields, target.fields, source.centre, stride, config.use_variance)
    t = start.t
    if start.scale <= 0.0:
        t = t + np.array([0.0, 0.0, median_height_offset(maps, start.R, t)])
    options = FitOptions(start.scale, steps, tilt_information(config, stride), source.radius)
    R, t, centre, (scale, shared, taken, moved) = descend(
        maps, Pose(np.ascontiguousarray(start.R), t, start.centre), options
    )
    converged = bool(moved < MAX_LAST_MOTION)
    return Alignment(R, t, centre, scale, shared * stride**2, start.steps + int(taken), converged)


def tilt_information(config: ClosureConfig, stride: int) -> float:
    """Of the prior on roll and pitch. The sum over cells counts each as independent; the prior must weigh as much
    against it as against the truth."""
    return float(INDEPENDENT_STRIDE**2 / stride**2 * np.deg2rad(config.tilt_std) ** -2.0)


def coarse_stride(source: RegistrationMap, target: RegistrationMap, cells: int) -> int:
    """Stride at which a fit visits about so many cells across the smaller map, at least every second."""
    return max(2, round(float(np.sqrt(min(source.area, target.area))) / cells))


def fit_coarsely(
    candidate: PoseCandidate, source: RegistrationMap, target: RegistrationMap, config: ClosureConfig
) -> tuple[float, Alignment]:
    """A candidate refined on few cells and for a few steps, after its value by `estimate_value`."""
    stride = coarse_stride(source, target, COARSE_CELLS)
    pose = refine(make_alignment(candidate, target), source, target, config, stride, COARSE_STEPS)
    return estimate_value(pose, source, target, config, stride), pose


def estimate_value(
    alignment: Alignment, source: RegistrationMap, target: RegistrationMap, config: ClosureConfig, stride: int
) -> float:
    """A quick estimate of the evidence for a pose: likelihood of its slopes, less where heights disagree.

    -(shared cells) log(1 - rho^2) min(1, lambda_g / lambda_z),   0 where too little is shared.
    """
    maps = MapPair(source.fields, target.fields, source.centre, stride, config.use_variance)
    total = similarity_sums(maps, alignment.R, alignment.t)
    return value_from_sums(total, stride, config.min_overlap * min(source.area, target.area))


def value_from_sums(total: Array, stride: int, min_shared: float) -> float:
    """The value of `estimate_value` from the sums (10,) of `similarity_sums`; 0 where fewer cells than `min_shared` are
    shared."""
    shared, a_x, a_y, b_x, b_y, energy_a, energy_b, product, chi_z, chi_g = map(float, total)
    if shared <= 0.0 or shared * stride**2 < min_shared:
        return 0.0
    product -= (a_x * b_x + a_y * b_y) / shared
    energies = (energy_a - (a_x * a_x + a_y * a_y) / shared) * (energy_b - (b_x * b_x + b_y * b_y) / shared)
    if product <= 0.0 or energies <= 0.0:
        return 0.0
    rho2 = min(product * product / energies, 0.9999)
    return -shared * log1p(-rho2) * min(1.0, 0.5 * chi_g / max(chi_z, 1e-12))


def remove_duplicates(poses: list[Alignment]) -> list[Alignment]:
    """The poses without those that are the same as one before them."""
    kept: list[Alignment] = []
    for pose in poses:
        if not any(is_same_pose(pose, other) for other in kept):
            kept.append(pose)
    return kept


def is_same_pose(a: Alignment, b: Alignment) -> bool:
    """Whether two refined poses are closer than `SAME_CELLS` and `SAME_YAW`, at the middle of what they share."""
    there = b.R @ (a.R.T @ (a.centre - a.t)) + b.t
    return bool(np.hypot(*(there - a.centre)[:2]) < SAME_CELLS and absolute_angle(a.yaw - b.yaw) < SAME_YAW)


# ------------------------------------------------ compiled loops


@njit(inline="always")
def normal_equations(maps, R, t, centre, scale, H, g, total):  # type: ignore[no-untyped-def] # pragma: no cover
    """H (6, 6) and g (6,) of H step = g over (x, y, z, roll, pitch, yaw) about `centre`; total (6,).

    total: shared weight, cells, lambda, middle of the shared cells (3,)
    scale: lambda of the step before; 0 asks for a first one, and weights by the variances alone.
    """
    H[:] = 0.0
    g[:] = 0.0
    total[:] = 0.0
    J = np.zeros(6)
    a = maps.source
    for i in range(0, a.shape[1], maps.stride):
        for j in range(0, a.shape[2], maps.stride):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            shared, qx, qy, qz, weight, r, ax, ay, bx, by, variance, _ = compare_cell(maps, R, t, i, j)
            if not shared:
                continue
            gx, gy = 0.5 * (ax + bx), 0.5 * (ay + by)
            squared = r * r / variance
            trust = (NU + 1.0) / (NU + squared / scale) if scale > 0.0 else 1.0
            total[0] += weight
            total[1] += 1.0
            total[2] += trust * squared
            total[3] += weight * qx
            total[4] += weight * qy
            total[5] += weight * qz
            dx, dy, dz = qx - centre[0], qy - centre[1], qz - centre[2]
            J[0], J[1], J[2] = -gx, -gy, 1.0
            J[3] = dy + gy * dz
            J[4] = -dx - gx * dz
            J[5] = gx * dy - gy * dx
            factor = trust / (variance * (scale if scale > 0.0 else 1.0))
            for m in range(6):
                g[m] -= factor * J[m] * r
                for n in range(m, 6):
                    H[m, n] += factor * J[m] * J[n]
    for m in range(6):
        for n in range(m):
            H[m, n] = H[n, m]
    if total[1] > 0.0:
        total[2] /= total[1]
        for m in range(3, 6):
            total[m] /= total[0]


@njit(inline="always")
def add_priors(H, g, R, tilt_information):  # type: ignore[no-untyped-def] # pragma: no cover
    """Add the prior on roll and pitch, and a little damping, to the normal equations."""
    roll, pitch = -R[1, 2], R[0, 2]
    H[3, 3] += tilt_information
    H[4, 4] += tilt_information
    g[3] -= tilt_information * roll
    g[4] -= tilt_information * pitch
    for m in range(6):
        # The second part holds what nothing else does, as on a frozen lake; H[2, 2] is the weight of all cells.
        H[m, m] += 1e-6 * H[m, m] + 1e-9 * H[2, 2]


@njit(inline="always")
def apply_step(step, R, t, centre, arm):  # type: ignore[no-untyped-def] # pragma: no cover
    """Move the pose (R, t) in place by a step (6,) about `centre`; arm: (3,) scratch."""
    turn = rotation_matrix(step[3:])
    for m in range(3):
        arm[m] = t[m] - centre[m]
    for m in range(3):
        t[m] = centre[m] + step[m] + turn[m, 0] * arm[0] + turn[m, 1] * arm[1] + turn[m, 2] * arm[2]
    for n in range(3):
        for m in range(3):
            arm[m] = R[m, n]
        for m in range(3):
            R[m, n] = turn[m, 0] * arm[0] + turn[m, 1] * arm[1] + turn[m, 2] * arm[2]


@compiled()
def descend(
    maps: MapPair, start: Pose, options: FitOptions
) -> tuple[Array, Array, Array, tuple[float, float, int, float]]:  # pragma: no cover
    """R, t, centre after Gauss-Newton; lambda, shared weight, steps taken, motion in the last one (cells)."""
    R, t, centre = start.R.copy(), start.t.copy(), start.centre.copy()
    H, g, total = np.empty((6, 6)), np.empty(6), np.empty(6)
    step, last, arm = np.empty(6), np.zeros(6), np.empty(3)
    scale, shared, taken, moved = options.scale, 0.0, 0, np.inf
    for _ in range(options.steps):
        normal_equations(maps, R, t, centre, scale, H, g, total)
        shared, scale = total[0], max(total[2], 1e-12)
        if total[1] < MIN_SHARED_CELLS:
            moved = np.inf
            break
        add_priors(H, g, R, options.tilt_information)
        back = 0.0  # last' H step
        for m in range(6):
            back += last[m] * g[m]
        solve_definite(H, g, step)
        length = np.hypot(step[0], step[1])
        shorter = MAX_STEP / length if length > MAX_STEP else 1.0
        moved = shorter * (length + np.sqrt(step[3] ** 2 + step[4] ** 2 + step[5] ** 2) * options.radius)
        if back < 0.0:  # back to where it came from: the answer lies between
            shorter *= 0.5
        for m in range(6):
            step[m] *= shorter
            last[m] = step[m]
        apply_step(step, R, t, centre, arm)
        for m in range(3):
            centre[m] = total[3 + m]
        taken += 1
        if moved < MIN_MOTION:
            break
    return R, t, centre, (scale, shared, taken, moved)


@compiled()
def median_height_offset(maps: MapPair, R: Array, t: Array) -> float:  # pragma: no cover
    """Median height of the target over the source, in cells, from the nearest cells; 0 where they share nothing."""
    a, b = maps.source, maps.target
    _, ny, nx = b.shape
    offsets = np.empty(a.shape[1] * a.shape[2])
    count = 0
    for i in range(0, a.shape[1], maps.stride):
        for j in range(0, a.shape[2], maps.stride):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            qx, qy, qz = transform_cell(i, j, a[HEIGHT, i, j], maps.source_centre, R, t)
            x, y = round(qx), round(qy)
            if x < 0 or y < 0 or x >= nx or y >= ny or b[WEIGHT, y, x] <= 0.0:
                continue
            offsets[count] = b[HEIGHT, y, x] - qz
            count += 1
    if count == 0:
        return 0.0
    upper = select_rank(offsets, count, count // 2)
    if count % 2:
        return upper  # type: ignore[no-any-return]
    lower = offsets[0]  # what is smaller now stands before it
    for k in range(1, count // 2):
        lower = max(lower, offsets[k])
    return 0.5 * (lower + upper)  # type: ignore[no-any-return]


@compiled()
def rotation_matrix(omega: Array) -> Array:  # pragma: no cover
    """exp of the rotation vector (3,): I + sin(a)/a K + (1 - cos(a))/a^2 K^2 (Rodrigues)."""
    x, y, z = omega[0], omega[1], omega[2]
    angle2 = x * x + y * y + z * z
    angle = np.sqrt(angle2)
    s, c = (np.sin(angle) / angle, (1.0 - np.cos(angle)) / angle2) if angle > 1e-6 else (1.0, 0.5)
    R = np.empty((3, 3))
    R[0, 0], R[0, 1], R[0, 2] = 1.0 - c * (y * y + z * z), c * x * y - s * z, c * x * z + s * y
    R[1, 0], R[1, 1], R[1, 2] = c * x * y + s * z, 1.0 - c * (x * x + z * z), c * y * z - s * x
    R[2, 0], R[2, 1], R[2, 2] = c * x * z - s * y, c * y * z + s * x, 1.0 - c * (x * x + y * y)
    return R


@compiled()
def similarity_sums(maps: MapPair, R: Array, t: Array) -> Array:  # pragma: no cover
    """(10,) weighted sums over the shared cells: 1, a (2), b (2), |a|^2, |b|^2, a . b, r_z^2 / v, |r_g|^2 / u."""
    total = np.zeros(10)
    a = maps.source
    for i in range(0, a.shape[1], maps.stride):
        for j in range(0, a.shape[2], maps.stride):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            shared, _, _, _, w, r, ax, ay, bx, by, v, u = compare_cell(maps, R, t, i, j)
            if not shared:
                continue
            total[0] += w
            total[1] += w * ax
            total[2] += w * ay
            total[3] += w * bx
            total[4] += w * by
            total[5] += w * (ax * ax + ay * ay)
            total[6] += w * (bx * bx + by * by)
            total[7] += w * (ax * bx + ay * by)
            total[8] += w * r * r / v
            total[9] += w * ((ax - bx) ** 2 + (ay - by) ** 2) / u
    return total
