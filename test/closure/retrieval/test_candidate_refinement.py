"""Coarse refinement of the poses of one submap."""

from __future__ import annotations

import numpy as np
from fractal_world import World, pose_error

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.registration.pipeline import to_metres
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.retrieval.candidate_refinement import fit_best
from gpgmap_ros.geometry import inverse

CONFIG = ClosureConfig(threads=1)


def test_the_right_one_of_several_poses_is_chosen_and_improved(world: World) -> None:
    source_map, T_source = world.map_at((100.0, 100.0), 1, yaw=0.5)
    target_map, T_target = world.map_at((104.0, 98.0), 2)
    source, target = (make_registration_map(map_, CONFIG) for map_ in (source_map, target_map))
    truth = T_target @ inverse(T_source)
    shift = (truth @ [*source.middle, 1.0])[:2] - target.middle[:2]
    near = [0.5 + 0.05, shift[0] + 1.5, shift[1] - 1.0]
    poses = np.array([[3.6, 15.0, 10.0], near, [2.4, -16.0, 9.0], [-2.0, -10.0, -18.0]])
    value, pose = fit_best(poses, source, target, CONFIG, cells=20, steps=8)
    error, yaw = pose_error(to_metres(pose, source, target), truth, source.middle)
    assert value > 0.0
    assert error < 0.5
    assert yaw < 1.5
    wrong, _ = fit_best(poses[[0, 2, 3]], source, target, CONFIG, cells=20, steps=8)
    assert value > 2.0 * wrong
