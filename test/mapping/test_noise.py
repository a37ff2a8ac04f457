"""Noise per point against draws: what the formulas say is what errors of range, direction and pose do to heights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import ConfigError, NoiseConfig
from gpgmap_ros.mapping.noise import (
    PRESETS,
    check_pose_covariance,
    height_variance,
    pose_height_variance,
    sensor_model,
    shared_variance,
)

GRADIENT = np.array([0.3, -0.5])
BEAMS = np.array([[4.0, 3.0, -1.2], [0.2, -0.1, -1.5], [-12.0, 5.0, 0.5]])


def spread_above_plane(points: np.ndarray, beam: np.ndarray) -> float:
    """Variance of the heights of points (N, 3) above the plane through the end of the beam."""
    offset = points - beam
    return float(np.var(offset[:, 2] - offset[:, :2] @ GRADIENT))


@pytest.mark.parametrize("sensor", list(PRESETS))
def test_range_and_direction_errors_agree_with_draws(sensor: str) -> None:
    rng = np.random.default_rng(0)
    config = NoiseConfig(sensor=sensor, height_std=0.003)
    model = PRESETS[sensor]
    found = height_variance(BEAMS, np.tile(GRADIENT, (3, 1)), config)
    for beam, variance in zip(BEAMS, found, strict=True):
        r = float(np.linalg.norm(beam))
        std = model.range_std + model.range_factor * r + model.range_quadratic * r**2
        u = beam / r
        turns = rng.normal(0.0, model.angle_std, (200_000, 3))
        turns -= np.outer(turns @ u, u)  # turning about itself does not move a beam
        measured = Rotation.from_rotvec(turns).apply(u) * (r + rng.normal(0.0, std, (200_000, 1)))
        assert variance == pytest.approx(spread_above_plane(measured, beam) + 0.003**2, rel=0.02)


def test_pose_errors_agree_with_draws() -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6)) * np.array([0.05, 0.05, 0.05, 0.004, 0.004, 0.004])[:, None]
    covariance = root @ root.T
    errors = rng.multivariate_normal(np.zeros(6), covariance, 200_000)
    found = pose_height_variance(BEAMS, np.tile(GRADIENT, (3, 1)), covariance)
    for beam, variance in zip(BEAMS, found, strict=True):
        moved = Rotation.from_rotvec(errors[:, 3:]).apply(beam) + errors[:, :3]
        assert variance == pytest.approx(spread_above_plane(moved, beam), rel=0.02)


def test_unknown_ground_is_level_and_incidence_can_be_left_out() -> None:
    unknown = np.full((3, 2), np.nan)
    level = height_variance(BEAMS, np.zeros((3, 2)), NoiseConfig())
    np.testing.assert_array_equal(height_variance(BEAMS, unknown, NoiseConfig()), level)
    np.testing.assert_array_equal(height_variance(BEAMS, None, NoiseConfig()), level)
    steep = np.tile(GRADIENT, (3, 1))
    np.testing.assert_array_equal(height_variance(BEAMS, steep, NoiseConfig(incidence=False)), level)
    assert (height_variance(BEAMS, steep, NoiseConfig()) != level).all()
    covariance = np.diag([0.0, 0.0, 0.01, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(pose_height_variance(BEAMS, None, covariance), 0.01)


def test_stereo_grows_with_the_square_of_the_range() -> None:
    beams = np.array([[0.0, 0.0, -10.0], [0.0, 0.0, -20.0]])
    config = NoiseConfig(sensor="stereo", range_std=0.0, angle_std=0.0, height_std=1e-5)
    std = np.sqrt(height_variance(beams, None, config))
    assert std[1] / std[0] == pytest.approx(4.0, rel=1e-4)


def test_settings_override_the_preset_one_by_one() -> None:
    model = sensor_model(NoiseConfig(sensor="stereo", range_quadratic=0.002))
    assert model.range_quadratic == 0.002
    assert model.angle_std == PRESETS["stereo"].angle_std
    assert sensor_model(NoiseConfig(angle_std=0.0)).angle_std == 0.0
    with pytest.raises(ConfigError, match="must not be negative; -1 takes the preset's"):
        NoiseConfig(range_std=-0.5)


def test_a_point_at_the_sensor_has_a_finite_variance() -> None:
    assert np.isfinite(height_variance(np.zeros((1, 3)), None, NoiseConfig())).all()


def test_a_shared_error_does_not_average_out() -> None:
    patch = np.array([0, 0, 1, 0, 1])
    fused = 1.0 / np.bincount(patch, 1.0 / shared_variance(np.full(5, 0.04), patch))
    np.testing.assert_allclose(fused, 0.04)


def test_pose_covariances_are_checked() -> None:
    assert check_pose_covariance(None) is None
    assert check_pose_covariance([-1.0] + [0.0] * 35) is None
    np.testing.assert_array_equal(check_pose_covariance(np.eye(6).ravel()), np.eye(6))
    for bad, message in (
        (np.zeros(35), "6 x 6"),
        (np.full(36, np.nan), "not finite"),
        (-0.5 * np.eye(6), "negative variances"),
    ):
        with pytest.raises(ValueError, match=message):
            check_pose_covariance(bad)
