"""Coarse refinement of the best poses of one submap: which of them is best after it, and its value.

A wrong pose shows it within two steps of Gauss-Newton: its heights do not come together. All poses take these, and only
the most promising go on.
"""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.refinement import (
    Alignment,
    coarse_stride,
    estimate_value,
    make_alignment,
    refine,
)
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.registration.search import PoseCandidate

FIRST_STEPS = 2
"""That every pose takes."""
KEPT = 2
"""Poses that go on."""


def fit_best(
    poses: Array,
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    cells: int,
    steps: int,
) -> tuple[float, Alignment]:
    """The value (as of `estimate_value`) and the pose that is best after `steps` steps.

    poses: (N, 3) yaw, and shift in x and y, as of a PoseCandidate; cells: of a fit, across the smaller map
    """
    stride = coarse_stride(source, target, cells)
    active = [make_alignment(PoseCandidate(float(yaw), np.array([x, y]), 0.0), target) for yaw, x, y in poses]
    fitted: list[tuple[float, Alignment]] = []
    for more in (FIRST_STEPS, steps - FIRST_STEPS):
        refined = [refine(pose, source, target, config, stride, more) for pose in active]
        fitted = [(estimate_value(pose, source, target, config, stride), pose) for pose in refined] + fitted[
            len(refined) :
        ]
        fitted.sort(key=lambda item: -item[0])
        active = [pose for _, pose in fitted[:KEPT]]
    return fitted[0]
