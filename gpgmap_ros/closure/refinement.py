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

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.search import Candidate
from gpgmap_ros.closure.surface import Field, Surface

Array = NDArray[np.float64]

NU = 4.0
"""Degrees of freedom of Student's t."""
FLOOR = 1e-7
"""Variance, in cells squared, that is added to every cell: maps of exact data have none of their own."""
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
        t = t + np.array([0.0, 0.0, height_step(start.R, t, source, target, every)])
    # The sum over cells counts each as independent; the prior must weigh as much against it as against the truth.
    information = INDEPENDENT_EVERY**2 / every**2 * np.deg2rad(config.tilt_std) ** -2.0
    R, t, centre, (scale, shared, taken, moved) = descend(
        *heights(source), *heights(target), source.centre, start.R, t, start.centre, scale, every,
        config.use_variance, information, source.radius, steps,
    )  # fmt: skip
    return Alignment(R, t, centre, scale, shared * every**2, start.steps + int(taken), bool(moved < SETTLED))


def heights(surface: Surface) -> tuple[Field, ...]:
    return surface.weight, surface.height, surface.slope_x, surface.slope_y, surface.height_variance


@njit(cache=True, nogil=True)
def covered(x: float, y: float, w: Field) -> bool:  # pragma: no cover
    """Whether (x, y) lies between four cells of positive weight."""
    ny, nx = w.shape
    if not (x >= 0.0 and y >= 0.0 and x <= nx - 1 and y <= ny - 1):
        return False
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    return w[iy, ix] > 0.0 and w[iy, ix + 1] > 0.0 and w[iy + 1, ix] > 0.0 and w[iy + 1, ix + 1] > 0.0


@njit(cache=True, nogil=True)
def between(x: float, y: float, field: Field) -> float:  # pragma: no cover
    """Bilinear interpolation."""
    ny, nx = field.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    low = (1.0 - fx) * field[iy, ix] + fx * field[iy, ix + 1]
    high = (1.0 - fx) * field[iy + 1, ix] + fx * field[iy + 1, ix + 1]
    return (1.0 - fy) * low + fy * high


@njit(cache=True, nogil=True)
def height_between(x: float, y: float, z: Field, gx: Field, gy: Field) -> float:  # pragma: no cover
    """Sum of bilinear shares of z_ij + (x - x_ij) . g_ij / 2: exact for a quadratic surface."""
    ny, nx = z.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    height = 0.0
    for a in range(2):
        for b in range(2):
            share = (fy if a else 1.0 - fy) * (fx if b else 1.0 - fx)
            i, j = iy + a, ix + b
            height += share * (z[i, j] + 0.5 * ((fx - b) * gx[i, j] + (fy - a) * gy[i, j]))
    return height


@njit(cache=True, nogil=True)
def turned_slope(R: Array, gx: float, gy: float) -> tuple[float, float]:  # pragma: no cover
    """Slope of a surface after its normal (-g, 1) is turned by R."""
    n_x = -R[0, 0] * gx - R[0, 1] * gy + R[0, 2]
    n_y = -R[1, 0] * gx - R[1, 1] * gy + R[1, 2]
    n_z = max(-R[2, 0] * gx - R[2, 1] * gy + R[2, 2], 1e-3)
    return -n_x / n_z, -n_y / n_z


@njit(cache=True, nogil=True)
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
            px, py, pz = j - source_centre[0], i - source_centre[1], z_a[i, j]
            qx = R[0, 0] * px + R[0, 1] * py + R[0, 2] * pz + t[0]
            qy = R[1, 0] * px + R[1, 1] * py + R[1, 2] * pz + t[1]
            if not covered(qx, qy, w_b):
                continue
            qz = R[2, 0] * px + R[2, 1] * py + R[2, 2] * pz + t[2]
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


@njit(cache=True, nogil=True)
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
            w_a,
            z_a,
            gx_a,
            gy_a,
            v_a,
            w_b,
            z_b,
            gx_b,
            gy_b,
            v_b,
            source_centre,
            R,
            t,
            centre,
            scale,
            every,
            variances,
        )
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
            H[m, m] *= 1.0 + 1e-6
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


@njit(cache=True, nogil=True)
def rotation(omega: Array) -> Array:  # pragma: no cover
    """exp of the rotation vector (3,): I + sin(a)/a K + (1 - cos(a))/a^2 K^2 (Rodrigues)."""
    angle2 = np.sum(omega**2)
    angle = np.sqrt(angle2)
    s, c = (np.sin(angle) / angle, (1.0 - np.cos(angle)) / angle2) if angle > 1e-6 else (1.0, 0.5)
    K = np.array([[0.0, -omega[2], omega[1]], [omega[2], 0.0, -omega[0]], [-omega[1], omega[0], 0.0]])
    return np.eye(3) + s * K + c * np.dot(K, K)


def height_step(R: Array, t: Array, source: Surface, target: Surface, every: int) -> float:
    """Median height of the target over the source, in cells; 0 where they share nothing."""
    rows, columns = np.nonzero(source.weight > 0.0)
    rows, columns = rows[::every], columns[::every]
    p = np.stack([columns - source.centre[0], rows - source.centre[1], source.height[rows, columns]])
    q = R @ p + t[:, None]
    x, y = np.rint(q[:2]).astype(int)
    ny, nx = target.weight.shape
    inside = (x >= 0) & (y >= 0) & (x < nx) & (y < ny)
    x, y, z = x[inside], y[inside], q[2, inside]
    both = target.weight[y, x] > 0.0
    return float(np.median(target.height[y, x][both] - z[both])) if both.any() else 0.0


