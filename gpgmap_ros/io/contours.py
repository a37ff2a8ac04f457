"""Contour lines of a map as GeoJSON, in the coordinates of the map.

RFC 7946 knows longitude and latitude only. Maps are in projected or local coordinates, which GDAL and QGIS read with
the member `crs` of the specification of 2008; a local frame has none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from contourpy import LineType, contour_generator
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.storage.atomic import write_text

LINES = 20
"""Levels that a map has about, unless the interval is given."""
INDEX = 5
"""Every so many levels is drawn thicker on maps."""


def contour_interval(heights: NDArray[np.float32]) -> float:
    """Metres between levels: 1, 2 or 5 times a power of ten, so that there are about LINES of them."""
    spread = float(np.nanmax(heights) - np.nanmin(heights))
    least = max(spread / LINES, 1e-3)
    power = 10.0 ** np.floor(np.log10(least))
    return float(f"{next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least):.6g}")


def contour_lines(
    heights: NDArray[np.float32], grid: Grid, interval: float
) -> list[tuple[float, NDArray[np.float64]]]:
    """Level and points (N, 2) of each line, through the centres of the known cells. heights: `[iy, ix]`"""
    if not np.isfinite(heights).any():
        return []
    masked = np.ma.masked_invalid(np.asarray(heights, dtype=np.float64))
    made = contour_generator(grid.x, grid.y, masked, line_type=LineType.Separate)
    first = int(np.ceil(np.nanmin(heights) / interval))
    last = int(np.floor(np.nanmax(heights) / interval))
    return [
        (number * interval, np.asarray(line))
        for number in range(first, last + 1)
        for line in made.lines(number * interval)
    ]


def write_contours(
    path: Path, heights: NDArray[np.float32], grid: Grid, crs: Crs, interval: float | None = None
) -> None:
    """Write all lines; each has its elevation, and whether it is an index contour. interval: metres between them"""
    step = interval or contour_interval(heights)
    features = [
        {
            "type": "Feature",
            "properties": {"elevation": round(level, 6), "index": round(level / step) % INDEX == 0},
            "geometry": {"type": "LineString", "coordinates": np.round(line, 3).tolist()},
        }
        for level, line in contour_lines(heights, grid, step)
        if len(line) > 1
    ]
    collection: dict[str, Any] = {"type": "FeatureCollection", "name": "contours", "features": features}
    if crs.epsg:
        collection["crs"] = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{crs.epsg}"}}
    write_text(path, json.dumps(collection) + "\n")
