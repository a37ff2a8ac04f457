"""Which poses, stamps and numbers are accepted, and what the refusal of the others says."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.mapping.plausible import FARTHEST, LATEST, check_number, check_pose, check_poses, check_stamp


def pose(yaw: float = 0.3, x: float = 2.0) -> np.ndarray:
    T = np.eye(4)
    T[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    T[0, 3] = x
    return T


def changed(at: tuple[int, int], value: float) -> np.ndarray:
    T = pose()
    T[at] = value
    return T


def test_rigid_transforms_are_returned_as_they_are() -> None:
    np.testing.assert_array_equal(check_pose(pose(x=FARTHEST), "pose"), pose(x=FARTHEST))
    many = np.array([pose(yaw) for yaw in (0.0, 1.0, 3.0)])
    np.testing.assert_array_equal(check_poses(many, "track"), many)
    assert check_poses(np.zeros((0, 4, 4)), "track").shape == (0, 4, 4)


@pytest.mark.parametrize(
    ("T", "reason"),
    [
        (np.eye(3), "4 x 4"),
        (changed((0, 3), np.nan), "finite"),
        (2.0 * np.eye(4), "not a rotation"),
        (np.diag([1.0, 1.0, -1.0, 1.0]), "not a rotation"),
        (changed((0, 0), 1e200), "not a rotation"),
        (pose(x=1.1 * FARTHEST), "m away"),
        (changed((3, 0), 0.1), "last row"),
    ],
    ids=["shape", "nan", "scaled", "mirrored", "huge", "far", "projective"],
)
def test_other_matrices_are_refused_by_name_and_reason(T: np.ndarray, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^the anchor.*{reason}"):
        check_pose(T, "the anchor")


def test_one_bad_pose_of_many_is_enough() -> None:
    with pytest.raises(ValueError, match="not a rotation"):
        check_poses(np.array([pose(), changed((0, 0), 0.5), pose()]), "track")


def test_stamps_are_integers_that_ros_can_carry() -> None:
    assert check_stamp(0, "stamp") == 0
    assert check_stamp(LATEST - 1, "stamp") == LATEST - 1
    for bad in (-1, LATEST, 1.0, True, "1", None):
        with pytest.raises(ValueError, match="not a stamp"):
            check_stamp(bad, "stamp")


def test_numbers_are_finite_and_within_their_limits() -> None:
    assert check_number(3, "cells", 0, 3) == 3.0
    for bad in (-0.1, 3.1, float("nan"), float("inf"), True, "2", None):
        with pytest.raises(ValueError, match="cells must be a number from 0 to 3"):
            check_number(bad, "cells", 0, 3)
