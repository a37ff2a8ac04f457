"""How maps are bent: the error of a pose that comes from the drift of the odometry inside the two submaps.

A submap is made while odometry drifts. What was seen after a part m of the way is turned about where the robot was then
and shifted, against the submap's frame, which stands where the way began. With c_m(p) the share of cell p that was seen
after that part (a sensor sees as 1 / distance^3), a drift (turn, shift) there displaces the map by

    d_m(p) = c_m(p) (turn x (p - w_m) + shift),        turn ~ N(0, s_r^2 D),  shift ~ N(0, s_p^2 D)

for D metres of way. A displacement d changes the residual of a height by J d (covariance.py). One part of it moves the
pose, by P, the pose that the fit makes of each d, and leaves no residual; the other part bends one surface against the
other, and shows. Both have one amplitude:

    residuals = X pose + tau U theta + noise,     theta ~ N(0, I),     U = (what the pose can't follow of) J d

No c_m(p) is quite right: ridges hide ground from parts of the way. What all of the shared ground was seen after, or
none of it, moves the map as a whole, and is as certain as the drift; in between, the share that was seen after differs
from c by 2 e c (1 - c), alike within a patch of ground and independent between patches. With d' the displacements by
that, and sums over each patch q, this moves the pose by

    tau^2 sum_q sum_m p_qm p_qm',       p_qm = (X' W X)^-1 sum over q of W X J d'_m

where P alone would call some directions, heights above all, known far better than the maps are. The same sums with the
patterns instead of X are what turns and shifts leave in scores besides their own patterns, by which small ones would
seem to show a large tau. The scores of heights are taken as they are: what else changes heights slowly moves z, roll
and pitch just as drift does. bending.py says what the patterns tell about tau.

A map without a way may come from anything that georeferences slowly varying errors. It is taken as driven through its
middle, along both axes, from a frame that stands as far away as it reaches; the amplitude is relative to its size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.overlay import Overlay
from gpgmap_ros.closure.registration.refinement import INDEPENDENT_STRIDE, NU, Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap

NEAR = 0.1
"""Of the way: nearer than this a sensor sees everything alike."""
PARTS = 3
"""Of the way of a map that has none."""
USUAL_WAY = 25.0
"""Metres driven in a submap: the drift of a map of unknown scale and way is what is stated for this."""
PATTERNS = 8
"""Of residuals that bent maps leave, at most."""
SHIFT, ACROSS, UP = 2.0, 0.5, 0.5
"""Of `drift_position` along the way: over the few metres of a submap a factor of scale outweighs what comes and goes.
And of that, across the way and in height, where no scale errs."""
MISMATCH, PATCHES = 0.3, 5
"""e, part of c by which it may be wrong; patches across the shared ground, longer side."""
LARGEST_DRIFT = 1.0
"""tau with which bending is fitted before it is known."""
ALIKE = np.ones((2, 2))
"""Factors of two maps that drift alike."""
STEPS = 4
"""Of that fit, each with new weights of the cells."""


@dataclass(frozen=True)
class Drive:
    """Way of a map in cells of the target: where its drift happens.

    points: (K, 2); step: metres between them; before: drift before the first that counts as well, in steps
    shift, turn: factors on the standard deviations of both
    """

    points: Array
    step: float
    before: float = 0.0
    shift: float = 1.0
    turn: float = 1.0


def drives_of(
    alignment: Alignment, source: RegistrationMap, target: RegistrationMap, factors: Array
) -> list[list[Drive]]:
    """For each map the ways that it may have been made on, in cells of the target.

    factors: (2, 2) of source and target, on standard deviations of shifts and turns
    """

    def to_target(points: Array) -> Array:
        return np.asarray((points - source.centre) @ alignment.R[:2, :2].T + alignment.t[:2])

    of_source = [replace(d, points=to_target(d.points)) for d in ways(source)]
    return [
        [replace(d, shift=float(shift), turn=float(turn)) for d in of_map]
        for of_map, (shift, turn) in zip((of_source, ways(target)), factors, strict=True)
    ]


def ways(map_: RegistrationMap) -> list[Drive]:
    """The way of a map; where there is none, two through its middle."""
    if len(map_.way) > 1:
        step = float(np.hypot(*(map_.way[1] - map_.way[0]))) * map_.resolution
        return [Drive(map_.way, step)]
    reach = 0.7 * map_.radius
    at = np.linspace(-reach, reach, PARTS + 1)[:, None]
    return [
        Drive(map_.centre + at * np.array(axis), USUAL_WAY / PARTS, 0.5 * PARTS)
        for axis in ((1.0, 0.0), (0.0, 1.0))
    ]


def height_changes(
    drive: Drive, points: Array, slope: Array, config: ClosureConfig, doubt: bool = False
) -> Array:
    """(M, rows, columns) changes of the residuals by one standard deviation of every drift on the way, in cells.

    points, slope: (2, rows, columns) of the cells, in the target; doubt: as of `spread_drift`
    """
    w = drive.points
    length = float(np.sum(np.hypot(*np.diff(w, axis=0).T)))
    shift = max(length, 1e-9) / (drive.step * (len(w) - 1))  # metres to cells
    return np.asarray(
        spread_drift(
            np.ascontiguousarray(points),
            np.ascontiguousarray(slope),
            w,
            (NEAR * length) ** 2,
            drive.turn * config.drift_rotation * np.sqrt(drive.step),
            drive.shift * SHIFT * config.drift_position * np.sqrt(drive.step) * shift,
            drive.before,
            doubt,
        )
    )


@compiled()
def spread_drift(
    points: Array,
    slope: Array,
    way: Array,
    near_sq: float,
    turn: float,
    shift: float,
    before: float,
    doubt: bool,
) -> Array:  # pragma: no cover
    """(4 (parts + 1), rows, columns): a turn and shifts along, across and up of each part, then of an error that stays
    the same along the way, as of a wheel's radius, as large at its end as those that come and go.

    before: parts of the way before the first point, together one part more
    doubt: instead of c, 2 c (1 - c): by which share of it c may be wrong
    """
    _, rows, columns = points.shape
    K = len(way)
    first = 1 if before > 0.0 else 0
    parts = K - 1 + first
    out = np.empty((4 * (parts + 1), rows, columns))
    seen, after = np.empty(K), np.empty(parts)
    along = np.empty((K - 1, 2))
    for k in range(K - 1):
        dx, dy = way[k + 1, 0] - way[k, 0], way[k + 1, 1] - way[k, 1]
        length = max(np.sqrt(dx * dx + dy * dy), 1e-9)
        along[k, 0], along[k, 1] = dx / length, dy / length
    root = np.sqrt(parts)
    for i in range(rows):
        for j in range(columns):
            x, y, gx, gy = points[0, i, j], points[1, i, j], slope[0, i, j], slope[1, i, j]
            total = 0.0
            for k in range(K):
                away = (x - way[k, 0]) ** 2 + (y - way[k, 1]) ** 2 + near_sq
                seen[k] = 1.0 / (away * np.sqrt(away))
                total += seen[k]
            later = 0.0
            for k in range(K - 1, 0, -1):  # share that was seen after each part
                later += seen[k] / total
                after[k - 1 + first] = later
            if first:
                after[0] = np.sqrt(before)
            if doubt:
                for part in range(first, parts):
                    after[part] *= 2.0 * (1.0 - after[part])
                if first:
                    after[0] = 0.0
            last = 4 * parts
            out[last:, i, j] = 0.0
            for part in range(parts):
                pivot = max(part - first, 0)
                b = shift * after[part]
                tx, ty = along[pivot, 0], along[pivot, 1]
                out[4 * part, i, j] = (
                    turn * after[part] * (gx * (y - way[pivot, 1]) - gy * (x - way[pivot, 0]))
                )
                out[4 * part + 1, i, j] = -b * (gx * tx + gy * ty)
                out[4 * part + 2, i, j] = -b * ACROSS * (gy * tx - gx * ty)
                out[4 * part + 3, i, j] = b * UP
                for kind in range(4):
                    out[last + kind, i, j] += out[4 * part + kind, i, j] / root
    return out


def bend_residuals(
    alignment: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    over: Overlay,
    config: ClosureConfig,
    doubt: bool = False,
    factors: Array = ALIKE,
) -> Array:
    """(M, rows, columns) changes of the height residuals by drift inside the maps, each of one standard deviation.

    doubt: as of `spread_drift`; factors: as of `drives_of`
    """
    slope = 0.5 * (over.source_slope + over.target_slope)
    return np.concatenate(
        [
            height_changes(drive, over.points[:2], slope, config, doubt) / np.sqrt(len(of_map))
            for of_map in drives_of(alignment, source, target, factors)
            for drive in of_map
        ]
    )


def split_upright(H: Array) -> tuple[Array, Array]:
    """`bend_residuals` of turns and shifts in the plane, and of shifts in height."""
    upright = np.arange(len(H)) % 4 == 3
    return H[~upright], H[upright]


def compute_jacobians(points: Array, slope: Array, centre: Array) -> Array:
    """J (6, ...) of the residual of every cell over the pose about `centre`, for a surface of these slopes (2, ...)."""
    gx, gy = slope
    d = points - centre.reshape(3, *[1] * gx.ndim)
    return np.stack([-gx, -gy, np.ones_like(gx), d[1] + gy * d[2], -d[0] - gx * d[2], gx * d[1] - gy * d[0]])


@dataclass(frozen=True)
class Patterns:
    """What bent maps leave in the residuals of a fitted pose.

    P: (6, M) the pose that the fit makes of each displacement
    inverse: (6, 6) of the information of the fit, (X' W X + prior)^-1
    E: (k, rows, columns) orthonormal patterns of what the pose can't follow; sizes: (k,) of each at tau = 1
    """

    P: Array
    inverse: Array
    E: Array
    sizes: Array


def trust(u: Array) -> Array:
    """Weights of normalised residuals by Student's t."""
    return np.asarray((NU + 1.0) / (NU + u * u))


def residual_patterns(H: Array, X: Array, weight: Array, prior: Array) -> Patterns:
    """H: (M, rows, columns) residuals by the displacements; X: (6, rows, columns) by the pose, both normalised
    weight: of the cells in the fit; prior: (6, 6) information on the pose
    """
    M, N = len(H), X[0].size
    flat, x, w = H.reshape(M, N), X.reshape(6, N), weight.reshape(N)
    A = (w * x) @ x.T
    inverse: Array = np.asarray(np.linalg.inv(A + prior + 1e-9 * np.diag(np.diag(A))))
    P = inverse @ ((w * x) @ flat.T)
    # Gram matrix of what is left, H - P' X, without making it
    across = flat @ x.T @ P
    gram = flat @ flat.T - across - across.T + P.T @ (x @ x.T) @ P
    values, vectors = eigh(0.5 * (gram + gram.T), subset_by_index=(max(M - PATTERNS, 0), M - 1))
    order = np.argsort(values)[::-1]
    order = order[values[order] > 1e-4 * max(float(values[order[0]]), 1e-300)]
    sizes = np.sqrt(values[order])
    chosen = (vectors[:, order] / sizes).T
    E = chosen @ flat - (chosen @ P.T) @ x
    return Patterns(P, inverse, E.reshape(len(order), *X.shape[1:]), sizes)


def pose_spread(bend: Patterns, doubt: Array, X: Array, weight: Array) -> Array:
    """(6, 6) covariance of the pose by displacements with tau = 1.

    doubt: (M, rows, columns) by which they may differ from their model; X, weight: as of `residual_patterns`
    """
    return np.asarray(bend.P @ bend.P.T + bend.inverse @ mismatch(weight * X, doubt) @ bend.inverse)


def score_spread(bend: Patterns, doubt: Array | None) -> Array:
    """(k, k) covariance of the patterns' scores by displacements with tau = 1.

    doubt: as of `pose_spread`; None where displacements are taken as they are
    """
    own = np.diag(bend.sizes**2)
    return own if doubt is None else own + mismatch(bend.E, doubt)


def mismatch(F: Array, doubt: Array) -> Array:
    """(k, k) covariance of sums of F (k, rows, columns) times what displacements differ by from their model."""
    rows, columns = F.shape[1:]
    side = -(-max(rows, columns) // PATCHES)
    out = np.zeros((len(F), len(F)))
    for i in range(0, rows, side):
        for j in range(0, columns, side):
            patch = np.s_[:, i : i + side, j : j + side]
            sums = F[patch].reshape(len(F), -1) @ doubt[patch].reshape(len(doubt), -1).T
            out += sums @ sums.T
    return MISMATCH**2 * out


@dataclass(frozen=True)
class BendingFit:
    """rest: residuals less the bending; scale: their variance; amplitudes: (k,) of the patterns"""

    rest: Array
    scale: float
    amplitudes: Array


def fit_bending(u: Array, X: Array, E: Array, expected: Array, mask: NDArray[np.bool_]) -> BendingFit:
    """Normalised residuals (rows, columns) as a small motion of the pose, patterns of bent maps, and a rest.

    E: (k, rows, columns) patterns; expected: (k,) standard deviations of their amplitudes, tau times their sizes;
    neighbouring cells count as one
    """
    cells = INDEPENDENT_STRIDE**2
    Z = np.concatenate([X, E])[:, mask]
    values = u[mask]
    information = np.concatenate([np.zeros(6), np.maximum(expected, 1e-9) ** -2.0])
    rest, scale = values, 1.0
    for _ in range(STEPS):
        scale = max(float(np.mean(trust(rest / np.sqrt(scale)) * rest**2)), 1e-12)
        w = trust(rest / np.sqrt(scale))
        K = (w * Z) @ Z.T
        ridge = cells * scale * np.diag(information) + 1e-9 * np.diag(np.diag(K))
        amplitudes = np.linalg.solve(K + ridge, (w * Z) @ values)
        rest = values - amplitudes @ Z
    out = np.zeros(u.shape)
    out[mask] = rest
    return BendingFit(out, scale, amplitudes[6:])
