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
from numba import njit
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
from gpgmap_ros.closure.surface import (
    HEIGHT,
    HEIGHT_VARIANCE,
    SLOPE_X,
    SLOPE_Y,
    WEIGHT,
    Field,
    Surface,
)

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
        t = t + np.array(
            [0.0, 0.0, height_step(source.fields, target.fields, source.centre, start.R, t, every)]
        )
    R, t, centre, (scale, shared, taken, moved) = descend(
        source.fields, target.fields, source.centre, np.ascontiguousarray(start.R), t, start.centre, scale, every,
        config.use_variance, tilt_information(config, every), source.radius, steps,
    )  # fmt: skip
    return Alignment(R, t, centre, scale, shared * every**2, start.steps + int(taken), bool(moved < SETTLED))


def tilt_information(config: ClosureConfig, every: int) -> float:
    """Of the prior on roll and pitch. The sum over cells counts each as independent; the prior must weigh as much
    against it as against the truth."""
    return float(INDEPENDENT_EVERY**2 / every**2 * np.deg2rad(config.tilt_std) ** -2.0)


@njit(inline="always")
def normal_equations(  # type: ignore[no-untyped-def]
    a, b, source_centre, R, t, centre, scale, every, variances, H, g, total
):  # pragma: no cover
    """H (6, 6) and g (6,) of H step = g over (x, y, z, roll, pitch, yaw) about `centre`; total (6,).

    total: shared weight, cells, lambda, middle of the shared cells (3,)
    scale: lambda of the step before; 0 asks for a first one, and weights by the variances alone.
    """
    H[:] = 0.0
    g[:] = 0.0
    total[:] = 0.0
    J = np.zeros(6)
    for i in range(0, a.shape[1], every):
        for j in range(0, a.shape[2], every):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, a[HEIGHT, i, j], source_centre, R, t)
            if not covered(qx, qy, b):
                continue
            ax, ay = turned_slope(R, a[SLOPE_X, i, j], a[SLOPE_Y, i, j])
            gx, gy = 0.5 * (ax + between(qx, qy, b, SLOPE_X)), 0.5 * (ay + between(qx, qy, b, SLOPE_Y))
            r = qz - height_between(qx, qy, b)
            variance = (
                a[HEIGHT_VARIANCE, i, j] + between(qx, qy, b, HEIGHT_VARIANCE) if variances else 1.0
            ) + FLOOR
            squared = r * r / variance
            trust = (NU + 1.0) / (NU + squared / scale) if scale > 0.0 else 1.0
            weight = a[WEIGHT, i, j] * between(qx, qy, b, WEIGHT)
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


@compiled()
def descend(
    a: Field, b: Field, source_centre: Array, R: Array, t: Array, centre: Array, scale: float, every: int,
    variances: bool, tilt_information: float, radius: float, steps: int,
) -> tuple[Array, Array, Array, tuple[float, float, int, float]]:  # fmt: skip # pragma: no cover
    """R, t, centre after at most `steps` steps; lambda, shared weight, steps taken, motion in the last one (cells)."""
    R, t, centre = R.copy(), t.copy(), centre.copy()
    H, g, total = np.empty((6, 6)), np.empty(6), np.empty(6)
    step, last = np.empty(6), np.zeros(6)
    arm = np.empty(3)
    shared, taken, moved = 0.0, 0, np.inf
    for _ in range(steps):
        normal_equations(a, b, source_centre, R, t, centre, scale, every, variances, H, g, total)
        shared, scale = total[0], max(total[2], 1e-12)
        if total[1] < FEWEST_CELLS:
            moved = np.inf
            break
        roll, pitch = -R[1, 2], R[0, 2]
        H[3, 3] += tilt_information
        H[4, 4] += tilt_information
        g[3] -= tilt_information * roll
        g[4] -= tilt_information * pitch
        for m in range(6):
            # The second part holds what nothing else does, as on a frozen lake; H[2, 2] is the weight of all cells.
            H[m, m] += 1e-6 * H[m, m] + 1e-9 * H[2, 2]
        back = 0.0  # last' H step
        for m in range(6):
            back += last[m] * g[m]
        solve_definite(H, g, step)
        length = np.hypot(step[0], step[1])
        shorter = LONGEST_STEP / length if length > LONGEST_STEP else 1.0
        moved = shorter * (length + np.sqrt(step[3] ** 2 + step[4] ** 2 + step[5] ** 2) * radius)
        if back < 0.0:  # back to where it came from: the answer lies between
            shorter *= 0.5
        for m in range(6):
            step[m] *= shorter
            last[m] = step[m]
        turn = rotation(step[3:])
        for m in range(3):
            arm[m] = t[m] - centre[m]
        for m in range(3):
            t[m] = centre[m] + step[m] + turn[m, 0] * arm[0] + turn[m, 1] * arm[1] + turn[m, 2] * arm[2]
        for n in range(3):
            for m in range(3):
                arm[m] = R[m, n]
            for m in range(3):
                R[m, n] = turn[m, 0] * arm[0] + turn[m, 1] * arm[1] + turn[m, 2] * arm[2]
        for m in range(3):
            centre[m] = total[3 + m]
        taken += 1
        if moved < ENOUGH:
            break
    return R, t, centre, (scale, shared, taken, moved)


@njit(inline="always")
def solve_definite(H, g, x):  # type: ignore[no-untyped-def] # pragma: no cover
    """x = H^-1 g of a positive definite matrix by H = L D L'; H and g are used up.

    Not numpy's solver: that one brings code for copies and error messages along, and all of it would be compiled.
    """
    n = g.size
    for k in range(n):
        for i in range(k + 1, n):
            ratio = H[i, k] / H[k, k]
            g[i] -= ratio * g[k]
            for j in range(i, n):
                H[i, j] -= ratio * H[k, j]
                H[j, i] = H[i, j]
    for k in range(n - 1, -1, -1):
        x[k] = g[k]
        for j in range(k + 1, n):
            x[k] -= H[k, j] * x[j]
        x[k] /= H[k, k]


@compiled()
def height_step(
    a: Field, b: Field, source_centre: Array, R: Array, t: Array, every: int
) -> float:  # pragma: no cover
    """Median height of the target over the source, in cells, from the nearest cells; 0 where they share nothing."""
    _, ny, nx = b.shape
    steps = np.empty(a.shape[1] * a.shape[2])
    count = 0
    for i in range(0, a.shape[1], every):
        for j in range(0, a.shape[2], every):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, a[HEIGHT, i, j], source_centre, R, t)
            x, y = round(qx), round(qy)
            if x < 0 or y < 0 or x >= nx or y >= ny or b[WEIGHT, y, x] <= 0.0:
                continue
            steps[count] = b[HEIGHT, y, x] - qz
            count += 1
    if count == 0:
        return 0.0
    upper = smallest(steps, count, count // 2)
    if count % 2:
        return upper
    lower = steps[0]  # what is smaller now stands before it
    for k in range(1, count // 2):
        lower = max(lower, steps[k])
    return 0.5 * (lower + upper)


@njit(inline="always")
def smallest(values, count, rank):  # type: ignore[no-untyped-def] # pragma: no cover
    """The value of this rank, from 0, of the first `count`; none before it is larger afterwards (Hoare's selection)."""
    first, last = 0, count - 1
    while first < last:
        pivot = values[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            last = j
        elif rank >= i:
            first = i
        else:
            break
    return values[rank]
