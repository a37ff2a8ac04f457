"""Traversability as a map for nav2_map_server: a PGM and its YAML, in the mode `trinary`.

The server reads occupancy as (255 - pixel) / 255: white is free, black is occupied, and what lies between the
thresholds is unknown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import FREE, OCCUPIED, image_from_layer, obstacles_from_layer
from gpgmap_ros.storage.atomic import write_bytes, write_text

UNKNOWN_PIXEL = 205
"""Occupancy 0.196: above the free and below the occupied threshold, as every SLAM map of ROS has it."""
FREE_PIXEL, OCCUPIED_PIXEL = 254, 0
FREE_THRESHOLD, OCCUPIED_THRESHOLD = 0.19, 0.65


def write_nav2_map(path: Path, gpgmap: GPGMap) -> Path:
    """Write path.pgm and path.yaml (mode trinary); returns the YAML.

    A cell whose risk is above `traversability.max_risk` is occupied, every other known one is free. A doubtful cell is
    not unknown: Nav2's costmaps read unknown as free unless `track_unknown_space` is set.
    """
    cells = obstacles_from_layer(gpgmap["traversability"], gpgmap.config.traversability.max_risk)
    pixels = np.full(cells.shape, UNKNOWN_PIXEL, dtype=np.uint8)
    pixels[cells == FREE] = FREE_PIXEL
    pixels[cells == OCCUPIED] = OCCUPIED_PIXEL
    image = image_from_layer(pixels.reshape(gpgmap.grid.shape))
    rows, columns = image.shape
    pgm, yaml = path.with_suffix(".pgm"), path.with_suffix(".yaml")
    header = f"P5\n# gpgmap, {gpgmap.grid.resolution:g} m/pixel\n{columns} {rows}\n255\n"
    write_bytes(pgm, header.encode() + image.tobytes())
    x, y = gpgmap.grid.origin
    write_text(
        yaml,
        f"image: {pgm.name}\nmode: trinary\nresolution: {gpgmap.grid.resolution:.9g}\n"
        f"origin: [{x:.9g}, {y:.9g}, 0.0]\nnegate: 0\n"
        f"occupied_thresh: {OCCUPIED_THRESHOLD}\nfree_thresh: {FREE_THRESHOLD}\n",
    )
    return yaml
