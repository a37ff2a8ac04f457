"""Rigid transforms: directions, interpolation, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import apply, interpolate, inverse, quaternion_of, transform_from


def random_transform(rng: np.random.Generator) -> np.ndarray:
    return transform_from(rng.normal(size=3), rng.normal(size=4))


def test_a_transform_takes_coordinates_from_b_to_a() -> None:
    # frame b stands at x = 1 in a and is turned left by 90 degrees: b's x axis is a's y axis
    T_a_b = transform_from([1, 0, 0], [0, 0, np.sin(np.pi / 4), np.cos(np.pi / 4)])
    np.testing.assert_allclose(apply(T_a_b, np.array([[2.0, 0.0, 0.0]])), [[1.0, 2.0, 0.0]], atol=1e-12)


def test_inverse_and_quaternion() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        T = random_transform(rng)
        np.testing.assert_allclose(inverse(T) @ T, np.eye(4), atol=1e-12)
        assert np.linalg.det(T[:3, :3]) == pytest.approx(1.0)
        np.testing.assert_allclose(transform_from(T[:3, 3], 3.0 * quaternion_of(T)), T, atol=1e-12)


def test_quaternions_agree_with_scipy() -> None:
    """Half turns about each axis too, where w is 0 and a division by it would fail."""
    rng = np.random.default_rng(2)
    half_turns = [Rotation.from_rotvec(np.pi * axis) for axis in (*np.eye(3), np.ones(3) / np.sqrt(3.0))]
    near = [turn * Rotation.from_rotvec(1e-7 * rng.normal(size=3)) for turn in half_turns]
    for rotation in (*half_turns, *near, *Rotation.random(100, random_state=0)):
        T = np.eye(4)
        T[:3, :3] = rotation.as_matrix()
        found = quaternion_of(T)
        assert found[3] >= 0.0
        assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(Rotation.from_quat(found).as_matrix(), T[:3, :3], atol=1e-12)


def test_interpolation_is_straight_and_turns_evenly() -> None:
    rng = np.random.default_rng(1)
    T0, T1 = random_transform(rng), random_transform(rng)
    np.testing.assert_allclose(interpolate(T0, T1, 0.0), T0, atol=1e-12)
    np.testing.assert_allclose(interpolate(T0, T1, 1.0), T1, atol=1e-12)
    angle = Rotation.from_matrix(T0[:3, :3].T @ T1[:3, :3]).magnitude()
    quarter = interpolate(T0, T1, 0.25)
    assert Rotation.from_matrix(T0[:3, :3].T @ quarter[:3, :3]).magnitude() == pytest.approx(0.25 * angle)
    np.testing.assert_allclose(quarter[:3, 3], 0.75 * T0[:3, 3] + 0.25 * T1[:3, 3])


@pytest.mark.parametrize("quaternion", [[0, 0, 0, 0], [np.nan, 0, 0, 1], [np.inf, 0, 0, 0]])
def test_what_is_no_rotation_is_refused(quaternion: list[float]) -> None:
    with pytest.raises(ValueError, match="is not a rotation"):
        transform_from([0, 0, 0], quaternion)


def test_a_translation_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        transform_from([0, np.nan, 0], [0, 0, 0, 1])