@dataclass(frozen=True)
class Overlay:
    """Both surfaces on the source's lattice, in units of cells; 0 where they share nothing.

    weight: w_A w_B; residual: height of source minus target; variance: v_A + v_B of the heights
    source_slope, target_slope: (2, rows, columns), the source's turned into the target's frame
    slope_variance: u_A + u_B
    points: (3, rows, columns) where the source's cells lie in the target
    """

    weight: Array
    residual: Array
    variance: Array
    source_slope: Array
    target_slope: Array
    slope_variance: Array
    points: Array


def overlay(
    alignment: Alignment, source: Surface, target: Surface, config: ClosureConfig, every: int = 1
) -> Overlay:
    """What the two maps say about the cells they share, on every `every`-th cell of the source in x and y."""
    out = overlaid(
        *heights(source), source.slope_variance, *heights(target), target.slope_variance,
        source.centre, alignment.R, alignment.t, every, config.use_variance,
    )  # fmt: skip
    return Overlay(out[0], out[1], out[2], out[3:5], out[5:7], out[7], out[8:11])


@njit(cache=True, nogil=True)
def overlaid(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field, u_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field, u_b: Field,
    source_centre: Array, R: Array, t: Array, every: int, variances: bool,
) -> Array:  # fmt: skip # pragma: no cover
    """(11, rows, columns): the fields of an Overlay in order."""
    ny, nx = w_a.shape
    out = np.zeros((11, (ny + every - 1) // every, (nx + every - 1) // every))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            i, j = row * every, column * every
            if w_a[i, j] <= 0.0:
                continue
            px, py, pz = j - source_centre[0], i - source_centre[1], z_a[i, j]
            qx = R[0, 0] * px + R[0, 1] * py + R[0, 2] * pz + t[0]
            qy = R[1, 0] * px + R[1, 1] * py + R[1, 2] * pz + t[1]
            if not covered(qx, qy, w_b):
                continue
            qz = R[2, 0] * px + R[2, 1] * py + R[2, 2] * pz + t[2]
            out[0, row, column] = w_a[i, j] * between(qx, qy, w_b)
            out[1, row, column] = qz - height_between(qx, qy, z_b, gx_b, gy_b)
            out[2, row, column] = (v_a[i, j] + between(qx, qy, v_b) if variances else 1.0) + FLOOR
            out[3, row, column], out[4, row, column] = turned_slope(R, gx_a[i, j], gy_a[i, j])
            out[5, row, column], out[6, row, column] = between(qx, qy, gx_b), between(qx, qy, gy_b)
            out[7, row, column] = (u_a[i, j] + between(qx, qy, u_b) if variances else 1.0) + FLOOR
            out[8, row, column], out[9, row, column], out[10, row, column] = qx, qy, qz
    return out


def promise(
    alignment: Alignment, source: Surface, target: Surface, config: ClosureConfig, every: int
) -> float:
    """A quick guess at what a pose will turn out to be worth: likelihood of its slopes, less where heights disagree.

    -(shared cells) log(1 - rho^2) min(1, lambda_g / lambda_z),   0 where too little is shared.
    """
    total = likeness_sums(
        *heights(source), source.slope_variance, *heights(target), target.slope_variance,
        source.centre, alignment.R, alignment.t, every, config.use_variance,
    )  # fmt: skip
    shared, a, b, energy_a, energy_b, product, chi_z, chi_g = total[0], *total[1:5].reshape(2, 2), *total[5:]
    if shared * every**2 < config.min_overlap * min(source.area, target.area):
        return 0.0
    product -= a @ b / shared
    energies = (energy_a - a @ a / shared) * (energy_b - b @ b / shared)
    if product <= 0.0 or energies <= 0.0:
        return 0.0
    rho2 = min(product**2 / energies, 0.9999)
    return float(-shared * np.log1p(-rho2) * min(1.0, 0.5 * chi_g / max(chi_z, 1e-12)))


@njit(cache=True, nogil=True)
def likeness_sums(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field, u_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field, u_b: Field,
    source_centre: Array, R: Array, t: Array, every: int, variances: bool,
) -> Array:  # fmt: skip # pragma: no cover
    """(10,) weighted sums over the shared cells: 1, a (2), b (2), |a|^2, |b|^2, a . b, r_z^2 / v, |r_g|^2 / u."""
    ny, nx = w_a.shape
    total = np.zeros(10)
    for i in range(0, ny, every):
        for j in range(0, nx, every):
            if w_a[i, j] <= 0.0:
                continue
            px, py, pz = j - source_centre[0], i - source_centre[1], z_a[i, j]
            qx = R[0, 0] * px + R[0, 1] * py + R[0, 2] * pz + t[0]
            qy = R[1, 0] * px + R[1, 1] * py + R[1, 2] * pz + t[1]
            if not covered(qx, qy, w_b):
                continue
            qz = R[2, 0] * px + R[2, 1] * py + R[2, 2] * pz + t[2]
            w = w_a[i, j] * between(qx, qy, w_b)
            r = qz - height_between(qx, qy, z_b, gx_b, gy_b)
            ax, ay = turned_slope(R, gx_a[i, j], gy_a[i, j])
            bx, by = between(qx, qy, gx_b), between(qx, qy, gy_b)
            v = (v_a[i, j] + between(qx, qy, v_b) if variances else 1.0) + FLOOR
            u = (u_a[i, j] + between(qx, qy, u_b) if variances else 1.0) + FLOOR
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
