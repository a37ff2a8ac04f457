"""Self-similarity of the ground: how well a map fits on itself at poses that certainly show different places.

The likelihood ratio of verification.py takes unrelated places for Gaussian fields. Ditches of one profile, craters of
one size or rows of mounds are not: any of them fits any other. How much more alike they are than chance allows is
measured on the map itself, with poses at which it certainly does not show the same ground: the largest surplus
L - log M of a pose other than none at all. Only what a closure has above that speaks for it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.correlation import SearchGrid, Spectra, likelihoods, make_search_grid
from gpgmap_ros.closure.registration.refinement import Alignment, fit_coarsely, refine
from gpgmap_ros.closure.registration.registration_map import Field, RegistrationMap
from gpgmap_ros.closure.registration.search import PoseCandidate, absolute_angle, cells_to_poses
from gpgmap_ros.closure.registration.verification import compute_evidence

CELLS, YAW_STEP = 24, 10.0
"""Of the search: cells across a map and degrees. Forms that repeat are larger than that."""
MAX_PEAKS, MAX_VERIFIED = 6, 2
"""Candidates that are fitted, and those of them that are refined to the end."""
MOVED_CELLS, MOVED_YAW = 6.0, np.deg2rad(12.0)
"""A pose that moves the map by less shows the same ground."""


class SelfSimilarity:
    """Measures how alike different places of a map are; remembers it as long as the map lives.

    config: of the registrations in which it is asked for
    """

    def __init__(self, config: ClosureConfig) -> None:
        self._config = config
        self._known: WeakKeyDictionary[RegistrationMap, float] = WeakKeyDictionary()

    def measure(self, map_: RegistrationMap) -> float:
        """Nats that a wrong pose reaches beyond chance on this ground; 0 where it does not repeat itself."""
        found = self._known.get(map_)
        if found is None:
            found = self._known[map_] = max(0.0, largest_surplus(map_, self._config))
        return found


def largest_surplus(map_: RegistrationMap, config: ClosureConfig) -> float:
    """Largest surplus L - log M of a pose that moves the map; minus infinity where there is none."""
    grid = make_search_grid(map_.radius, config, cells=CELLS, yaw_step=YAW_STEP)
    spectra = Spectra(map_, grid, config, threads=1, detail=False)
    scores = likelihoods(spectra, spectra, config.min_overlap, threads=1, remove_mean=False)[0]
    scores = scores[: len(grid.yaws) // 2 + 1]  # up to half a turn: a pose and its inverse are one
    fitted = [fit_coarsely(candidate, map_, map_, config) for candidate in find_maxima(scores, grid)]
    fitted = [(value, pose) for value, pose in fitted if not is_near_identity(pose, map_)]
    fitted.sort(key=lambda item: -item[0])
    surplus = [-np.inf]
    for _, start in fitted[:MAX_VERIFIED]:
        pose = refine(start, map_, map_, config, stride=2)
        found = compute_evidence(pose, map_, map_, config, stride=2)
        if found is not None and not is_near_identity(pose, map_):
            surplus.append(found.surplus)
    return max(surplus)


def find_maxima(scores: Field, grid: SearchGrid) -> list[PoseCandidate]:
    """The highest local maxima of (K, P, P) at the first yaws of the grid, without those that do not move the map."""
    found = find_local_maxima(scores)
    poses, values = cells_to_poses(found[:, :3], grid), found[:, 3]
    moves = (np.hypot(poses[:, 1], poses[:, 2]) > MOVED_CELLS) | (absolute_angle(poses[:, 0]) > MOVED_YAW)
    once = (poses[:, 0] > 0.0) | (poses[:, 1] >= 0.0)  # a shift and its opposite are one
    order = np.flatnonzero(moves & once)
    order = order[np.argsort(-values[order], kind="stable")][:MAX_PEAKS]
    return [PoseCandidate(float(poses[k, 0]), poses[k, 1:], float(values[k])) for k in order]


@njit(inline="always")
def is_local_maximum(scores, k, i, j):  # type: ignore[no-untyped-def] # pragma: no cover
    K, P, _ = scores.shape
    for yaw in range(max(k - 1, 0), min(k + 2, K)):
        for row in (i - 1, i, (i + 1) % P):
            for column in (j - 1, j, (j + 1) % P):
                if scores[yaw, row, column] > scores[k, i, j]:
                    return False
    return True


@compiled()
def find_local_maxima(scores: Field) -> Array:  # pragma: no cover
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
                if is_local_maximum(scores, k, i, j):
                    out[found, 0], out[found, 1], out[found, 2], out[found, 3] = k, i, j, value
                    found += 1
    return out[:found]


def is_near_identity(pose: Alignment, surface: RegistrationMap) -> bool:
    """Whether the pose has gone back to where the map lies."""
    move = pose.t[:2] - surface.centre
    return bool(np.hypot(*move) <= MOVED_CELLS and absolute_angle(np.float64(pose.yaw)) <= MOVED_YAW)
