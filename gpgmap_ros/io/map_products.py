"""A map as files for others: every layer as GeoTIFF, all of them as one NPZ; and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.arrays import AnyArray
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs, write_geotiff
from gpgmap_ros.io.points.source import MAX_COORDINATE, READING_ERRORS
from gpgmap_ros.io.scratch import ScratchLayer
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import BASE, LAYERS, STORED, exported_layers
from gpgmap_ros.storage.atomic import write_text
from gpgmap_ros.storage.npz import array_sizes, read_arrays, write_arrays

MAX_CELLS = 50_000_000
"""Cells of a map in one file: more than any command writes."""


class MapError(ValueError):
    """A file that is not a map: which, and why."""


def write_geotiffs(folder: Path, gpgmap: GPGMap, crs: Crs, layers: Iterable[str] | None = None) -> list[Path]:
    """One file for each layer: those that the table of layers exports unless named.

    The variance is that of known ground: elsewhere there is nodata, as in the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in exported_layers(gpgmap.layers) if layers is None else layers:
        path = folder / f"{name}.tif"
        unit = LAYERS[name].unit
        layer = exported_values(gpgmap, name)
        write_geotiff(path, layer, gpgmap.grid.origin, gpgmap.grid.resolution, crs, name, unit)
        if crs.wkt and not crs.keys:
            write_text(path.with_suffix(".prj"), crs.wkt)
        paths.append(path)
    return paths


def exported_values(gpgmap: GPGMap, name: str) -> AnyArray:
    """A layer for a file: NaN where the ground is unknown, also of layers whose values are known everywhere."""
    layer = gpgmap[name]
    return np.where(gpgmap.known, layer, np.float32(np.nan)) if LAYERS[name].known_only else layer


def write_map_npz(path: Path, gpgmap: GPGMap, crs: Crs) -> None:
    """Layers of the posterior `[iy, ix]`, origin (x, y of the corner of cell (0, 0)), resolution, frame, EPSG code."""
    layers = {name: gpgmap[name] for name in STORED if name in gpgmap.layers}
    write_layers_npz(path, layers, gpgmap.grid, gpgmap.frame_id, gpgmap.stamp, crs)


def write_layers_npz(
    path: Path, layers: Mapping[str, AnyArray | ScratchLayer], grid: Grid, frame_id: str, stamp: int, crs: Crs
) -> None:
    """As `write_map_npz`, from layers that are in memory or in files."""
    plain = {
        "origin": np.array(grid.origin),
        "resolution": np.array(grid.resolution),
        "frame_id": np.array(frame_id),
        "stamp": np.array(stamp),
        "epsg": np.array(crs.epsg),
    }
    write_arrays(path, {**layers, **plain}, compressed=True)


def read_map_npz(path: Path, config: Config | None = None) -> tuple[GPGMap, Crs]:
    """A map that `write_map_npz` wrote. MapError where it is another file, damaged, or says what can't be true."""
    try:
        sizes = array_sizes(path)
        missing = [name for name in (*BASE, "origin", "resolution") if name not in sizes]
        if missing:
            raise MapError(f"{path}: not a map: it lacks {', '.join(missing)}")
        if max(sizes.values()) > 4 * MAX_CELLS + 1024:
            raise MapError(f"{path}: not a map: it has layers of more than {MAX_CELLS:,} cells")
        plain = ("origin", "resolution", "frame_id", "stamp", "epsg")
        arrays = read_arrays(path, [name for name in (*STORED, *plain) if name in sizes])
        layers = {name: arrays[name] for name in STORED if name in arrays}
        origin, resolution = arrays["origin"], float(arrays["resolution"])
        frame = str(arrays.get("frame_id", "map"))
        stamp, epsg = int(arrays.get("stamp", 0)), int(arrays.get("epsg", 0))
    except MapError:
        raise
    except FileNotFoundError:
        raise MapError(f"{path}: no such file") from None
    except READING_ERRORS as error:
        raise MapError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    wrong = _find_contradiction(layers, origin, resolution, stamp, epsg)
    if wrong:
        raise MapError(f"{path}: damaged: {wrong}")
    grid = Grid((float(origin[0]), float(origin[1])), layers["elevation"].shape, resolution)
    return GPGMap(grid, layers, frame, stamp, config or Config()), Crs(epsg, name=f"local frame '{frame}'")


def _find_contradiction(
    layers: dict[str, AnyArray], origin: AnyArray, resolution: float, stamp: int, epsg: int
) -> str:
    """What can't be true of a map; empty where all can."""
    shape = layers["elevation"].shape
    for name, layer in layers.items():
        if layer.shape != shape or layer.ndim != 2 or not layer.size or layer.dtype != np.float32:
            return f"its layer '{name}' is {layer.dtype} {layer.shape}, expected float32 {shape}"
        if np.isinf(layer).any():
            return f"its layer '{name}' has infinite values"
        if name.endswith("variance") and (layer < 0.0).any():
            return f"its layer '{name}' has negative values"
    if origin.shape != (2,) or origin.dtype.kind not in "fiu" or not (np.abs(origin) <= MAX_COORDINATE).all():
        return "its origin is not a pair of coordinates"
    if not 0.0 < resolution <= MAX_COORDINATE:
        return f"its cells have an edge of {resolution:g} m"
    if not 0 <= stamp < 2**63 or not 0 <= epsg < 2**16:
        return f"its stamp {stamp} or EPSG code {epsg} is none"
    return ""
