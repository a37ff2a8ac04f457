"""A sample of the points of a map, of bounded size, that does not depend on the order in which they came.

Every point has a number that follows from its coordinates as if drawn at random; those with the smallest numbers are
kept (a bottom-k sketch; Cohen and Kaplan, 2007). So samples of parts merge into the sample of all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gp_core.arrays import Array

SIZE: Final = 4096
"""Points that are kept: the share within an interval is then known to 0.7 %."""
_MIX: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_SHIFT: Final = np.uint64(29)

Numbers = np.ndarray[Any, np.dtype[np.uint64]]


class PointSample:
    """Points (N, 4) with x, y, height and noise variance, and their numbers (N,)."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self.points: Array = np.zeros((0, 4))
        self._numbers: Numbers = np.zeros(0, dtype=np.uint64)

    def add(self, xyz: Array, variance: Array) -> None:
        """Take in points (N, 3) with variances (N,)."""
        numbers = _numbers(xyz)
        if len(self.points) == self._size:
            low = numbers < self._numbers.max()
            xyz, variance, numbers = xyz[low], variance[low], numbers[low]
        self._merge(np.column_stack([xyz, variance]), numbers)

    def keep(self, inside: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Drop the points (N,) that are not `inside`: out of the window, or forgotten."""
        self.points, self._numbers = self.points[inside], self._numbers[inside]

    def _merge(self, points: Array, numbers: Numbers) -> None:
        points = np.concatenate([self.points, points])
        numbers = np.concatenate([self._numbers, numbers])
        if len(points) > self._size:
            lowest = np.argpartition(numbers, self._size - 1)[: self._size]
            points, numbers = points[lowest], numbers[lowest]
        self.points, self._numbers = points, numbers


def _numbers(xyz: Array) -> Numbers:
    """(N,) as good as random: the bits of the coordinates, multiplied and folded (overflow is meant)."""
    bits = np.ascontiguousarray(xyz.T, dtype=np.float64).view(np.uint64)
    total: Numbers = np.zeros(bits.shape[1], dtype=np.uint64)
    for coordinate, factor in zip(bits, _MIX, strict=True):
        total ^= coordinate
        total *= factor
        total ^= total >> _SHIFT
    return total
