"""A map as files for others: every layer as GeoTIFF, all of them as one NPZ; and back."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs, write_geotiff
from gpgmap_ros.io.npz import array_sizes, read_arrays
from gpgmap_ros.io.points.source import LARGEST, READING_ERRORS
from gpgmap_ros.io.scratch import ScratchLayer
from gpgmap_ros.io.staged import staged
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import BASE, POSE_VARIANCE

Array = NDArray[Any]

UNITS = {
    "elevation": "m",
    "variance": "m^2",
    "pose_variance": "m^2",
    "gradient_x": "m/m",
    "gradient_y": "m/m",
    "gradient_x_variance": "(m/m)^2",
    "gradient_y_variance": "(m/m)^2",
    "gradient_magnitude": "m/m",
    "upper_bound": "m",
    "lower_bound": "m",
    "slope": "rad",
    "traversability": "probability",
}
GEOTIFF_LAYERS = (
    "elevation",
    "variance",
    "gradient_x",
    "gradient_y",
    "gradient_magnitude",
    "slope",
    "traversability",
)


MOST_CELLS = 50_000_000
"""Cells of a map in one file: more than any command writes."""


class MapError(ValueError):
    """A file that is no map: which, and why."""


def write_geotiffs(
    folder: Path, gpgmap: GPGMap, crs: Crs, layers: Iterable[str] = GEOTIFF_LAYERS
) -> list[Path]:
    """One file for each layer, and for `pose_variance` where the map has it.

    The variance is that of known ground: elsewhere there is nodata, as in the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in (*layers, *([POSE_VARIANCE] if POSE_VARIANCE in gpgmap.layers else [])):
        path = folder / f"{name}.tif"
        layer = gpgmap[name]
        if name.endswith("variance"):
            layer = np.where(gpgmap.known, layer, np.float32(np.nan))
        write_geotiff(path, layer, gpgmap.grid.origin, gpgmap.grid.resolution, crs, name, UNITS.get(name, ""))
        if crs.wkt and not crs.keys:
            with staged(path.with_suffix(".prj")) as beside:
                beside.write_text(crs.wkt)
        paths.append(path)
    return paths


def write_map_npz(path: Path, gpgmap: GPGMap, crs: Crs) -> None:
    """Layers of the posterior `[iy, ix]`, origin (x, y of the corner of cell (0, 0)), resolution, frame, EPSG code."""
    layers = {name: gpgmap[name] for name in (*BASE, POSE_VARIANCE) if name in gpgmap.layers}
    write_layers_npz(path, layers, gpgmap.grid, gpgmap.frame_id, gpgmap.stamp, crs)


def write_layers_npz(
    path: Path, layers: Mapping[str, Array | ScratchLayer], grid: Grid, frame_id: str, stamp: int, crs: Crs
) -> None:
    """As `write_map_npz`, from layers that are in memory or in files."""
    plain = {
        "origin": np.array(grid.origin),
        "resolution": np.array(grid.resolution),
        "frame_id": np.array(frame_id),
        "stamp": np.array(stamp),
        "epsg": np.array(crs.epsg),
    }
    with staged(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, layer in {**layers, **plain}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if isinstance(layer, ScratchLayer):
                    layer.write_npy(member)
                else:
                    np.lib.format.write_array(member, np.asarray(layer), allow_pickle=False)


def read_map_npz(path: Path, config: Config | None = None) -> tuple[GPGMap, Crs]:
    """A map that `write_map_npz` wrote. MapError where it is another file, damaged, or says what can't be true."""
    try:
        sizes = array_sizes(path)
        missing = [name for name in (*BASE, "origin", "resolution") if name not in sizes]
        if missing:
            raise MapError(f"{path}: no map: it lacks {', '.join(missing)}")
        if max(sizes.values()) > 4 * MOST_CELLS + 1024:
            raise MapError(f"{path}: no map: it has layers of more than {MOST_CELLS:,} cells")
        plain = ("origin", "resolution", "frame_id", "stamp", "epsg")
        arrays = read_arrays(path, [name for name in (*BASE, POSE_VARIANCE, *plain) if name in sizes])
        layers = {name: arrays[name] for name in (*BASE, POSE_VARIANCE) if name in arrays}
        origin, resolution = arrays["origin"], float(arrays["resolution"])
        frame = str(arrays.get("frame_id", "map"))
        stamp, epsg = int(arrays.get("stamp", 0)), int(arrays.get("epsg", 0))
    except MapError:
        raise
    except FileNotFoundError:
        raise MapError(f"{path}: there is no such file") from None
    except READING_ERRORS as error:
        raise MapError(f"{path}: can't be read: {' '.join(str(error).split())}") from error
    wrong = _contradiction(layers, origin, resolution, stamp, epsg)
    if wrong:
        raise MapError(f"{path}: damaged: {wrong}")
    grid = Grid((float(origin[0]), float(origin[1])), layers["elevation"].shape, resolution)
    return GPGMap(grid, layers, frame, stamp, config or Config()), Crs(epsg, name=f"local frame '{frame}'")


def _contradiction(layers: dict[str, Array], origin: Array, resolution: float, stamp: int, epsg: int) -> str:
    """What can't be true of a map; empty where all can."""
    shape = layers["elevation"].shape
    for name, layer in layers.items():
        if layer.shape != shape or layer.ndim != 2 or not layer.size or layer.dtype != np.float32:
            return f"its layer '{name}' is {layer.dtype} {layer.shape}, expected float32 {shape}"
        if np.isinf(layer).any():
            return f"its layer '{name}' has infinite values"
        if name.endswith("variance") and (layer < 0.0).any():
            return f"its layer '{name}' has negative values"
    if origin.shape != (2,) or origin.dtype.kind not in "fiu" or not (np.abs(origin) <= LARGEST).all():
        return "its origin is no place"
    if not 0.0 < resolution <= LARGEST:
        return f"its cells have an edge of {resolution:g} m"
    if not 0 <= stamp < 2**63 or not 0 <= epsg < 2**16:
        return f"its stamp {stamp} or EPSG code {epsg} is none"
    return ""
