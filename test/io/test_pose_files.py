"""Trajectory files of three kinds give the same poses; what is none is refused with the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.io.pose_files import read_pose_file
from gpgmap_ros.io.trajectory import TrajectoryError

STAMPS = [1_630_577_758_100_000_000 + 100_000_000 * k for k in range(3)]
R = Rotation.from_euler("zyx", [[10 * k, 2, -3] for k in range(3)], degrees=True)
POSITIONS = np.array([[0.5 * k, -0.1 * k, 0.02] for k in range(3)])


def tum() -> str:
    return "# time x y z qx qy qz qw\n" + "".join(
        f"{s // 10**9}.{s % 10**9:09d} {' '.join(map(repr, map(float, [*p, *q])))}\n"
        for s, p, q in zip(STAMPS, POSITIONS, R.as_quat(), strict=True)
    )


def euroc() -> str:
    rows = zip(STAMPS, POSITIONS, R.as_quat()[:, [3, 0, 1, 2]], strict=True)
    return "#timestamp, p_x, p_y, p_z, q_w, q_x, q_y, q_z, v_x\n" + "".join(
        f"{s},{','.join(map(repr, map(float, [*p, *q, 9.0])))}\n" for s, p, q in rows
    )


def kitti() -> str:
    rows = np.concatenate([R.as_matrix(), POSITIONS[:, :, None]], axis=2).reshape(3, 12)
    return "".join(" ".join(f"{float(v)!r}" for v in row) + "\n" for row in rows)


@pytest.mark.parametrize("text", [tum(), euroc(), kitti()], ids=["tum", "euroc", "kitti"])
def test_all_kinds_give_the_same_poses(tmp_path: Path, text: str) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(text)
    found = read_pose_file(path, lambda: STAMPS)
    assert found.stamps.tolist() == STAMPS
    np.testing.assert_allclose(found.positions, POSITIONS, atol=1e-12)
    np.testing.assert_allclose(found.poses[:, :3, :3], R.as_matrix(), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (kitti() + kitti(), "6 poses need as many clouds, there are 3"),
        (kitti().replace("0.02", "nan"), "expected 12 numbers"),
        ("2 0 0 0 0 1 0 0 0 0 1 0\n" * 3, "line 1: its 3 x 3 part is no rotation"),
        (euroc() + "7,1,2\n", "line 5: expected 'nanoseconds, x, y, z"),
        (euroc() + "soon,1,2,3,4,5,6,7\n", "line 5 is no pose"),
        ("time,x,y,z\n", "the file has no poses"),
        ("", "the file has no poses"),
    ],
)
def test_what_is_no_trajectory_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(text)
    with pytest.raises(TrajectoryError, match=message):
        read_pose_file(path, lambda: STAMPS)
