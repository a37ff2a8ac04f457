"""A map seen from the south at an angle, drawn with NumPy alone: where there is no renderer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.viz.open3d_mesh import surface_colours
from gpgmap_ros.viz.rendering import certainty, relief_shade, shade_pixels

Pixels = NDArray[np.uint8]
TILT = np.radians(40.0)
PAPER = 255


def oblique_view(gpgmap: GPGMap, colour: str, width: int) -> Pixels:
    """(height, width, 3) parallel projection of the shaded surface, row 0 at the top.

    Rows of cells are drawn from the farthest to the nearest; each covers the pixels between its own edge and that of
    the next, so that nearer ground hides what lies behind it.
    """
    light = relief_shade(gpgmap["gradient_x"], gpgmap["gradient_y"])
    colours = shade_pixels(surface_colours(gpgmap, colour), light, certain=certainty(gpgmap))
    step = max(1, -(-gpgmap.grid.shape[1] // width))
    colours, heights = colours[::step, ::step], gpgmap["elevation"][::step, ::step].astype(np.float64)
    if repeat := width // heights.shape[1]:  # small maps: as many pixels per cell as fit
        colours, heights = (np.repeat(np.repeat(a, repeat, 0), repeat, 1) for a in (colours, heights))
    scale = max(repeat, 1) / (step * gpgmap.grid.resolution)  # pixels per metre
    rows, columns = heights.shape
    base = float(np.nanmin(heights))
    # screen row of each cell, upwards from the nearest row of cells at the lowest height
    up = np.arange(rows)[:, None] * np.sin(TILT) + (heights - base) * scale * np.cos(TILT)
    total = int(np.ceil(np.nanmax(up))) + 2
    picture = np.full((total, columns, 3), PAPER, dtype=np.uint8)
    column = np.arange(columns)
    for row in range(rows - 1, -1, -1):
        top = up[row]
        below = up[row - 1] if row else top - 1.0
        bottom = np.where(np.isfinite(below), np.minimum(below, top), top - 1.0)
        known = np.isfinite(top)
        if not known.any():
            continue
        first = np.floor(bottom[known]).astype(int).clip(0)
        last = np.ceil(top[known]).astype(int).clip(0, total - 1)
        for level in range(int((last - first).max()) + 1):
            at = first + level
            drawn = at <= last
            picture[at[drawn], column[known][drawn]] = colours[row, known][drawn]
    return np.ascontiguousarray(picture[::-1])
