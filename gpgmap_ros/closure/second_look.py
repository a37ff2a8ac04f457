"""The best poses of one submap, fitted roughly: which of them lasts, and what it is worth.

A pose that is wrong shows it within two steps of Gauss-Newton: its heights do not come together. All poses take these,
and only the most promising go on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.interpolation import rotation
from gpgmap_ros.closure.overlay import likeness_sums, worth
from gpgmap_ros.closure.refinement import (
    SETTLED,
    Alignment,
    descend,
    height_step,
    heights,
    tilt_information,
)
from gpgmap_ros.closure.surface import Field, Surface

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
    least = config.min_overlap * min(source.area, target.area)
    value, R, t, centre, (scale, shared, taken, moved) = best_of(
        *heights(source), source.slope_variance, *heights(target), target.slope_variance, source.centre, target.centre,
        poses, every, config.use_variance, tilt_information(config, every), source.radius, least, steps,
    )  # fmt: skip
    pose = Alignment(R, t, centre, scale, shared * every**2, int(taken), bool(moved < SETTLED))
    return float(value), pose


@compiled()
def best_of(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field, u_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field, u_b: Field,
    source_centre: Array, target_centre: Array, poses: Array, every: int, variances: bool,
    information: float, radius: float, least: float, steps: int,
) -> tuple[float, Array, Array, Array, tuple[float, float, int, float]]:  # fmt: skip # pragma: no cover
    """Value, R, t, centre, and the state of `descend`, of the best of the poses."""
    N = len(poses)
    R, t, centre = np.empty((N, 3, 3)), np.empty((N, 3)), np.empty((N, 3))
    state = np.zeros((N, 4))
    value = np.zeros(N)
    for n in range(N):
        R[n] = rotation(np.array([0.0, 0.0, poses[n, 0]]))
        t[n, 0], t[n, 1], t[n, 2] = target_centre[0] + poses[n, 1], target_centre[1] + poses[n, 2], 0.0
        centre[n] = t[n]
        t[n, 2] += height_step(w_a, z_a, w_b, z_b, source_centre, R[n], t[n], every)
    going = np.arange(N)
    for more in (FIRST_STEPS, steps - FIRST_STEPS):
        for n in going:
            turned, moved_to, middle, (scale, shared, taken, moved) = descend(
                w_a, z_a, gx_a, gy_a, v_a, w_b, z_b, gx_b, gy_b, v_b, source_centre, R[n], t[n], centre[n],
                state[n, 0], every, variances, information, radius, more,
            )  # fmt: skip
            R[n], t[n], centre[n] = turned, moved_to, middle
            state[n, 0], state[n, 1], state[n, 3] = scale, shared, moved
            state[n, 2] += taken
            total = likeness_sums(
                w_a, z_a, gx_a, gy_a, v_a, u_a, w_b, z_b, gx_b, gy_b, v_b, u_b,
                source_centre, R[n], t[n], every, variances,
            )  # fmt: skip
            value[n] = worth(total, every, least)
        going = np.argsort(-value)[:KEPT]
    n = int(np.argmax(value))
    return value[n], R[n], t[n], centre[n], (state[n, 0], state[n, 1], int(state[n, 2]), state[n, 3])
