"""Ranks many submaps by how well they fit a new one, in two steps: a coarse search, then a refinement of the best.

First all yaws and shifts on a search grid (kept_search.py), the coarser the more submaps there are; of more than
`SHORTLIST` submaps, only in the most promising ones (screening.py). On ridges, wrong
places correlate as well as the right one there; so the best poses of each submap are then fitted on a few hundred cells
(candidate_refinement.py), and ranked by the value they have after that (refinement.estimate_value), as the
candidates of a registration are.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.retrieval.candidate_refinement import fit_best
from gpgmap_ros.closure.retrieval.kept_search import KeptSearch, Priors, Targets
from gpgmap_ros.closure.types import SubmapKey

SHORTLIST = 300
"""Submaps whose poses are refined."""
KEPT = 4.0
"""What a search remembers, in submaps of its largest query: a map grows, and a robot moves through it."""


@dataclasses.dataclass(frozen=True)
class Level:
    """How fine the search is.

    max_submaps: for which there is time for that, about a second on two threads
    cells, yaw_step: across a map and in degrees, of the coarse search
    poses: of each submap, that are refined; fit_cells, steps: cells across the smaller map, and steps, of a fit
    """

    max_submaps: float
    cells: int
    yaw_step: float
    poses: int
    fit_cells: int
    steps: int


LEVELS = (Level(60, 36, 5.0, 12, 20, 8), Level(250, 24, 8.0, 8, 20, 8), Level(np.inf, 16, 12.0, 6, 14, 6))


@dataclasses.dataclass(frozen=True)
class RankedSubmap:
    """A submap with its best pose. value: of `estimate_value`, comparable within one ranking."""

    name: SubmapKey
    value: float
    pose: Alignment


class Ranking:
    """Ranks submaps; remembers what it needs of them from one call to the next."""

    def __init__(self, config: ClosureConfig) -> None:
        self._config = config
        self._searches = {
            level: KeptSearch(config, level.cells, level.yaw_step, KEPT * level.max_submaps)
            for level in LEVELS
        }

    def forget(self, name: SubmapKey) -> None:
        for search in self._searches.values():
            search.forget(name)

    def rank(self, source: RegistrationMap, targets: Targets, priors: Priors) -> list[RankedSubmap]:
        """The targets that may show the source's ground, best first; those where no pose is possible are left out."""
        if not targets:
            return []
        level = next(level for level in LEVELS if len(targets) <= level.max_submaps)
        found = self._searches[level].poses(source, targets, priors, level.poses, SHORTLIST)
        shortlist = sorted(found, key=lambda name: (-found[name].value, str(name)))[:SHORTLIST]

        def fit(name: SubmapKey) -> RankedSubmap:
            return RankedSubmap(
                name,
                *fit_best(
                    found[name].poses, source, targets[name], self._config, level.fit_cells, level.steps
                ),
            )

        fitted = in_parallel(fit, shortlist, self._config.threads)
        possible = [item for item in fitted if item.value > 0.0]
        return sorted(possible, key=lambda item: (-item.value, str(item.name)))
