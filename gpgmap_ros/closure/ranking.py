"""Which of many submaps show the ground of a new one? Two looks at each, the second at the more promising ones.

First all yaws and shifts on a canvas (first_look.py), the coarser the more submaps there are. On ridges, wrong places
correlate as well as the right one there; so the best poses of each submap are then fitted on a few hundred cells
(second_look.py), and ranked by what speaks for them after that (overlay.promise), as the candidates of a registration
are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.correlation import Canvas, Prepared, canvas_for
from gpgmap_ros.closure.first_look import TOGETHER, Side, best_poses, proposals, source_side, target_side
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.prior import PosePrior, expectation_of
from gpgmap_ros.closure.refinement import Alignment
from gpgmap_ros.closure.search import poses_of, searched
from gpgmap_ros.closure.second_look import best_fit
from gpgmap_ros.closure.surface import Surface

Array = NDArray[np.float64]

SHORTLIST = 300
"""Submaps that get a second look."""


@dataclasses.dataclass(frozen=True)
class Level:
    """How closely is looked.

    most: submaps for which there is time for that, about a second on two threads
    cells, yaw_step: across a map and in degrees, of the first look
    poses: of each submap, that the second look fits; across, steps: cells across the smaller map, and steps, of a fit
    """

    most: float
    cells: int
    yaw_step: float
    poses: int
    across: int
    steps: int


LEVELS = (Level(60, 36, 5.0, 12, 20, 8), Level(250, 24, 8.0, 8, 20, 8), Level(np.inf, 16, 12.0, 6, 14, 6))


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A submap with its best pose. value: of `promise`, comparable within one ranking."""

    name: str
    value: float
    pose: Alignment


class Ranking:
    """Ranks surfaces; remembers their spectra from one call to the next."""

    def __init__(self, config: ClosureConfig) -> None:
        self._config = config
        self._level: Level | None = None
        self._canvas: Canvas | None = None
        self._sides: dict[str, Side] = {}

    def forget(self, name: str) -> None:
        self._sides.pop(name, None)

    def ranked(
        self, source: Surface, targets: Mapping[str, Surface], priors: Mapping[str, PosePrior]
    ) -> list[Ranked]:
        """The targets that may show the source's ground, best first; those where no pose is possible are left out."""
        if not targets:
            return []
        level = next(level for level in LEVELS if len(targets) <= level.most)
        canvas = self._canvas_for(max(source.radius, *(target.radius for target in targets.values())), level)
        looking = source_side(Prepared(source, canvas, self._config, detail=False))
        names, least = list(targets), self._config.min_overlap

        def first(start: int) -> list[tuple[str, Array]]:
            some = names[start : start + TOGETHER]
            sides = [self._target(name, targets[name], canvas) for name in some]
            scores = proposals(looking, sides, canvas, least)
            found = []
            for name, side, of_one in zip(some, sides, scores, strict=True):
                if name in priors:
                    of_one *= searched(expectation_of(priors[name], source, targets[name]), canvas)
                found.append((name, best_poses(of_one, looking, side, canvas, least, level.poses)))
            return found

        def second(item: tuple[str, Array]) -> Ranked:
            name, found = item
            poses = poses_of(found[:, :3], canvas)
            return Ranked(
                name, *best_fit(poses, source, targets[name], self._config, level.across, level.steps)
            )

        starts = range(0, len(names), TOGETHER)
        looked = [
            item for part in in_parallel(first, starts, self._config.threads) for item in part if len(item[1])
        ]
        looked.sort(key=lambda item: (-item[1][0, 3], item[0]))
        found = in_parallel(second, looked[:SHORTLIST], self._config.threads)
        return sorted((item for item in found if item.value > 0.0), key=lambda item: (-item.value, item.name))

    def _target(self, name: str, surface: Surface, canvas: Canvas) -> Side:
        if name not in self._sides:
            prepared = Prepared(surface, canvas, self._config, threads=1, detail=False)
            self._sides[name] = target_side(prepared)
        return self._sides[name]

    def _canvas_for(self, radius: float, level: Level) -> Canvas:
        """The canvas of all rankings; a larger map makes a larger one, by steps, and the spectra are made anew."""
        canvas = self._canvas
        if canvas is None or level != self._level or canvas.stride * (canvas.side - 1) < 2.0 * radius:
            step = 2.0 ** (np.ceil(4.0 * np.log2(radius)) / 4.0)
            config = dataclasses.replace(self._config, yaw_step=max(self._config.yaw_step, level.yaw_step))
            canvas = canvas_for(step, config, min(level.cells, self._config.search_cells))
            self._canvas, self._level = canvas, level
            self._sides.clear()
        return canvas
