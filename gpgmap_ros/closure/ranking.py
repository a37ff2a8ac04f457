"""Which of many submaps show the ground of a new one? Two looks at each, the second at the more promising ones.

First all yaws and shifts on a coarse canvas. On ridges, wrong places correlate as well as the right one there; so the
best poses of each submap are then fitted on a few hundred cells, and ranked by what speaks for them after that
(overlay.promise), as the candidates of a registration are.
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

CELLS, YAW_STEP = 16, 12.0
"""Cells across a map and step of the yaws, in degrees, of the first look."""
POSES = 6
"""Poses of each submap that the second look fits."""
SHORTLIST = 400
"""Submaps that get a second look."""
ACROSS, STEPS = 14, 6
"""Cells across the smaller map, and steps, of a fit."""


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A submap with its best pose. value: of `promise`, comparable within one ranking."""

    name: str
    value: float
    pose: Alignment


class Ranking:
    """Ranks surfaces; remembers their spectra from one call to the next."""

    def __init__(self, config: ClosureConfig) -> None:
        self._config = dataclasses.replace(config, yaw_step=max(config.yaw_step, YAW_STEP))
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
        canvas = self._canvas_for(max(source.radius, *(target.radius for target in targets.values())))
        prepared = Prepared(source, canvas, self._config, detail=False)
        assert len(prepared.turned)  # computed here, once, before the threads start

        def first(name: str) -> tuple[str, list[Candidate]]:
            return name, self._look(prepared, name, targets[name], priors.get(name))

        def second(item: tuple[str, list[Candidate]]) -> Ranked | None:
            name, poses = item
            fitted = [self._fit(pose, source, targets[name]) for pose in poses]
            value, pose = max(fitted, key=lambda pair: pair[0])
            return Ranked(name, value, pose) if value > 0.0 else None

        looked = [item for item in in_parallel(first, targets, self._config.threads) if item[1]]
        looked.sort(key=lambda item: (-item[1][0].likelihood, item[0]))
        found = in_parallel(second, looked[:SHORTLIST], self._config.threads)
        return sorted((item for item in found if item), key=lambda item: (-item.value, item.name))

    def _look(self, source: Prepared, name: str, target: Surface, prior: PosePrior | None) -> list[Candidate]:
        """The best poses on the coarse canvas."""
        if name not in self._prepared:
            self._prepared[name] = Prepared(target, source.canvas, self._config, threads=1, detail=False)
        scores = likelihoods(source, self._prepared[name], self._config.min_overlap, threads=1)[0]
        if prior is not None:
            scores *= searched(expectation_of(prior, source.surface, target), source.canvas)
        return peaks(scores, source.canvas, POSES)

    def _fit(self, candidate: Candidate, source: Surface, target: Surface) -> tuple[float, Alignment]:
        every = max(2, round(np.sqrt(min(source.area, target.area)) / ACROSS))
        pose = refine(alignment_of(candidate, target), source, target, self._config, every, STEPS)
        return promise(pose, source, target, self._config, every), pose

    def _canvas_for(self, radius: float) -> Canvas:
        """The canvas of all rankings; a larger map makes a larger one, by steps, and the spectra are made anew."""
        if self._canvas is None or self._canvas.stride * (self._canvas.side - 1) < 2.0 * radius:
            step = 2.0 ** (np.ceil(4.0 * np.log2(radius)) / 4.0)
            self._canvas = canvas_for(step, self._config, CELLS)
            self._prepared.clear()
        return self._canvas
