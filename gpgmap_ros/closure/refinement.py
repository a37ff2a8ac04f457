"""From a rough pose to a fraction of a cell: Gauss-Newton on heights, weighted by both maps' variances.

A source cell p lands at q = R p + t, and its height there must be the target's, up to noise:

    r = q_z - z_B(q_x, q_y)  ~  t_nu(0, lambda (v_A + v_B)),

with v the GP variances of height. lambda is the variance of unit weight: the GP does not know what its kernel can't
follow, and the pair itself tells by how much its variances are too small. Student's t instead of the Gaussian keeps a
rock that moved, or the rim of a hole, from pulling the pose. lambda and the weights of the cells follow by EM (Lange,
Little & Taylor, 1989), the pose by Gauss-Newton with the tangents of both surfaces (Malis, 2004); roll and pitch have a
Gaussian prior. Slopes stay out of the fit, and so remain an independent witness of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.interpolation import (
    FLOOR,
    between,
    covered,
    height_between,
    landed,
    rotation,
    turned_slope,
)
from gpgmap_ros.closure.search import Candidate
from gpgmap_ros.closure.surface import Field, Surface

Array = NDArray[np.float64]

NU = 4.0
"""Degrees of freedom of Student's t."""
ENOUGH = 2e-3
"""A step that moves no cell by more than this, in cells, is the last."""
SETTLED = 0.25
"""The fit has converged if the last step moved no cell by more than this: cells that enter and leave what is shared
can keep a good pose swaying by a little for ever, with steps that are halved each time."""
LONGEST_STEP = 2.0
"""In cells: a step beyond the width of a form is not to be believed."""
INDEPENDENT_EVERY = 5.0
"""Cells between independent heights, roughly: a GP's errors are as smooth as its kernel."""
FEWEST_CELLS = 12
"""Fewer shared cells than that do not hold six parameters."""


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


def alignment_of(candidate: Candidate, target: Surface) -> Alignment:
    """A candidate as an alignment without tilt, the heights not yet adjusted."""
    t = np.array([*(target.centre + candidate.shift), 0.0])
    return Alignment(rotation(np.array([0.0, 0.0, candidate.yaw])), t, t)


def refine(
    start: Alignment, source: Surface, target: Surface, config: ClosureConfig, every: int = 1, steps: int = 20
) -> Alignment:
    """Gauss-Newton from `start`, on every `every`-th cell in x and y, at most `steps` steps."""
    t, scale = start.t, start.scale
    if scale <= 0.0:
        step = height_step(
            source.weight, source.height, target.weight, target.height, source.centre, start.R, t, every
        )
        t = t + np.array([0.0, 0.0, step])
    R, t, centre, (scale, shared, taken, moved) = descend(
        *heights(source), *heights(target), source.centre, np.ascontiguousarray(start.R), t, start.centre, scale, every,
        config.use_variance, tilt_information(config, every), source.radius, steps,
    )  # fmt: skip
    return Alignment(R, t, centre, scale, shared * every**2, start.steps + int(taken), bool(moved < SETTLED))


def tilt_information(config: ClosureConfig, every: int) -> float:
    """Of the prior on roll and pitch. The sum over cells counts each as independent; the prior must weigh as much
    against it as against the truth."""
    return float(INDEPENDENT_EVERY**2 / every**2 * np.deg2rad(config.tilt_std) ** -2.0)


def heights(surface: Surface) -> tuple[Field, ...]:
    return surface.weight, surface.height, surface.slope_x, surface.slope_y, surface.height_variance


