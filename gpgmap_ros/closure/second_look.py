"""The best poses of one submap, fitted roughly: which of them lasts, and what it is worth.

A pose that is wrong shows it within two steps of Gauss-Newton: its heights do not come together. All poses take these,
and only the most promising go on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.overlay import promise
from gpgmap_ros.closure.refinement import Alignment, alignment_of, refine
from gpgmap_ros.closure.search import Candidate
from gpgmap_ros.closure.surface import Surface

Array = NDArray[np.float64]

FIRST_STEPS = 2
"""That every pose takes."""
KEPT = 2
"""Poses that go on."""


def best_fit(
    poses: Array, source: Surface, target: Surface, config: ClosureConfig, across: int, steps: int
) -> tuple[float, Alignment]:
    """The value (as of `promise`) and the pose that is best after `steps` steps.

    poses: (N, 3) yaw, and shift in x and y, as of a Candidate; across: cells of a fit across the smaller map
    """
    every = max(2, round(np.sqrt(min(source.area, target.area)) / across))
    going = [alignment_of(Candidate(float(yaw), np.array([x, y]), 0.0), target) for yaw, x, y in poses]
    fitted: list[tuple[float, Alignment]] = []
    for more in (FIRST_STEPS, steps - FIRST_STEPS):
        gone = [refine(pose, source, target, config, every, more) for pose in going]
        fitted = [(promise(pose, source, target, config, every), pose) for pose in gone] + fitted[len(gone) :]
        fitted.sort(key=lambda item: -item[0])
        going = [pose for _, pose in fitted[:KEPT]]
    return fitted[0]
