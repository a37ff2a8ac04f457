"""Trajectories in the TUM format: `time x y z qx qy qz qw`, seconds and metres, one pose a line, `#` for comments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.slam.trajectory import Trajectory
from gpgmap_ros.storage.atomic import write_text

FARTHEST = 1e9
"""Metres."""


class TrajectoryError(ValueError):
    """A file that is not a trajectory: which line, and why."""


def write_tum(path: Path, trajectory: Trajectory) -> None:
    """Positions have twelve digits: odometry in UTM, thousands of kilometres from its origin, keeps its millimetres."""
    rows = []
    if len(trajectory):
        quaternions = Rotation.from_matrix(trajectory.poses[:, :3, :3]).as_quat(canonical=True)
        for stamp, position, quaternion in zip(
            trajectory.stamps, trajectory.positions, quaternions, strict=True
        ):
            numbers = " ".join(
                [*(f"{value:.12g}" for value in position), *(f"{value:.9g}" for value in quaternion)]
            )
            rows.append(f"{stamp // NANOSECONDS}.{stamp % NANOSECONDS:09d} {numbers}\n")
    write_text(path, "# time x y z qx qy qz qw\n" + "".join(rows))


def read_tum(path: Path) -> Trajectory:
    """TrajectoryError where a line is not a pose."""
    stamps: list[int] = []
    rows: list[list[float]] = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TrajectoryError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        parts = line.replace(",", " ").split()
        if not parts or parts[0].startswith("#"):
            continue
        try:
            values = [float(part) for part in parts]
        except ValueError:
            raise TrajectoryError(f"{path}: line {number} is not a pose: {line[:60]!r}") from None
        if len(values) != 8 or not np.isfinite(values).all() or np.linalg.norm(values[4:]) < 1e-6:
            raise TrajectoryError(
                f"{path}: line {number}: expected 'time x y z qx qy qz qw', got {line[:60]!r}"
            )
        if abs(values[0]) * NANOSECONDS >= 2**63 or max(map(abs, values[1:4])) > FARTHEST:
            raise TrajectoryError(
                f"{path}: line {number}: no time or place can be that far away: {line[:60]!r}"
            )
        seconds, _, fraction = parts[0].partition(".")
        exact = seconds.lstrip("-").isdigit() and (fraction.isdigit() or not fraction)
        # a double can't hold nanoseconds since 1970
        stamps.append(
            int(seconds) * NANOSECONDS + int(fraction[:9].ljust(9, "0") or 0)
            if exact
            else round(values[0] * NANOSECONDS)
        )
        rows.append(values[1:])
    if not rows:
        raise TrajectoryError(f"{path}: the file has no poses")
    table, order = np.array(rows), np.argsort(np.array(stamps), kind="stable")
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3, :3] = Rotation.from_quat(table[:, 3:]).as_matrix()
    poses[:, :3, 3] = table[:, :3]
    return Trajectory(np.array(stamps, dtype=np.int64)[order], poses[order])


__all__ = ["Trajectory", "TrajectoryError", "read_tum", "write_tum"]
