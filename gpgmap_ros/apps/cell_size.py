"""Cells that fit the clouds: a recording that was thinned can't fill the cells of a dense one.

Cells finer than the points are mostly unknown, and submaps in which a third of the cells is known can't be recognised.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.sensing.pointcloud2 import CloudError, read_xyz

CLOUDS = 5
REACH = 20.0
"""Metres around the sensor in which points are looked at."""
MIN_POINTS = 100
WORTHWHILE = 1.5
"""Times coarser than asked for, below which the cells stay."""
LENGTH_CELLS, MAP_CELLS, SUBMAP_CELLS = 3.5, 100, 200
"""Of the coarser cells: length scale, edge of the map, edge of a submap, at least."""
SUBMAP_WAY = 0.4
"""Way driven in a submap over its edge: neighbours then share half of their ground."""
ROUND = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """config: with cells that fit; reason: why they differ from what they were, empty where they do not

    changes: the settings that differ for that
    """

    config: Config
    reason: str
    changes: dict[str, float] = field(default_factory=dict)


def fit_cell_size(config: Config, recording: Recording, topic: str, given: Collection[str]) -> Scale:
    """Coarser cells, and a length scale and submaps to match, where the clouds of a topic are sparse.

    given: names of settings that are not to be touched; with `mapping.resolution` among them none is
    """
    if "mapping.resolution" in given:
        return Scale(config, "")
    spacing = _spacing(recording, topic)
    if spacing is None or spacing < WORTHWHILE * config.mapping.resolution:
        return Scale(config, "")
    edge = round_number(spacing)
    size = max(config.submap.size, SUBMAP_CELLS * edge)
    changes = {
        "mapping.resolution": edge,
        "mapping.length_scale": max(config.mapping.length_scale, LENGTH_CELLS * edge),
        "mapping.size_x": max(config.mapping.size_x, MAP_CELLS * edge),
        "mapping.size_y": max(config.mapping.size_y, MAP_CELLS * edge),
        "submap.size": size,
        "submap.resolution": max(config.submap.resolution, edge),
        "submap.length_scale": max(config.submap.length_scale, LENGTH_CELLS * edge),
        "submap.max_distance": max(config.submap.max_distance, SUBMAP_WAY * size)
        if config.submap.max_distance
        else 0.0,
    }
    changes = {name: round(value, 6) for name, value in changes.items() if name not in given}
    reason = (
        f"cells of {edge:g} m, since points are {spacing:.2g} m apart (submaps of {size:g} m); "
        f"--set mapping.resolution={config.mapping.resolution:g} leaves all that as it is by default"
    )
    return Scale(with_settings(config, changes), reason, changes)


def round_number(value: float) -> float:
    """The nearest of 1, 1.5, 2, 3, 5, 7 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    nearest = min(ROUND, key=lambda r: abs(math.log(r * power / value))) * power
    return float(f"{nearest:.3g}")  # 3 times 0.1 is not 0.3


def _spacing(recording: Recording, topic: str) -> float | None:
    """Distance of neighbouring points near the sensor, metres: the median over a few clouds; None if there are none."""
    decoder, found = Decoder(), []
    for message in recording.messages({topic}):
        try:
            xyz = read_xyz(decoder(message))
        except (CloudError, ValueError):
            continue
        xyz = xyz[np.hypot(xyz[:, 0], xyz[:, 1]) < REACH]
        if len(xyz) >= MIN_POINTS:
            found.append(_median_distance(xyz))
        if len(found) == CLOUDS:
            break
    return float(np.median(found)) if found else None


def _median_distance(xyz: NDArray[np.float64]) -> float:
    """Of each point to the nearest other one, in space: seen from above, those of a wall or a tree lie closer."""
    some = xyz[np.random.default_rng(0).permutation(len(xyz))[:2000]]
    distance, _ = cKDTree(xyz).query(some, k=2)
    return float(np.median(np.asarray(distance)[:, 1]))
