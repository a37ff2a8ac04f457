"""Candidate poses of two maps: those at which their slopes correlate best (correlation.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.correlation import SearchGrid, Spectra, likelihoods, make_search_grid
from gpgmap_ros.closure.registration.prior import SEARCH_LIMIT, SearchPrior
from gpgmap_ros.closure.registration.registration_map import Field, RegistrationMap

NEAR_CELLS, NEAR_YAW = 4.0, np.deg2rad(8.0)
"""Poses closer than this, in cells of the map and yaw, are the same candidate."""


@dataclass(frozen=True)
class PoseCandidate:
    """A pose to look at: target = R(yaw) (source - source centre) + target centre + shift, all in cells.

    likelihood: L of this pose in the band in which it was found
    """

    yaw: float
    shift: Array
    likelihood: float


def search(
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    expected: SearchPrior | None = None,
) -> list[PoseCandidate]:
    """The most promising poses, best first, at most `config.candidates` per band; within the prior if there is one."""
    around = (float(expected.mean[2]), expected.yaw_width) if expected else None
    grid = make_search_grid(max(source.radius, target.radius), config, around=around)
    a, b = in_parallel(lambda map_: Spectra(map_, grid, config), (source, target), config.threads)
    scores = likelihoods(a, b, config.min_overlap, config.threads)
    if expected is not None:
        scores *= prior_mask(expected, grid)
    found = in_parallel(lambda band: find_peaks(band, grid, config.candidates), scores, config.threads)
    return remove_duplicates([candidate for band in found for candidate in band])


def remove_duplicates(found: list[PoseCandidate]) -> list[PoseCandidate]:
    """The candidates by likelihood, without those that are the same as a better one."""
    kept: list[PoseCandidate] = []
    for candidate in sorted(found, key=lambda c: -c.likelihood):
        if not any(is_same_place(candidate, other) for other in kept):
            kept.append(candidate)
    return kept


def is_same_place(a: PoseCandidate, b: PoseCandidate) -> bool:
    return bool(
        absolute_angle(a.yaw - b.yaw) < NEAR_YAW / 2.0 and np.hypot(*(a.shift - b.shift)) < NEAR_CELLS / 2.0
    )


def absolute_angle(yaw: Any) -> Any:
    """An angle, or an array of them, without its sense: at most pi."""
    return np.abs((yaw + np.pi) % (2.0 * np.pi) - np.pi)


def prior_mask(expected: SearchPrior, grid: SearchGrid) -> NDArray[np.bool_]:
    """(K, P, P) which poses of a search grid the prior allows."""
    shifts = np.fft.fftfreq(grid.size, 1.0 / grid.size) * grid.stride
    distances = expected.mahalanobis_sq(
        shifts[None, None, :], shifts[None, :, None], grid.yaws[:, None, None], grid.stride, grid.step
    )
    return distances <= SEARCH_LIMIT


def find_peaks(scores: Field, grid: SearchGrid, count: int) -> list[PoseCandidate]:
    """The highest local maxima of L, at most `count`, none within `NEAR_CELLS` and `NEAR_YAW` of a higher one.

    scores: (K, P, P); they are used up: zero around the maxima afterwards
    """
    found = find_peak_cells(scores, grid, count)
    return [
        PoseCandidate(float(yaw), np.array([x, y]), float(value))
        for (yaw, x, y), value in zip(cells_to_poses(found[:, :3], grid), found[:, 3], strict=True)
    ]


def find_peak_cells(scores: Field, grid: SearchGrid, count: int) -> Array:
    """`find_peaks` as (at most count, 4): number of the yaw, row and column of the search grid, L."""
    reach = max(1, round(NEAR_CELLS / grid.stride))
    reach_yaw = max(1, round(NEAR_YAW / grid.step)) * grid.step + 1e-6
    return np.asarray(find_highest(scores, grid.yaws, count, reach, reach_yaw))


def cells_to_poses(cells: Array, grid: SearchGrid) -> Array:
    """(N, 3) yaw, and shift in x and y in cells of the map, from numbers of yaws, rows and columns (N, 3)."""
    shift = np.where(cells[:, 1:] >= grid.size / 2, cells[:, 1:] - grid.size, cells[:, 1:]) * grid.stride
    return np.column_stack([grid.yaws[cells[:, 0].astype(int)], shift[:, ::-1]])


@compiled()
def find_highest(
    scores: Field, yaws: Array, count: int, reach: int, reach_yaw: float
) -> Array:  # pragma: no cover
    """(at most count, 4) yaw, row, column and value of the maxima, highest first; zeroes what is near each."""
    K, P, _ = scores.shape
    best = np.zeros((P, P), np.float32)
    for k in range(K):
        for i in range(P):
            for j in range(P):
                best[i, j] = max(best[i, j], scores[k, i, j])
    out = np.empty((count, 4))
    for found in range(count):
        row, column = 0, 0
        for i in range(P):
            for j in range(P):
                if best[i, j] > best[row, column]:
                    row, column = i, j
        k_best = 0
        for k in range(1, K):
            if scores[k, row, column] > scores[k_best, row, column]:
                k_best = k
        value = scores[k_best, row, column]
        if value <= 0.0:
            return out[:found]
        out[found, 0], out[found, 1], out[found, 2], out[found, 3] = k_best, row, column, value
        for di in range(-reach, reach + 1):
            for dj in range(-reach, reach + 1):
                i, j = (row + di) % P, (column + dj) % P
                left = np.float32(0.0)
                for k in range(K):
                    turn = abs((yaws[k] - yaws[k_best] + np.pi) % (2.0 * np.pi) - np.pi)
                    if turn <= reach_yaw:
                        scores[k, i, j] = 0.0
                    left = max(left, scores[k, i, j])
                best[i, j] = left
    return out
