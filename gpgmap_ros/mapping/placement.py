"""A map moved to another origin and scale, as onto the grid of a projection."""

from __future__ import annotations

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import STORED


def place_map(gpgmap: GPGMap, origin: Array, scale: float, frame_id: str) -> GPGMap:
    """The map at origin + scale (x, y), height + z; its axes stay.

    origin: (3,) x, y and height of the map's origin in the other frame; scale: of lengths, near 1: slopes stay as they
    are; frame_id: of the other frame
    """
    corner = origin[:2] + scale * np.array(gpgmap.grid.origin)
    grid = Grid((float(corner[0]), float(corner[1])), gpgmap.grid.shape, scale * gpgmap.grid.resolution)
    layers = {name: gpgmap[name] for name in STORED if name in gpgmap.layers}
    layers["elevation"] = (layers["elevation"] + origin[2]).astype(np.float32)
    return GPGMap(grid, layers, frame_id, gpgmap.stamp, gpgmap.config)
