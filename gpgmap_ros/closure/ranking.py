"""Which of many submaps show the ground of a new one? Two looks at each, the second at the more promising ones.

First all yaws and shifts on a canvas, the coarser the more submaps there are. On ridges, wrong places correlate as well
as the right one there; so the best poses of each submap are then fitted on a few hundred cells, and ranked by what
speaks for them after that (overlay.promise), as the candidates of a registration are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.correlation import Canvas, Prepared, canvas_for, likelihoods
from gpgmap_ros.closure.overlay import promise
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.prior import PosePrior, expectation_of
from gpgmap_ros.closure.refinement import Alignment, alignment_of, refine
from gpgmap_ros.closure.search import Candidate, peaks, searched
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
        self._prepared: dict[str, Prepared] = {}

    def forget(self, name: str) -> None:
        self._prepared.pop(name, None)

    def ranked(
        self, source: Surface, targets: Mapping[str, Surface], priors: Mapping[str, PosePrior]
    ) -> list[Ranked]:
        """The targets that may show the source's ground, best first; those where no pose is possible are left out."""
        if not targets:
            return []
        level = next(level for level in LEVELS if len(targets) <= level.most)
        canvas = self._canvas_for(max(source.radius, *(target.radius for target in targets.values())), level)
        prepared = Prepared(source, canvas, self._config, detail=False)
        assert len(prepared.turned)  # computed here, once, before the threads start

        def first(name: str) -> tuple[str, list[Candidate]]:
            scores = likelihoods(
                prepared, self._target(name, targets[name], canvas), self._config.min_overlap, threads=1
            )[0]
            if name in priors:
                scores *= searched(expectation_of(priors[name], source, targets[name]), canvas)
            return name, peaks(scores, canvas, level.poses)

        def second(item: tuple[str, list[Candidate]]) -> Ranked:
            name, candidates = item
            target = targets[name]
            every = max(2, round(np.sqrt(min(source.area, target.area)) / level.across))
            fitted = []
            for candidate in candidates:
                start = alignment_of(candidate, target)
                pose = refine(start, source, target, self._config, every, level.steps)
                fitted.append((promise(pose, source, target, self._config, every), pose))
            return Ranked(name, *max(fitted, key=lambda pair: pair[0]))

        looked = [item for item in in_parallel(first, targets, self._config.threads) if item[1]]
        looked.sort(key=lambda item: (-item[1][0].likelihood, item[0]))
        found = in_parallel(second, looked[:SHORTLIST], self._config.threads)
        return sorted((item for item in found if item.value > 0.0), key=lambda item: (-item.value, item.name))

    def _target(self, name: str, surface: Surface, canvas: Canvas) -> Prepared:
        if name not in self._prepared:
            self._prepared[name] = Prepared(surface, canvas, self._config, threads=1, detail=False)
        return self._prepared[name]

    def _canvas_for(self, radius: float, level: Level) -> Canvas:
        """The canvas of all rankings; a larger map makes a larger one, by steps, and the spectra are made anew."""
        canvas = self._canvas
        if canvas is None or level != self._level or canvas.stride * (canvas.side - 1) < 2.0 * radius:
            step = 2.0 ** (np.ceil(4.0 * np.log2(radius)) / 4.0)
            config = dataclasses.replace(self._config, yaw_step=max(self._config.yaw_step, level.yaw_step))
            canvas = canvas_for(step, config, min(level.cells, self._config.search_cells))
            self._canvas, self._level = canvas, level
            self._prepared.clear()
        return canvas
