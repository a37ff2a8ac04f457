"""A STAC item: one file of text by which catalogues, QGIS and programs find the rasters of a map, and where they lie.

STAC 1.0.0 with the extensions `projection` and `raster`. Places of files are kept relative to the item, so that a run
can be moved as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.storage.atomic import write_json

EXTENSIONS = (
    "https://stac-extensions.github.io/projection/v1.1.0/schema.json",
    "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
)
COG, VRT = "image/tiff; application=geotiff; profile=cloud-optimized", "application/x-gdal-vrt+xml"
ALONG_EDGE = 16
"""Points along an edge of the map: straight in its coordinates, an edge is bent in degrees."""
Ring = list[list[float]]


@dataclass(frozen=True)
class Asset:
    """A raster of an item. grid: its cells; meaning, unit: of its values"""

    path: Path
    grid: Grid
    meaning: str
    unit: str


def write_item(
    path: Path, name: str, grid: Grid, crs: Crs, assets: Mapping[str, Asset], newest: float
) -> None:
    """Write the item of a map on `grid`. newest: time of its data, seconds since 1970"""
    ring = outline_in_degrees(grid, crs)
    box = [*np.min(ring, axis=0), *np.max(ring, axis=0)] if ring else []  # west, south, east, north
    item = {
        "type": "Feature",
        "stac_version": "1.0.0",
        "stac_extensions": list(EXTENSIONS),
        "id": name,
        "geometry": {"type": "Polygon", "coordinates": [ring]} if ring else None,
        **({"bbox": [float(value) for value in box]} if ring else {}),
        "properties": {
            "datetime": datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "gsd": grid.resolution,
            "proj:epsg": crs.epsg or None,
            **placement(grid),
        },
        "links": [],
        "assets": {key: describe_asset(asset, path.parent) for key, asset in assets.items()},
    }
    write_json(path, item)


def placement(grid: Grid) -> dict[str, Any]:
    """Fields of the projection extension: where the cells lie, rows counted from the north."""
    low_x, low_y, high_x, high_y = grid.bounds
    return {
        "proj:shape": list(grid.shape),
        "proj:transform": [grid.resolution, 0.0, low_x, 0.0, -grid.resolution, high_y],
        "proj:bbox": [low_x, low_y, high_x, high_y],
    }


def describe_asset(asset: Asset, folder: Path) -> dict[str, Any]:
    return {
        "href": f"./{asset.path.relative_to(folder).as_posix()}",
        "type": VRT if asset.path.suffix == ".vrt" else COG,
        "title": asset.meaning,
        "roles": ["data"],
        **placement(asset.grid),
        "raster:bands": [
            {"data_type": "float32", "nodata": "nan", "unit": asset.unit, "spatial_resolution": asset.grid.resolution}
        ],
    }  # fmt: skip


def outline_in_degrees(grid: Grid, crs: Crs) -> Ring:
    """Longitude and latitude (WGS 84) along the edge of the map, counter-clockwise and closed.

    Empty where the coordinate system is not known, where pyproj is not installed, and for a map across the date line,
    which GeoJSON has no single polygon for.
    """
    system = crs.epsg or crs.wkt
    if not system:
        return []
    try:
        from pyproj import CRS, Transformer
        from pyproj.exceptions import ProjError
    except ImportError:
        return []
    try:
        to_degrees = Transformer.from_crs(CRS.from_user_input(system), 4326, always_xy=True)
        longitude, latitude = to_degrees.transform(*outline(grid).T)
    except ProjError:
        return []
    ring = np.column_stack([longitude, latitude])
    if not np.isfinite(ring).all() or np.ptp(ring[:, 0]) > 180.0:
        return []
    return [[round(float(x), 7), round(float(y), 7)] for x, y in ring]


def outline(grid: Grid) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N, 2) points along the edge of the map, counter-clockwise from its south-western corner and back to it."""
    low_x, low_y, high_x, high_y = grid.bounds
    corners = np.array([[low_x, low_y], [high_x, low_y], [high_x, high_y], [low_x, high_y], [low_x, low_y]])
    at = np.linspace(0.0, 4.0, 4 * ALONG_EDGE + 1)
    return np.column_stack([np.interp(at, np.arange(5), corners[:, axis]) for axis in range(2)])
