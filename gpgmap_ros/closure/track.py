"""The robot's trajectory for display: as long as the drive, but of a bounded number of poses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.arrays import Array
from gpgmap_ros.closure.rows import Rows

Stamps = NDArray[np.int64]


def stride_for(count: int, most: int) -> int:
    """The smallest power of two such that at most so many of `count` poses are multiples of it."""
    stride = 1
    while (count + stride - 1) // stride > most:
        stride *= 2
    return stride


class ThinnedTrack:
    """Every pose of a trajectory, then every second, every fourth, so that `most` are never exceeded; and the last.

    Which poses are kept depends on how many there are only, so that the beginning can be handed over thinned.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.replace(np.zeros(0, dtype=np.int64), np.zeros((0, 4, 4)), 0)

    def replace(self, stamps: Stamps, poses: Array, count: int) -> None:
        """Begin with `count` poses, of which those at multiples of the stride, and the last, are given."""
        self._count, self._stride = count, stride_for(count, self._most)
        kept = (count + self._stride - 1) // self._stride
        self._stamps, self._poses = Rows(stamps[:kept]), Rows(poses[:kept])
        self._last = (stamps[-1:], poses[-1:])

    def extend(self, stamps: Stamps, poses: Array) -> None:
        """Add the poses that follow."""
        if not len(stamps):
            return
        first = -self._count % self._stride
        self._stamps.extend(stamps[first :: self._stride])
        self._poses.extend(poses[first :: self._stride])
        self._count += len(stamps)
        self._last = (stamps[-1:], poses[-1:])
        stride = stride_for(self._count, self._most)
        if stride != self._stride:
            step = stride // self._stride
            self._stamps, self._poses = Rows(self._stamps.values[::step]), Rows(self._poses.values[::step])
            self._stride = stride

    def arrays(self) -> tuple[Stamps, Array]:
        """Stamps (K,) and poses (K, 4, 4); K is at most one more than `most`."""
        if not self._count or (self._count - 1) % self._stride == 0:
            return self._stamps.values, self._poses.values
        return (
            np.concatenate([self._stamps.values, self._last[0]]),
            np.concatenate([self._poses.values, self._last[1]]),
        )


def thinned(stamps: Stamps, poses: Array, most: int) -> tuple[Stamps, Array]:
    """What `ThinnedTrack.replace` takes of a whole trajectory."""
    stride = stride_for(len(stamps), most)
    chosen = np.arange(0, len(stamps), stride)
    if len(stamps) and chosen[-1] != len(stamps) - 1:
        chosen = np.append(chosen, len(stamps) - 1)
    return stamps[chosen], poses[chosen]
