"""Refinement on points: closer in tilt where gravity is known badly, and never far from our pose."""

from __future__ import annotations

import dataclasses
import importlib.util

import numpy as np
import pytest
from fractal_world import World, pose_error
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.closure.registration import se3 as module
from gpgmap_ros.closure.registration.se3 import PointRegistrationMissing, refine_se3
from gpgmap_ros.geometry import inverse

needs_small_gicp = pytest.mark.skipif(
    importlib.util.find_spec("small_gicp") is None, reason="small_gicp is not installed"
)


@needs_small_gicp
@pytest.mark.parametrize("method", ["gicp", "point_to_plane"])
def test_a_tilt_that_the_prior_holds_back_is_found(world: World, method):
    """With a prior that is far too narrow our own fit leaves most of the tilt; the points do not know the prior."""
    narrow = ClosureConfig(tilt_std=0.3)
    source, T_source = world.map_at((100.0, 100.0), 1, yaw=0.7, tilt=np.deg2rad(0.9))
    target, T_target = world.map_at((104.0, 97.0), 2)
    truth = T_target @ inverse(T_source)
    found = dataclasses.replace(register(source, target, narrow), accepted=True)
    refined = refine_se3(found, source, target, method)

    def tilt_error(T: np.ndarray) -> float:
        return float(np.rad2deg(Rotation.from_matrix(T[:3, :3] @ truth[:3, :3].T).magnitude()))

    assert tilt_error(refined.T_target_source) < 0.15
    assert pose_error(refined.T_target_source, truth, np.zeros(3))[0] < 0.3
    R = refined.T_target_source[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(R) > 0.0
    assert method in refined.reason
    np.testing.assert_array_equal(refined.covariance, found.covariance)


@needs_small_gicp
def test_a_slide_is_not_taken(pair):
    """Started three cells off, ICP goes back by more than our pose can be wrong: that is no refinement."""
    source, target, _ = pair
    found = register(source, target)
    off = found.T_target_source.copy()
    off[0, 3] += 1.6
    moved = refine_se3(dataclasses.replace(found, T_target_source=off), source, target)
    np.testing.assert_array_equal(moved.T_target_source, off)
    assert "not taken" in moved.reason


def test_only_what_was_accepted_is_refined(pair):
    source, target, _ = pair
    found = register(source, target)
    with pytest.raises(ValueError, match="no registration to refine"):
        refine_se3(dataclasses.replace(found, accepted=False), source, target)
    with pytest.raises(ValueError, match="gicp, point_to_plane"):
        refine_se3(found, source, target, "magic")


def test_a_missing_library_is_named(pair, monkeypatch):
    def missing() -> None:
        raise PointRegistrationMissing("refinement on points needs small_gicp")

    monkeypatch.setattr(module, "load_small_gicp", missing)
    source, target, _ = pair
    with pytest.raises(PointRegistrationMissing, match="small_gicp"):
        refine_se3(register(source, target), source, target)