@compiled()
def normal_equations(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field,
    source_centre: Array, R: Array, t: Array, centre: Array, scale: float, every: int, variances: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip # pragma: no cover
    """H (6, 6) and b (6,) of H step = b over (x, y, z, roll, pitch, yaw) about `centre`; totals (6,).

    totals: shared weight, cells, lambda, middle of the shared cells (3,)
    scale: lambda of the step before; 0 asks for a first one, and weights by the variances alone.
    """
    ny, nx = w_a.shape
    H, b, total = np.zeros((6, 6)), np.zeros(6), np.zeros(6)
    J = np.zeros(6)
    for i in range(0, ny, every):
        for j in range(0, nx, every):
            if w_a[i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, z_a[i, j], source_centre, R, t)
            if not covered(qx, qy, w_b):
                continue
            ax, ay = turned_slope(R, gx_a[i, j], gy_a[i, j])
            gx, gy = 0.5 * (ax + between(qx, qy, gx_b)), 0.5 * (ay + between(qx, qy, gy_b))
            r = qz - height_between(qx, qy, z_b, gx_b, gy_b)
            variance = (v_a[i, j] + between(qx, qy, v_b) if variances else 1.0) + FLOOR
            squared = r * r / variance
            trust = (NU + 1.0) / (NU + squared / scale) if scale > 0.0 else 1.0
            weight = w_a[i, j] * between(qx, qy, w_b)
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
                b[m] -= factor * J[m] * r
                for n in range(m, 6):
                    H[m, n] += factor * J[m] * J[n]
    for m in range(6):
        for n in range(m):
            H[m, n] = H[n, m]
    if total[1] > 0.0:
        total[2] /= total[1]
        total[3:] /= total[0]
    return H, b, total


@compiled()
def descend(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field,
    source_centre: Array, R: Array, t: Array, centre: Array, scale: float, every: int, variances: bool,
    tilt_information: float, radius: float, steps: int,
) -> tuple[Array, Array, Array, tuple[float, float, int, float]]:  # fmt: skip # pragma: no cover
    """R, t, centre after at most `steps` steps; lambda, shared weight, steps taken, motion in the last one (cells)."""
    shared, taken, moved = 0.0, 0, np.inf
    last = np.zeros(6)
    for _ in range(steps):
        H, b, total = normal_equations(
            w_a, z_a, gx_a, gy_a, v_a, w_b, z_b, gx_b, gy_b, v_b,
            source_centre, R, t, centre, scale, every, variances,
        )  # fmt: skip
        shared, scale = total[0], max(total[2], 1e-12)
        if total[1] < FEWEST_CELLS:
            moved = np.inf
            break
        roll, pitch = -R[1, 2], R[0, 2]
        H[3, 3] += tilt_information
        H[4, 4] += tilt_information
        b[3] -= tilt_information * roll
        b[4] -= tilt_information * pitch
        for m in range(6):
            # The second part holds what nothing else does, as on a frozen lake; H[2, 2] is the weight of all cells.
            H[m, m] += 1e-6 * H[m, m] + 1e-9 * H[2, 2]
        step = np.linalg.solve(H, b)
        length = np.hypot(step[0], step[1])
        if length > LONGEST_STEP:
            step *= LONGEST_STEP / length
        moved = np.hypot(step[0], step[1]) + np.sqrt(np.sum(step[3:] ** 2)) * radius
        if np.dot(step, np.dot(H, last)) < 0.0:  # back to where it came from: the answer lies between
            step *= 0.5
        last = step
        turn = rotation(step[3:])
        t = centre + step[:3] + np.dot(turn, t - centre)
        R = np.dot(turn, R)
        centre = total[3:].copy()
        taken += 1
        if moved < ENOUGH:
            break
    return R, t, centre, (scale, shared, taken, moved)


@compiled()
def height_step(
    w_a: Field, z_a: Field, w_b: Field, z_b: Field, source_centre: Array, R: Array, t: Array, every: int
) -> float:  # pragma: no cover
    """Median height of the target over the source, in cells, from the nearest cells; 0 where they share nothing."""
    ny, nx = w_b.shape
    steps = np.empty(w_a.size)
    count = 0
    for i in range(0, w_a.shape[0], every):
        for j in range(0, w_a.shape[1], every):
            if w_a[i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, z_a[i, j], source_centre, R, t)
            x, y = round(qx), round(qy)
            if x < 0 or y < 0 or x >= nx or y >= ny or w_b[y, x] <= 0.0:
                continue
            steps[count] = z_b[y, x] - qz
            count += 1
    return float(np.median(steps[:count])) if count else 0.0
