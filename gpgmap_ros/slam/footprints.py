"""Where the ground of many submaps lies: which of them a map at a supposed pose shares ground with, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.geometry import Array

Bounds = tuple[float, float, float, float]
"""x_min, y_min, x_max, y_max of a grid, metres."""

COVERED = 0.7
"""Part of a submap's ground from which on another one that shows it stands for both."""


def footprint_of(bounds: Bounds) -> tuple[Array, float]:
    """Middle (4,), homogeneous, and radius of the disc with the area of a grid that is cropped to what is known."""
    x_min, y_min, x_max, y_max = bounds
    middle = np.array([(x_min + x_max) / 2.0, (y_min + y_max) / 2.0, 0.0, 1.0])
    return middle, float(np.sqrt((x_max - x_min) * (y_max - y_min) / np.pi))


@dataclass(frozen=True, eq=False)
class Footprints:
    """Discs (N, 3): x and y in the map's frame, and radius. ids: (N,) of the submaps"""

    ids: NDArray[np.int64]
    discs: Array

    @classmethod
    def of(cls, ids: Sequence[int], poses: Sequence[Array], bounds: Sequence[Bounds]) -> Footprints:
        """Of submaps with these poses T_map_submap, and bounds of their grids."""
        rows = []
        for T, box in zip(poses, bounds, strict=True):
            middle, radius = footprint_of(box)
            rows.append([*(T @ middle)[:2], radius])
        return cls(np.array(ids, dtype=np.int64), np.array(rows).reshape(-1, 3))

    def shares(self, T_map_query: Array, bounds: Bounds, uncertainty: float = 0.0) -> Array:
        """(N,) shared part of the smaller disc for a map at this pose, if it is off by so many metres at worst."""
        middle, radius = footprint_of(bounds)
        away = self.discs[:, :2] - (T_map_query @ middle)[:2]
        return shared_part(np.hypot(away[:, 0], away[:, 1]) + uncertainty, self.discs[:, 2], radius)

    def cover(self) -> list[int]:
        """Ids of submaps that show nearly all of the ground: the newest, without those that one of them shows too.

        A site that is mapped again and again has ever more submaps, but no more of these.
        """
        kept: list[int] = []
        for k in reversed(range(len(self.ids))):
            x, y, radius = self.discs[k]
            others = self.discs[kept]
            away = np.hypot(others[:, 0] - x, others[:, 1] - y)
            if not (shared_area(away, others[:, 2], radius) >= COVERED * np.pi * radius**2).any():
                kept.append(k)
        return sorted(int(self.ids[k]) for k in kept)

    def nearest(self, T_map_query: Array, bounds: Bounds, spread: float, count: int) -> list[int]:
        """Ids of at most `count` submaps that may share ground with the map, most of it first.

        spread: metres by which the map may be elsewhere
        """
        possible = self.shares(T_map_query, bounds, -spread)
        likely = self.shares(T_map_query, bounds)
        order = np.lexsort((self.ids, -possible, -likely))
        return [int(self.ids[k]) for k in order[:count] if possible[k] > 0.0]


def shared_part(distance: Array, a: Array, b: float) -> Array:
    """Shared part of the smaller of two discs with radii a and b; a negative distance counts as none."""
    return np.asarray(shared_area(distance, a, b) / (np.pi * np.minimum(a, b) ** 2))


def shared_area(distance: Array, a: Array, b: float) -> Array:
    """Area that two discs with radii a and b share."""
    d = np.maximum(distance, 1e-9)
    first = np.arccos(np.clip((d**2 + a**2 - b**2) / (2.0 * d * a), -1.0, 1.0))
    second = np.arccos(np.clip((d**2 + b**2 - a**2) / (2.0 * d * b), -1.0, 1.0))
    kite = np.sqrt(np.maximum((a + b - d) * (d + a - b) * (d - a + b) * (d + a + b), 0.0))
    lens = a**2 * first + b**2 * second - 0.5 * kite
    inside = np.pi * np.minimum(a, b) ** 2
    return np.asarray(np.where(d >= a + b, 0.0, np.where(d <= np.abs(a - b), inside, lens)))
