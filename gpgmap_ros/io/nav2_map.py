"""Traversability as a map for nav2_map_server: a PGM and its YAML, in the mode `trinary`.

The server reads occupancy as (255 - pixel) / 255: white is free, black is occupied, and what lies between the
thresholds is unknown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpgmap_ros.io.staged import staged, write_text
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import image_from_layer

UNKNOWN_PIXEL = 205
"""Occupancy 0.196: above the free and below the occupied threshold, as every SLAM map of ROS has it."""
FREE, OCCUPIED = 0.19, 0.65


def write_nav2_map(path: Path, gpgmap: GPGMap, free: float = 0.8, occupied: float = 0.35) -> Path:
    """Write path.pgm and path.yaml (mode trinary); returns the YAML.

    free, occupied: probabilities of being traversable from which a cell is free, and up to which it is occupied;
    between them, and where nothing is known, it is unknown
    """
    probability = gpgmap["traversability"]
    pixels = np.full(probability.shape, UNKNOWN_PIXEL, dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        pixels[probability >= free] = 254
        pixels[probability <= occupied] = 0
    image = image_from_layer(pixels)
    rows, columns = image.shape
    pgm, yaml = path.with_suffix(".pgm"), path.with_suffix(".yaml")
    with staged(pgm) as beside:
        beside.write_bytes(
            f"P5\n# gpgmap, {gpgmap.grid.resolution:g} m/pixel\n{columns} {rows}\n255\n".encode()
            + image.tobytes()
        )
    x, y = gpgmap.grid.origin
    write_text(
        yaml,
        f"image: {pgm.name}\nmode: trinary\nresolution: {gpgmap.grid.resolution:.9g}\n"
        f"origin: [{x:.9g}, {y:.9g}, 0.0]\nnegate: 0\noccupied_thresh: {OCCUPIED}\nfree_thresh: {FREE}\n",
    )
    return yaml
