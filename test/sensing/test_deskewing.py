"""Deskewing against rays cast from a moving sensor, and against another program's answer on real scans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from gpgmap_ros.sensing.deskewing import Motion, deskew

RNG = np.random.default_rng(4)


def transform(position: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_rotvec(rotation).as_matrix(), position
    return T


def test_points_of_a_curving_sensor_return_to_the_scene() -> None:
    """The sensor's poses follow from many small steps of the twist, independently of the closed form."""
    v, w = np.array([3.0, 0.2, -0.1]), np.array([0.05, -0.1, np.deg2rad(60.0)])
    scene, seconds = RNG.uniform(-20.0, 20.0, (500, 3)), RNG.uniform(-0.1, 0.1, 500)
    seen = []
    for p, t in zip(scene, seconds, strict=True):
        T, steps = np.eye(4), 400
        for _ in range(steps):
            T = T @ transform(v * t / steps, w * t / steps)
        seen.append((np.linalg.inv(T) @ [*p, 1.0])[:3])
    found = deskew(np.array(seen), seconds, Motion.constant(v, w, 0.1))
    np.testing.assert_allclose(found, scene, atol=2e-4)  # what 400 steps leave


def test_each_step_of_a_motion_counts_for_its_own_points() -> None:
    times = np.array([0.0, 0.05, 0.1])
    poses = np.stack([np.eye(4), transform(np.array([0.1, 0, 0]), np.zeros(3)),
                      transform(np.array([0.1, 0.3, 0]), np.zeros(3))])  # fmt: skip
    moved = deskew(np.zeros((4, 3)), np.array([0.025, 0.075, 0.1, -0.05]), Motion(times, poses))
    expected = [[0.05, 0, 0], [0.1, 0.15, 0], [0.1, 0.3, 0], [-0.1, 0, 0]]  # the last: before the first pose
    np.testing.assert_allclose(moved, expected, atol=1e-12)


def test_where_a_point_without_a_time_was_is_not_known() -> None:
    motion = Motion.constant(np.ones(3), np.ones(3), 1.0)
    moved = deskew(np.ones((2, 3)), np.array([np.nan, 0.0]), motion)
    np.testing.assert_array_equal(moved, [[np.nan] * 3, [1.0] * 3])


@pytest.mark.parametrize(
    ("times", "count", "message"),
    [([0.0], 1, "two or more poses"), ([0.0, 0.0], 2, "must grow"), ([0.0, 1.0], 3, "two or more poses")],
)
def test_what_is_no_motion_is_refused(times: list[float], count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Motion(np.array(times), np.tile(np.eye(4), (count, 1, 1)))


@pytest.mark.parametrize(("scan", "rigid", "limit"), [(0, 0.53, 0.06), (1, 0.49, 0.02), (2, 1.74, 0.09)])
def test_real_scans_agree_with_another_program(
    data_folder: Path, scan: int, rigid: float, limit: float
) -> None:
    """Turning at 33 to 100 deg/s. The best constant twist and the other program's axes are fitted together."""
    data = np.load(data_folder / "deskew_newer06.npz")
    raw, seconds, other = (
        np.asarray(data[f"{name}_{scan}"], dtype=np.float64) for name in ("raw", "times", "deskewed")
    )
    every = slice(None, None, 20)

    def residuals(x: np.ndarray, twist: bool, part: slice) -> np.ndarray:
        points = raw[part]
        if twist:
            points = deskew(points, seconds[part], Motion.constant(x[6:9], x[9:12], 0.2))
        return (points @ Rotation.from_rotvec(x[3:6]).as_matrix().T + x[:3] - other[part]).ravel()

    still = least_squares(residuals, np.zeros(6), args=(False, every), loss="soft_l1", f_scale=0.1)
    best = least_squares(
        residuals, np.append(still.x, np.zeros(6)), args=(True, every), loss="soft_l1", f_scale=0.05
    )
    rms = [
        np.sqrt(3.0 * np.mean(residuals(f.x, t, slice(None)) ** 2)) for f, t in ((still, False), (best, True))
    ]
    assert rms[0] > 0.8 * rigid
    assert rms[1] <= limit
