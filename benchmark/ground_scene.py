"""Real ground with made objects on it, as an airborne LiDAR sees them: which returns are ground is known.

Trees (stem, and a crown of leaves that hides part of the ground), bushes, buildings (roof and walls; the ground under
them is not seen), wires, and stray returns above and below. All heights are those of the real points around.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rng = np.random.Generator

KINDS = ("ground", "tree", "bush", "building", "wire", "stray above", "stray below")
SEEN_UNDER_LEAVES = 0.35
"""Share of the ground's returns that come through a crown."""


@dataclass(frozen=True)
class Objects:
    """How many there are on a square kilometre. scale: of their sizes"""

    trees: float = 8_000.0
    bushes: float = 8_000.0
    buildings: float = 120.0
    wires: float = 40.0
    strays: float = 2_000.0
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Scene:
    """Points (N, 3), and of each the index into KINDS (N,)."""

    xyz: Array
    kind: NDArray[np.int64]

    @property
    def is_ground(self) -> Mask:
        return np.asarray(self.kind == 0)


def make_scene(ground: Array, objects: Objects, rng: Rng) -> Scene:
    """Objects on the ground (N, 3), whose density they are seen with."""
    tree = cKDTree(ground[:, :2])
    low, high = ground[:, :2].min(axis=0), ground[:, :2].max(axis=0)
    area = float(np.prod(high - low))
    density = len(ground) / area
    seen = np.ones(len(ground), dtype=bool)
    parts, kinds = [], []

    def height_at(xy: Array) -> Array:
        return np.asarray(ground[tree.query(xy)[1], 2])

    def places(per_km2: float) -> Array:
        return rng.uniform(low, high, (rng.poisson(per_km2 * area / 1e6 / objects.scale**2), 2))

    def put(points: Array, kind: str) -> None:
        parts.append(points)
        kinds.append(np.full(len(points), KINDS.index(kind)))

    for kind, count in (("tree", objects.trees), ("bush", objects.bushes)):
        for at in places(count):
            base, s = height_at(at[None])[0], objects.scale
            radius = s * (rng.uniform(1.2, 4.0) if kind == "tree" else rng.uniform(0.3, 1.2))
            bottom = s * rng.uniform(1.5, 4.0) if kind == "tree" else 0.0
            half = s * rng.uniform(2.0, 6.0) if kind == "tree" else 0.6 * radius
            leaves = in_ellipsoid(rng.poisson(1.5 * density * np.pi * radius**2), rng) * [
                radius,
                radius,
                half,
            ]
            put(leaves + np.array([*at, base + bottom + half]), kind)
            if kind == "tree":
                stem = rng.normal(0.0, 0.1 * s, (rng.poisson(4.0), 2))
                put(np.column_stack([stem + at, base + rng.uniform(0.3 * s, bottom + half, len(stem))]), kind)
            under = np.array(tree.query_ball_point(at, radius), dtype=int)
            seen[under[rng.random(len(under)) > SEEN_UNDER_LEAVES]] = False
    for at in places(objects.buildings):
        size, turn = objects.scale * rng.uniform([8.0, 6.0], [25.0, 15.0]), rng.uniform(0.0, np.pi)
        put(*building(at, size, turn, objects.scale * rng.uniform(3.5, 9.0), density, height_at, rng))
        local = turned(ground[:, :2] - at, -turn)
        seen &= (np.abs(local) > size / 2.0).any(axis=1)
    for at in places(objects.wires):
        length, turn = objects.scale * rng.uniform(30.0, 80.0), rng.uniform(0.0, 2.0 * np.pi)
        along = np.sort(rng.uniform(0.0, length, rng.poisson(2.0 * length)))
        xy = at + along[:, None] * [np.cos(turn), np.sin(turn)]
        ends = height_at(xy[[0, -1]]) if len(xy) else np.zeros(2)
        top = ends.max() + objects.scale * rng.uniform(7.0, 14.0)
        sag = 4.0 * objects.scale * (along / length) * (along / length - 1.0)
        put(np.column_stack([xy, top + sag]), "wire")
    xy = places(objects.strays)
    put(np.column_stack([xy, height_at(xy) + rng.uniform(5.0, 80.0, len(xy))]), "stray above")
    xy = places(objects.strays)
    put(np.column_stack([xy, height_at(xy) - objects.scale * rng.uniform(1.0, 15.0, len(xy))]), "stray below")
    xyz = np.concatenate([ground[seen], *parts])
    kind = np.concatenate([np.zeros(int(seen.sum()), dtype=np.int64), *kinds])
    order = rng.permutation(len(xyz))
    return Scene(xyz[order], kind[order])


def in_ellipsoid(count: int, rng: Rng) -> Array:
    """(count, 3) in the unit sphere, more of them near its upper side, where beams enter."""
    points = rng.normal(size=(count, 3))
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    points *= rng.uniform(0.0, 1.0, (count, 1)) ** (1.0 / 6.0)
    down = (points[:, 2] < 0.0) & (rng.random(count) < 0.5)
    points[down, 2] *= -1.0
    return points


def turned(xy: Array, angle: float) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return xy @ np.array([[c, s], [-s, c]])


def building(
    at: Array, size: Array, turn: float, height: float, density: float, height_at: object, rng: Rng
) -> tuple[Array, str]:
    """A roof with a ridge along its longer side, and a few returns from the walls, which reach to the ground."""
    local = rng.uniform(-size / 2.0, size / 2.0, (rng.poisson(density * size[0] * size[1]), 2))
    xy = turned(local, turn) + at
    corners = turned(np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) * size / 2.0, turn) + at
    base = float(np.max(height_at(corners)))  # type: ignore[operator]
    slope = rng.choice([0.0, 0.6])
    roof = base + height + slope * (size[1] / 2.0 - np.abs(local[:, 1]))
    edge = rng.uniform(-0.5, 0.5, (rng.poisson(2.0 * density * size.sum() * 0.2), 2)) * size
    side = rng.random(len(edge)) < 0.5
    edge[side, 0] = np.sign(edge[side, 0]) * size[0] / 2.0
    edge[~side, 1] = np.sign(edge[~side, 1]) * size[1] / 2.0
    wall = turned(edge, turn) + at
    foot = height_at(wall) + 0.3 if len(wall) else np.empty(0)  # type: ignore[operator]
    walls = np.column_stack([wall, foot + rng.random(len(wall)) * np.maximum(base + height - foot, 0.0)])
    return np.vstack([np.column_stack([xy, roof]), walls]), "building"
