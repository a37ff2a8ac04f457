"""Which points of a cloud are ground that the sensor saw; the others are counted by the reason why not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array, Mask
from gpgmap_ros.config import FilterConfig
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.cells import cell_ids, first_of_each
from gpgmap_ros.mapping.ground_trend import height_above_trend

REASONS = ("not_finite", "range", "robot", "height", "thinned", "overhang")
"""Why a point is left out; a point has one reason, the first."""


@dataclass(frozen=True)
class Selection:
    """The points of a cloud that are used.

    xyz: (N, 3) in the map's frame
    dropped: how many points were left out, for each of `REASONS`
    """

    xyz: Array
    dropped: dict[str, int]


def select_ground(
    points_sensor: Array, T_map_sensor: Array, T_base_sensor: Array | None, config: FilterConfig
) -> Selection:
    """Take a cloud (N, 3) to the map's frame and leave out what is not ground.

    T_base_sensor: the sensor's mount on the robot. Self box and height band refer to the base frame if it is given
    (the box turns with the robot; the band is measured upwards from the base's origin), else to the sensor's.
    """
    mount = np.eye(4) if T_base_sensor is None else T_base_sensor
    base_height = float((T_map_sensor @ inverse(mount))[2, 3])
    box = np.array(
        [
            [config.self_min_x, config.self_max_x],
            [config.self_min_y, config.self_max_y],
            [config.self_min_z, config.self_max_z],
        ]
    )
    ranges = (config.min_range**2, config.max_range**2)
    heights = (base_height + config.min_height, base_height + config.max_height)
    points = np.asarray(points_sensor)
    xyz, counts = np.empty((len(points), 3)), np.zeros(4, dtype=np.int64)
    kept = _in_bounds(
        points,
        T_map_sensor.astype(np.float64),
        mount.astype(np.float64),
        ranges,
        box,
        heights,
        xyz,
        counts,
    )
    xyz = xyz[:kept]
    dropped = dict.fromkeys(REASONS, 0) | dict(zip(REASONS, map(int, counts), strict=False))
    if config.voxel_size > 0.0:
        first = first_of_each(cell_ids(xyz, config.voxel_size))
        dropped["thinned"], xyz = int((~first).sum()), xyz[first]
    if config.lowest_surface:
        lowest = lowest_surface(xyz, config)
        dropped["overhang"], xyz = int((~lowest).sum()), xyz[lowest]
    return Selection(xyz, dropped)


@compiled()
def _in_bounds(points, T_map_sensor, T_base_sensor, ranges, box, heights, out, counts):  # type: ignore[no-untyped-def]
    """How many points pass; they are written to `out` in the map's frame.

    counts: (4,) of zeros, becomes how many fail at each of the first four of `REASONS`
    One pass, because a robot's whole budget for a cloud of 131,072 points is a few milliseconds.
    ranges: squared; box: (3, 2) in the base frame, its inside is the robot; heights: lowest and highest z in the map
    """
    has_box = box[0, 0] < box[0, 1] and box[1, 0] < box[1, 1] and box[2, 0] < box[2, 1]
    kept = 0
    for n in range(points.shape[0]):
        x, y, z = float(points[n, 0]), float(points[n, 1]), float(points[n, 2])
        squared = x * x + y * y + z * z
        if not np.isfinite(squared):  # NaN, infinity, or so absurd that it overflows
            counts[0] += 1
            continue
        if squared < ranges[0] or squared > ranges[1]:
            counts[1] += 1
            continue
        if has_box:
            T = T_base_sensor
            inside = True
            for d in range(3):
                at = T[d, 0] * x + T[d, 1] * y + T[d, 2] * z + T[d, 3]
                inside = inside and box[d, 0] < at < box[d, 1]
            if inside:
                counts[2] += 1
                continue
        T = T_map_sensor
        height = T[2, 0] * x + T[2, 1] * y + T[2, 2] * z + T[2, 3]
        if height < heights[0] or height > heights[1]:
            counts[3] += 1
            continue
        out[kept, 0] = T[0, 0] * x + T[0, 1] * y + T[0, 2] * z + T[0, 3]
        out[kept, 1] = T[1, 0] * x + T[1, 1] * y + T[1, 2] * z + T[1, 3]
        out[kept, 2] = height
        kept += 1
    return kept


def lowest_surface(xyz: Array, config: FilterConfig) -> Mask:
    """Mask (N,) of the points that belong to the lowest surface of their cell, where that is ground.

    Heights are measured above the trend of the ground around (ground_trend.py), so that cells may be large and the
    ground steep; what is as low as that belongs to the surface as well. A cell whose lowest surface is more than
    `lowest_clearance` above it has no ground: what is lowest there is a crown or a stem.
    """
    tolerance, support = config.lowest_tolerance, config.lowest_support
    above = height_above_trend(xyz, tolerance, support, config.lowest_slope)
    lowest, floors = lowest_layer(above, cell_ids(xyz[:, :2], config.lowest_cell), tolerance, support)
    low = (above >= floors) & (above <= tolerance)
    return np.asarray((lowest | low) & (floors <= config.lowest_clearance))


def lowest_layer(
    heights: Array, ids: NDArray[np.int64], tolerance: float, support: int
) -> tuple[Mask, Array]:
    """Which of N points are in the lowest layer of their cell, by their heights (N,), and where (N,) it begins.

    A layer begins at the lowest point that has `support` points, itself included, within `tolerance` above it, and
    ends that tolerance higher. Where a cell has no such point, its lowest point begins it.
    """
    starts = np.concatenate([[0], np.cumsum(np.bincount(ids))])
    floors = _floors(heights, ids, starts, tolerance, support)[ids] if len(ids) else np.empty(0)
    return (floors <= heights) & (heights <= floors + tolerance), floors


@compiled()
def _floors(z, ids, starts, tolerance, support):  # type: ignore[no-untyped-def]
    """(C,) where the layer of each cell begins.

    starts: where the heights of each cell begin when they are put together cell by cell
    """
    heights = np.empty(z.size)
    fill = starts.copy()
    for n in range(z.size):
        heights[fill[ids[n]]] = z[n]
        fill[ids[n]] += 1
    floors = np.empty(starts.size - 1)
    for cell in range(floors.size):
        here = np.sort(heights[starts[cell] : starts[cell + 1]])
        floors[cell] = here[0]
        for n in range(here.size - support + 1):
            if here[n + support - 1] <= here[n] + tolerance:
                floors[cell] = here[n]
                break
    return floors
