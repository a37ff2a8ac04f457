"""Poses by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.geometry import Array, interpolate
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS


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
            pose: Array = self.poses[index]
            return pose
        if index == 0 or index == len(self):
            return None
        before, after = int(self.stamps[index - 1]), int(self.stamps[index])
        if after - before > gap * NANOSECONDS:
            return None
        return interpolate(self.poses[index - 1], self.poses[index], (stamp - before) / (after - before))
