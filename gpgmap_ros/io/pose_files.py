"""Trajectory files as poses: TUM, EuRoC (CSV) and KITTI, recognised by their lines.

TUM:    time x y z qx qy qz qw          seconds
EuRoC:  time, x, y, z, qw, qx, qy, qz, ...    nanoseconds, separated by commas; further columns are not read
KITTI:  r11 r12 r13 x r21 r22 r23 y r31 r32 r33 z     no times: poses go with the clouds, one by one
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array
from gpgmap_ros.io.trajectory import TrajectoryError, read_tum
from gpgmap_ros.slam.trajectory import Trajectory

MAX_SKEW = 1e-3
"""Deviation of a KITTI rotation from an orthogonal matrix that rounding explains."""


def read_pose_file(path: Path, cloud_stamps: Callable[[], list[int]]) -> Trajectory:
    """The trajectory in a file. TrajectoryError where it is none.

    cloud_stamps: gives the stamps of the clouds, nanoseconds, for a KITTI file, which has no times
    """
    try:
        first = next(
            (
                line
                for line in path.read_text().splitlines()
                if line.strip() and not line.lstrip().startswith("#")
            ),
            "",
        )
    except (OSError, UnicodeDecodeError) as error:
        raise TrajectoryError(f"{path}: can't be read: {error}") from error
    if "," in first:
        return _read_euroc(path)
    if len(first.split()) == 12:
        return _read_kitti(path, cloud_stamps())
    return read_tum(path)


def _read_euroc(path: Path) -> Trajectory:
    stamps: list[int] = []
    rows: list[list[float]] = []
    for number, line in _lines(path):
        parts = [part.strip() for part in line.split(",")]
        try:
            values = [float(part) for part in parts[1:8]]
            stamps.append(int(parts[0]))
        except ValueError:
            if not rows:
                continue  # names of the columns
            raise TrajectoryError(f"{path}: line {number} is no pose: {line[:60]!r}") from None
        if len(values) != 7 or not np.isfinite(values).all() or np.linalg.norm(values[3:]) < 1e-6:
            raise TrajectoryError(
                f"{path}: line {number}: expected 'nanoseconds, x, y, z, qw, qx, qy, qz', got {line[:60]!r}"
            )
        rows.append(values)
    if not rows:
        raise TrajectoryError(f"{path}: the file has no poses")
    table, order = np.array(rows), np.argsort(np.array(stamps), kind="stable")
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3, :3] = Rotation.from_quat(table[:, [4, 5, 6, 3]]).as_matrix()
    poses[:, :3, 3] = table[:, :3]
    return Trajectory(np.array(stamps, dtype=np.int64)[order], poses[order])


def _read_kitti(path: Path, stamps: list[int]) -> Trajectory:
    rows: list[Array] = []
    for number, line in _lines(path):
        try:
            values = np.array([float(part) for part in line.split()])
        except ValueError:
            raise TrajectoryError(f"{path}: line {number} is no pose: {line[:60]!r}") from None
        if values.shape != (12,) or not np.isfinite(values).all():
            raise TrajectoryError(f"{path}: line {number}: expected 12 numbers, got {line[:60]!r}")
        T = np.vstack([values.reshape(3, 4), [0.0, 0.0, 0.0, 1.0]])
        R = T[:3, :3]
        if np.abs(R @ R.T - np.eye(3)).max() > MAX_SKEW or np.linalg.det(R) < 0.0:
            raise TrajectoryError(f"{path}: line {number}: its 3 x 3 part is no rotation")
        rows.append(T)
    if len(stamps) != len(rows):
        raise TrajectoryError(
            f"{path}: a KITTI file has no times: {len(rows)} poses need as many clouds, there are {len(stamps)}"
        )
    order = np.argsort(np.array(stamps), kind="stable")
    return Trajectory(np.array(stamps, dtype=np.int64)[order], np.stack(rows)[order])


def _lines(path: Path) -> list[tuple[int, str]]:
    """Number and text of the lines that are neither empty nor comments."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return [(number, line) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
