"""Covariance of odometry by the distance driven."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import ClosureConfig, Drift
from gpgmap_ros.closure.graph.drift import estimate_tilt_std


def test_the_position_spreads_as_random_turns_and_steps_make_it() -> None:
    """Against trajectories whose every metre errs at random, in the plane."""
    drift = Drift(position_std=0.05, rotation_std=0.01)
    rng = np.random.default_rng(0)
    steps, count = 100, 4000
    heading = np.cumsum(rng.normal(scale=drift.rotation_std, size=(count, steps)), axis=1)
    lateral = np.sum(np.sin(heading), axis=1) + rng.normal(scale=drift.position_std * 10.0, size=count)
    assert np.isclose(np.var(lateral), drift.position_variance(float(steps)), rtol=0.08)
    np.testing.assert_allclose(np.var(heading[:, -1]), drift.covariance(steps)[5, 5], rtol=0.08)


def test_tilt_is_bounded_by_gravity_and_the_rest_grows() -> None:
    drift = Drift.from_config(ClosureConfig(drift_position=0.1, drift_rotation=0.02, tilt_std=1.0))
    short, long = drift.covariance(1.0), drift.covariance(1000.0)
    assert np.all(np.diag(long) >= np.diag(short))
    np.testing.assert_allclose(np.diag(long)[3:5], np.deg2rad(1.0) ** 2)
    np.testing.assert_allclose(drift.position_variance(np.array([1.0, 1000.0])), [short[0, 0], long[0, 0]])


def test_closures_measure_how_far_frames_lean() -> None:
    stated = np.deg2rad(2.0)
    assert estimate_tilt_std(stated, np.zeros((0, 4, 4))) == pytest.approx(stated / np.sqrt(2.0))
    rng = np.random.default_rng(1)
    lean = np.deg2rad(0.15)
    relative = np.tile(np.eye(4), (400, 1, 1))
    frames = [Rotation.from_euler("xyz", [*rng.normal(0.0, lean, 2), rng.uniform(-3, 3)]) for _ in range(800)]
    relative[:, :3, :3] = [(a.inv() * b).as_matrix() for a, b in zip(frames[::2], frames[1::2], strict=True)]
    assert estimate_tilt_std(stated, relative) == pytest.approx(lean, rel=0.6)
    assert estimate_tilt_std(stated, relative[:3]) > 2.0 * lean
