"""A survey's map that is kept in sheets, written for other programs sheet by sheet: it need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.io.contours import contour_interval, write_contours
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter
from gpgmap_ros.io.geotiff_reader import GeoTiffReader
from gpgmap_ros.io.map_products import MapError
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.vrt import Source, write_vrt
from gpgmap_ros.viz.rendering import relief_shade

Pixels = NDArray[np.float32]


def is_in_sheets(folder: RunFolder) -> bool:
    """Whether the run's map was too large for map.npz."""
    return not folder.map.exists() and (folder.layers / "elevation.vrt").exists()


def export_sheets(folder: RunFolder, formats: Iterable[str], out: Path) -> list[Path]:
    """Write the map in some formats (keys of `SHEET_WRITERS`); what was written. out: name without suffix

    MapError for formats that hold a whole map, before anything is written.
    """
    formats = list(formats)
    whole = [name for name in formats if name not in SHEET_WRITERS]
    if whole:
        raise MapError(
            f"{folder.path}: its map is in sheets, too large for {', '.join(whole)}: export"
            f" {', '.join(SHEET_WRITERS)}; the layers are GeoTIFFs already ({folder.layers}/elevation.vrt)"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    return [path for name in formats for path in SHEET_WRITERS[name](folder, out)]


def sheet_names(folder: RunFolder) -> list[str]:
    """Behind the layer's name in those of its files, from the north-western sheet on."""
    names = [path.stem.removeprefix("elevation_") for path in (folder.layers / "elevation").glob("*.tif")]
    if not names:
        raise MapError(f"{folder.layers / 'elevation'}: has no sheets: make the map again")
    return sorted(names)


def sheet_path(folder: RunFolder, layer: str, name: str) -> Path:
    path = folder.layers / layer / f"{layer}_{name}.tif"
    if not path.exists():
        raise MapError(f"{path}: no such sheet: make the map again")
    return path


def write_hillshades(folder: RunFolder, out: Path) -> list[Path]:
    """The light on the ground, 0 to 1."""
    return _derive(folder, out, "hillshade", "", ("gradient_x", "gradient_y"), _light)


def write_slopes(folder: RunFolder, out: Path) -> list[Path]:
    """The angle of the ground against the horizontal in degrees."""
    return _derive(folder, out, "slope", "degree", ("slope",), _degrees)


def write_sheet_contours(folder: RunFolder, out: Path) -> list[Path]:
    """Contour lines, a GeoJSON for each sheet, with the levels of the whole map. Lines end where a sheet ends."""
    names = sheet_names(folder)
    low, high = np.inf, -np.inf
    for name in names:
        with GeoTiffReader(sheet_path(folder, "elevation", name)) as reader:
            heights = reader.read()
        known = heights[np.isfinite(heights)]
        if known.size:
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    interval = contour_interval(np.array([low, high], dtype=np.float32))
    target = out.with_name(f"{out.name}_contours")
    target.mkdir(exist_ok=True)
    written = []
    for name in names:
        heights, grid, crs = _with_neighbours(folder, name)
        written.append(target / f"contours_{name}.geojson")
        write_contours(written[-1], heights, grid, crs, interval)
    return written


SHEET_WRITERS: dict[str, Callable[[RunFolder, Path], list[Path]]] = {
    "hillshade": write_hillshades,
    "slope": write_slopes,
    "contours": write_sheet_contours,
}


def _light(gradient_x: Pixels, gradient_y: Pixels) -> Pixels:
    return relief_shade(gradient_x, gradient_y, exaggeration=1.0)


def _degrees(slope: Pixels) -> Pixels:
    return np.asarray(np.degrees(slope), dtype=np.float32)


def _derive(
    folder: RunFolder,
    out: Path,
    title: str,
    unit: str,
    layers: tuple[str, ...],
    formula: Callable[..., Pixels],
) -> list[Path]:
    """Write what a formula makes of some layers, as sheets and a virtual raster over them, which is returned."""
    target = out.with_name(f"{out.name}_{title}")
    target.mkdir(exist_ok=True)
    paths = []
    for name in sheet_names(folder):
        paths.append(target / f"{title}_{name}.tif")
        with ExitStack() as stack:
            readers = [
                stack.enter_context(GeoTiffReader(sheet_path(folder, layer, name))) for layer in layers
            ]
            first = readers[0]
            writer = stack.enter_context(
                GeoTiffWriter(paths[-1], first.shape, first.corner, first.resolution, first.crs, title, unit)
            )
            for row, column in np.ndindex(first.tiles):
                pixels = formula(*(reader.read_tile(row, column) for reader in readers))
                writer.write_tile(row, column, pixels)
    raster = out.with_name(f"{out.name}_{title}.vrt")
    _join(raster, paths, title, unit)
    return [raster]


def _join(raster: Path, paths: list[Path], title: str, unit: str) -> None:
    """A virtual raster over sheets, as large as all of them."""
    found = []
    for path in paths:
        with GeoTiffReader(path) as reader:
            found.append((path, reader.corner, reader.shape, reader.resolution, reader.crs))
    edge, crs = found[0][3:]
    west, north = min(corner[0] for _, corner, *_ in found), max(corner[1] for _, corner, *_ in found)
    sources = [
        Source(path, round((north - corner[1]) / edge), round((corner[0] - west) / edge), shape)
        for path, corner, shape, *_ in found
    ]
    rows = max(source.top + source.shape[0] for source in sources)
    columns = max(source.left + source.shape[1] for source in sources)
    grid = Grid((west, north - rows * edge), (rows, columns), edge)
    write_vrt(raster, grid, crs, sources, title, unit)


def _with_neighbours(folder: RunFolder, name: str) -> tuple[Pixels, Grid, Crs]:
    """Heights `[iy, ix]` of a sheet and of the next cells east and south of it: lines between them are drawn once."""
    row, column = (int(part) for part in name.split("_"))
    with GeoTiffReader(sheet_path(folder, "elevation", name)) as reader:
        rows, columns = reader.shape
        image = np.full((rows + 1, columns + 1), np.nan, dtype=np.float32)
        image[:rows, :columns] = reader.read()
        corner, edge, crs = reader.corner, reader.resolution, reader.crs
    for down, across in ((0, 1), (1, 0), (1, 1)):
        path = folder.layers / "elevation" / f"elevation_{row + down:03d}_{column + across:03d}.tif"
        if path.exists():
            with GeoTiffReader(path) as reader:
                if down and across:
                    image[-1, -1] = reader.read_tile(0, 0)[0, 0]
                elif down:
                    for k in range(reader.tiles[1]):
                        line = reader.read_tile(0, k)[0]
                        image[-1, k * TILE : k * TILE + len(line)] = line
                else:
                    for k in range(reader.tiles[0]):
                        line = reader.read_tile(k, 0)[:, 0]
                        image[k * TILE : k * TILE + len(line), -1] = line
    grid = Grid((corner[0], corner[1] - (rows + 1) * edge), image.shape, edge)
    return image[::-1], grid, crs
