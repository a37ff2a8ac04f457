"""The coarse search at one fineness. It keeps what it needs of each submap for the next query: a few kilobytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.correlation import SearchGrid, Spectra, make_search_grid
from gpgmap_ros.closure.registration.prior import PosePrior, make_search_prior
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.registration.search import cells_to_poses, prior_mask
from gpgmap_ros.closure.retrieval.coarse_search import (
    BATCH_SIZE,
    SourceSpectra,
    TargetFields,
    pack_source,
    pack_target,
    propose_poses,
    select_best,
)
from gpgmap_ros.closure.retrieval.screening import ScreeningIndex
from gpgmap_ros.closure.types import SubmapKey

Targets = Mapping[SubmapKey, RegistrationMap]
Priors = Mapping[SubmapKey, PosePrior]


@dataclasses.dataclass(frozen=True)
class FoundPoses:
    """The best poses in one submap, best first: (N, 3) yaw, and shift in x and y, as of a PoseCandidate. value: L of
    the best"""

    poses: Array
    value: float


class KeptSearch:
    """All yaws and shifts of one map against many. For one query at a time.

    cells, yaw_step: across a map and in degrees; max_kept: submaps that are remembered, those that were used last
    """

    def __init__(self, config: ClosureConfig, cells: int, yaw_step: float, max_kept: float = np.inf) -> None:
        self._config = dataclasses.replace(config, yaw_step=max(config.yaw_step, yaw_step))
        self._cells, self._max_kept = min(cells, config.search_cells), max_kept
        self._grid: SearchGrid | None = None
        self._kept: dict[SubmapKey, TargetFields] = {}
        self._indexed: list[SubmapKey] = []
        self._index: ScreeningIndex | None = None  # of these, as of the last query that needed one

    def __len__(self) -> int:
        """Submaps that are remembered."""
        return len(self._kept)

    def forget(self, name: SubmapKey) -> None:
        self._kept.pop(name, None)
        self._index = None  # another submap may have that name next

    def poses(
        self,
        source: RegistrationMap,
        targets: Targets,
        priors: Priors,
        count: int,
        max_targets: int | None = None,
    ) -> dict[SubmapKey, FoundPoses]:
        """At most `count` of the best poses in each target; those where none is possible are left out.

        max_targets: of those without a prior, that are searched: the most promising ones (screening.py)
        """
        grid = self._grid_for(max(source.radius, *(target.radius for target in targets.values())))
        packed = pack_source(Spectra(source, grid, self._config, detail=False))
        names, min_overlap = list(targets), self._config.min_overlap
        free = [name for name in names if name not in priors]
        if max_targets is not None and len(free) > max_targets:
            chosen = set(self._most_promising(packed, {name: targets[name] for name in free}, max_targets))
            names = [name for name in names if name in priors or name in chosen]

        def search(start: int) -> list[tuple[SubmapKey, Array]]:
            some = names[start : start + BATCH_SIZE]
            fields = [self._take(name, targets[name], grid) for name in some]
            found = []
            proposed = propose_poses(packed, fields, grid, min_overlap)
            for name, target, scores in zip(some, fields, proposed, strict=True):
                if name in priors:
                    scores *= prior_mask(make_search_prior(priors[name], source, targets[name]), grid)
                found.append((name, select_best(scores, packed, target, grid, min_overlap, count)))
            return found

        batches = in_parallel(search, range(0, len(names), BATCH_SIZE), self._config.threads)
        while len(self._kept) > self._max_kept:
            del self._kept[next(iter(self._kept))]
        return {
            name: FoundPoses(cells_to_poses(found[:, :3], grid), float(found[0, 3]))
            for batch in batches
            for name, found in batch
            if len(found)
        }

    def _most_promising(self, source: SourceSpectra, targets: Targets, count: int) -> list[SubmapKey]:
        """The names of so many targets."""
        assert self._grid is not None
        grid, config, names = self._grid, self._config, list(targets)
        if self._index is None or self._indexed != names:
            fields = in_parallel(lambda name: self._take(name, targets[name], grid), names, config.threads)
            self._indexed, self._index = names, ScreeningIndex(fields, config.threads)
        values = self._index.screen(source, grid, config.min_overlap)
        order = sorted(range(len(names)), key=lambda k: (-values[k], str(names[k])))
        return [names[k] for k in order[:count]]

    def _take(self, name: SubmapKey, map_: RegistrationMap, grid: SearchGrid) -> TargetFields:
        fields = self._kept.pop(name, None)
        if fields is None:
            fields = pack_target(Spectra(map_, grid, self._config, threads=1, detail=False))
        self._kept[name] = fields  # behind all others: it was used last
        return fields

    def _grid_for(self, radius: float) -> SearchGrid:
        """The grid of all queries; a larger map makes a larger one, by steps, and what is kept is made anew."""
        grid = self._grid
        if grid is None or grid.stride * (grid.side - 1) < 2.0 * radius:
            step = 2.0 ** (np.ceil(4.0 * np.log2(radius)) / 4.0)
            grid = self._grid = make_search_grid(step, self._config, self._cells)
            self._kept.clear()
            self._index = None
        return grid
