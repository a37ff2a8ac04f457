"""Ranks many submaps by how well they fit a new one, in two steps: a coarse search, then a refinement of the best.

First all yaws and shifts on a search grid (coarse_search.py), the coarser the more submaps there are. On ridges, wrong
places correlate as well as the right one there; so the best poses of each submap are then fitted on a few hundred cells
(candidate_refinement.py), and ranked by the value they have after that (refinement.estimate_value), as the
candidates of a registration are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.correlation import SearchGrid, Spectra, make_search_grid
from gpgmap_ros.closure.registration.prior import PosePrior, make_search_prior
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.registration.search import cells_to_poses, prior_mask
from gpgmap_ros.closure.retrieval.candidate_refinement import fit_best
from gpgmap_ros.closure.retrieval.coarse_search import (
    BATCH_SIZE,
    PackedSpectra,
    pack_source,
    pack_target,
    propose_poses,
    select_best,
)
from gpgmap_ros.closure.types import SubmapKey

SHORTLIST = 300
"""Submaps whose poses are refined."""


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
    """Ranks submaps; remembers their spectra from one call to the next."""

    def __init__(self, config: ClosureConfig) -> None:
        self._config = config
        self._level: Level | None = None
        self._grid: SearchGrid | None = None
        self._spectra: dict[SubmapKey, PackedSpectra] = {}

    def forget(self, name: SubmapKey) -> None:
        self._spectra.pop(name, None)

    def rank(
        self,
        source: RegistrationMap,
        targets: Mapping[SubmapKey, RegistrationMap],
        priors: Mapping[SubmapKey, PosePrior],
    ) -> list[RankedSubmap]:
        """The targets that may show the source's ground, best first; those where no pose is possible are left out."""
        if not targets:
            return []
        level = next(level for level in LEVELS if len(targets) <= level.max_submaps)
        grid = self._grid_for(max(source.radius, *(target.radius for target in targets.values())), level)
        packed = pack_source(Spectra(source, grid, self._config, detail=False))
        names, min_overlap = list(targets), self._config.min_overlap

        def search(start: int) -> list[tuple[SubmapKey, Array]]:
            some = names[start : start + BATCH_SIZE]
            spectra = [self._pack_target(name, targets[name], grid) for name in some]
            scores = propose_poses(packed, spectra, grid, min_overlap)
            found = []
            for name, target, score in zip(some, spectra, scores, strict=True):
                if name in priors:
                    score *= prior_mask(make_search_prior(priors[name], source, targets[name]), grid)
                found.append((name, select_best(score, packed, target, grid, min_overlap, level.poses)))
            return found

        def fit(item: tuple[SubmapKey, Array]) -> RankedSubmap:
            name, found = item
            poses = cells_to_poses(found[:, :3], grid)
            return RankedSubmap(
                name, *fit_best(poses, source, targets[name], self._config, level.fit_cells, level.steps)
            )

        starts = range(0, len(names), BATCH_SIZE)
        batches = in_parallel(search, starts, self._config.threads)
        searched = [item for batch in batches for item in batch if len(item[1])]
        searched.sort(key=lambda item: (-item[1][0, 3], str(item[0])))
        fitted = in_parallel(fit, searched[:SHORTLIST], self._config.threads)
        possible = [item for item in fitted if item.value > 0.0]
        return sorted(possible, key=lambda item: (-item.value, str(item.name)))

    def _pack_target(self, name: SubmapKey, map_: RegistrationMap, grid: SearchGrid) -> PackedSpectra:
        if name not in self._spectra:
            self._spectra[name] = pack_target(Spectra(map_, grid, self._config, threads=1, detail=False))
        return self._spectra[name]

    def _grid_for(self, radius: float, level: Level) -> SearchGrid:
        """The grid of all rankings; a larger map makes a larger one, by steps, and the spectra are made anew."""
        grid = self._grid
        if grid is None or level != self._level or grid.stride * (grid.side - 1) < 2.0 * radius:
            step = 2.0 ** (np.ceil(4.0 * np.log2(radius)) / 4.0)
            config = dataclasses.replace(self._config, yaw_step=max(self._config.yaw_step, level.yaw_step))
            grid = make_search_grid(step, config, min(level.cells, self._config.search_cells))
            self._grid, self._level = grid, level
            self._spectra.clear()
        return grid
