"""Trajectories in the TUM format: `time x y z qx qy qz qw`, seconds and metres, one pose a line, `#` for comments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import interpolate
from gpgmap_ros.io.staged import staged
from gpgmap_ros.transform_buffer import NANOSECONDS

Array = NDArray[np.float64]


FARTHEST = 1e9
"""Metres."""


class TrajectoryError(ValueError):
    """A file that is no trajectory: which line, and why."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """stamps: (N,) nanoseconds, ascending; poses: (N, 4, 4)."""

    stamps: NDArray[np.int64]
    poses: Array

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def positions(self) -> Array:
        return self.poses[:, :3, 3]

    @property
    def length(self) -> float:
        """Metres."""
        return float(np.linalg.norm(np.diff(self.positions, axis=0), axis=1).sum()) if len(self) > 1 else 0.0

    def at(self, stamp: int, gap: float = 1.0) -> Array | None:
        """The pose at a time, interpolated; None outside, or where the neighbours are more than `gap` seconds apart."""
        index = int(np.searchsorted(self.stamps, stamp))
        if index < len(self) and self.stamps[index] == stamp:
            return self.poses[index]
        if index == 0 or index == len(self):
            return None
        before, after = int(self.stamps[index - 1]), int(self.stamps[index])
        if after - before > gap * NANOSECONDS:
            return None
        return interpolate(self.poses[index - 1], self.poses[index], (stamp - before) / (after - before))


def write_tum(path: Path, trajectory: Trajectory) -> None:
    rows = []
    if len(trajectory):
        quaternions = Rotation.from_matrix(trajectory.poses[:, :3, :3]).as_quat(canonical=True)
        for stamp, position, quaternion in zip(
            trajectory.stamps, trajectory.positions, quaternions, strict=True
        ):
            numbers = " ".join(f"{value:.9g}" for value in (*position, *quaternion))
            rows.append(f"{stamp // NANOSECONDS}.{stamp % NANOSECONDS:09d} {numbers}\n")
    with staged(path) as beside:
        beside.write_text("# time x y z qx qy qz qw\n" + "".join(rows))


def read_tum(path: Path) -> Trajectory:
    """TrajectoryError where a line is no pose."""
    stamps: list[int] = []
    rows: list[list[float]] = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TrajectoryError(f"{path}: can't be read: {error}") from error
    for number, line in enumerate(lines, 1):
        parts = line.replace(",", " ").split()
        if not parts or parts[0].startswith("#"):
            continue
        try:
            values = [float(part) for part in parts]
        except ValueError:
            raise TrajectoryError(f"{path}: line {number} is no pose: {line[:60]!r}") from None
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
        raise TrajectoryError(f"{path}: there is no pose in it")
    table, order = np.array(rows), np.argsort(np.array(stamps), kind="stable")
    poses = np.tile(np.eye(4), (len(table), 1, 1))
    poses[:, :3, :3] = Rotation.from_quat(table[:, 3:]).as_matrix()
    poses[:, :3, 3] = table[:, :3]
    return Trajectory(np.array(stamps, dtype=np.int64)[order], poses[order])
