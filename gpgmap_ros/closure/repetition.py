"""Does the ground repeat itself? A map laid on itself elsewhere tells how alike different places of this ground are.

The likelihood ratio of verification.py takes unrelated places for Gaussian fields. Ditches of one profile, craters of
one size or rows of mounds are not: any of them fits any other. How much more alike they are than chance allows is
measured on the map itself, with poses at which it certainly does not show the same ground: the largest surplus
L - log M of a pose other than none at all. Only what a closure has above that speaks for it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.correlation import Canvas, Prepared, canvas_for, likelihoods
from gpgmap_ros.closure.overlay import rough_fit
from gpgmap_ros.closure.refinement import Alignment, refine
from gpgmap_ros.closure.search import Candidate, poses_of, turn
from gpgmap_ros.closure.surface import Field, Surface
from gpgmap_ros.closure.verification import evidence

Array = NDArray[np.float64]

CELLS, YAW_STEP = 24, 10.0
"""Of the search: cells across a map and degrees. Forms that repeat are larger than that."""
PEAKS, FINALISTS = 6, 2
"""Poses that are looked at, and those of them that are refined to the end."""
MOVED_CELLS, MOVED_YAW = 6.0, np.deg2rad(12.0)
"""A pose that moves the map by less shows the same ground."""

_known: WeakKeyDictionary[Surface, dict[ClosureConfig, float]] = WeakKeyDictionary()


def repetition(surface: Surface, config: ClosureConfig) -> float:
    """Nats that a wrong pose reaches beyond chance on this ground; 0 where it does not repeat itself."""
    found = _known.setdefault(surface, {})
    if config not in found:
        found[config] = max(0.0, _largest_surplus(surface, config))
    return found[config]


def _largest_surplus(surface: Surface, config: ClosureConfig) -> float:
    canvas = canvas_for(surface.radius, config, cells=CELLS, yaw_step=YAW_STEP)
    side = Prepared(surface, canvas, config, threads=1, detail=False)
    scores = likelihoods(side, side, config.min_overlap, threads=1, remove_mean=False)[0]
    scores = scores[: len(canvas.yaws) // 2 + 1]  # up to half a turn: a pose and its inverse are one
    rough = [rough_fit(candidate, surface, surface, config) for candidate in maxima(scores, canvas)]
    rough = [(value, pose) for value, pose in rough if not shows_the_same(pose, surface)]
    rough.sort(key=lambda item: -item[0])
    surplus = [-np.inf]
    for _, start in rough[:FINALISTS]:
        pose = refine(start, surface, surface, config, every=2)
        found = evidence(pose, surface, surface, config, every=2)
        if found is not None and not shows_the_same(pose, surface):
            surplus.append(found.surplus)
    return max(surplus)


def maxima(scores: Field, canvas: Canvas) -> list[Candidate]:
    """The highest local maxima of (K, P, P) at the first yaws of the canvas, without those that do not move the map."""
    found = local_maxima(scores)
    poses, values = poses_of(found[:, :3], canvas), found[:, 3]
    moves = (np.hypot(poses[:, 1], poses[:, 2]) > MOVED_CELLS) | (turn(poses[:, 0]) > MOVED_YAW)
    once = (poses[:, 0] > 0.0) | (poses[:, 1] >= 0.0)  # a shift and its opposite are one
    order = np.flatnonzero(moves & once)
    order = order[np.argsort(-values[order], kind="stable")][:PEAKS]
    return [Candidate(float(poses[k, 0]), poses[k, 1:], float(values[k])) for k in order]


@njit(inline="always")
def tops_neighbours(scores, k, i, j):  # type: ignore[no-untyped-def] # pragma: no cover
    K, P, _ = scores.shape
    for yaw in range(max(k - 1, 0), min(k + 2, K)):
        for row in (i - 1, i, (i + 1) % P):
            for column in (j - 1, j, (j + 1) % P):
                if scores[yaw, row, column] > scores[k, i, j]:
                    return False
    return True


@compiled()
def local_maxima(scores: Field) -> Array:  # pragma: no cover
    """(N, 4) yaw, row, column and value of the cells that none of their 26 neighbours exceeds; shifts are periodic."""
    K, P, _ = scores.shape
    out = np.empty((K * P * P // 8 + 1, 4))
    found = 0
    for k in range(K):
        for i in range(P):
            for j in range(P):
                value = scores[k, i, j]
                if value <= 0.0 or found == len(out):
                    continue
                if tops_neighbours(scores, k, i, j):
                    out[found, 0], out[found, 1], out[found, 2], out[found, 3] = k, i, j, value
                    found += 1
    return out[:found]


def shows_the_same(pose: Alignment, surface: Surface) -> bool:
    """Whether the pose has gone back to where the map lies."""
    move = pose.t[:2] - surface.centre
    return bool(np.hypot(*move) <= MOVED_CELLS and turn(np.float64(pose.yaw)) <= MOVED_YAW)
