"""Where could two maps show the same ground? The poses at which they are most alike (correlation.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.correlation import Canvas, Prepared, canvas_for, likelihoods
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.prior import SEARCHED, Expectation
from gpgmap_ros.closure.surface import Field, Surface

Array = NDArray[np.float64]

NEAR_CELLS, NEAR_YAW = 4.0, np.deg2rad(8.0)
"""Poses closer than this, in cells of the map and yaw, are the same candidate."""


@dataclass(frozen=True)
class Candidate:
    """A pose to look at: target = R(yaw) (source - source centre) + target centre + shift, all in cells.

    likelihood: L of this pose in the band in which it was found
    """

    yaw: float
    shift: Array
    likelihood: float


def search(
    source: Surface, target: Surface, config: ClosureConfig, expected: Expectation | None = None
) -> list[Candidate]:
    """The most promising poses, best first, at most `config.candidates` per band; within the prior if there is one."""
    around = (float(expected.mean[2]), expected.yaw_width) if expected else None
    canvas = canvas_for(max(source.radius, target.radius), config, around=around)
    sides = in_parallel(lambda s: Prepared(s, canvas, config), (source, target), config.threads)
    scores = likelihoods(*sides, config.min_overlap, config.threads)
    if expected is not None:
        scores *= searched(expected, canvas)
    found = in_parallel(lambda band: peaks(band, canvas, config.candidates), scores, config.threads)
    return distinct([candidate for band in found for candidate in band])


def distinct(found: list[Candidate]) -> list[Candidate]:
    """The candidates by likelihood, without those that are the same as a better one."""
    kept: list[Candidate] = []
    for candidate in sorted(found, key=lambda c: -c.likelihood):
        if not any(same_place(candidate, other) for other in kept):
            kept.append(candidate)
    return kept


def same_place(a: Candidate, b: Candidate) -> bool:
    return bool(turn(a.yaw - b.yaw) < NEAR_YAW / 2.0 and np.hypot(*(a.shift - b.shift)) < NEAR_CELLS / 2.0)


def turn(yaw: Any) -> Any:
    """An angle, or an array of them, without its sense: at most pi."""
    return np.abs((yaw + np.pi) % (2.0 * np.pi) - np.pi)


def searched(expected: Expectation, canvas: Canvas) -> NDArray[np.bool_]:
    """(K, P, P) which poses of a canvas the prior allows."""
    shifts = np.fft.fftfreq(canvas.size, 1.0 / canvas.size) * canvas.stride
    distances = expected.distances(
        shifts[None, None, :], shifts[None, :, None], canvas.yaws[:, None, None], canvas.stride, canvas.step
    )
    return distances <= SEARCHED


def peaks(scores: Field, canvas: Canvas, count: int) -> list[Candidate]:
    """The highest local maxima of L, at most `count`, none within `NEAR_CELLS` and `NEAR_YAW` of a higher one.

    scores: (K, P, P); they are used up: zero around the maxima afterwards
    """
    found = cells_of_peaks(scores, canvas, count)
    return [
        Candidate(float(yaw), np.array([x, y]), float(value))
        for (yaw, x, y), value in zip(poses_of(found[:, :3], canvas), found[:, 3], strict=True)
    ]


def cells_of_peaks(scores: Field, canvas: Canvas, count: int) -> Array:
    """`peaks` as (at most count, 4): number of the yaw, row and column of the canvas, L."""
    reach = max(1, round(NEAR_CELLS / canvas.stride))
    reach_yaw = max(1, round(NEAR_YAW / canvas.step)) * canvas.step + 1e-6
    return np.asarray(highest(scores, canvas.yaws, count, reach, reach_yaw))


def poses_of(cells: Array, canvas: Canvas) -> Array:
    """(N, 3) yaw, and shift in x and y in cells of the map, from numbers of yaws, rows and columns (N, 3)."""
    shift = (
        np.where(cells[:, 1:] >= canvas.size / 2, cells[:, 1:] - canvas.size, cells[:, 1:]) * canvas.stride
    )
    return np.column_stack([canvas.yaws[cells[:, 0].astype(int)], shift[:, ::-1]])


@compiled()
def highest(
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
