"""The files of a survey's map, made from its solved windows: GeoTIFFs by layer and sheet, the NPZ of a small map."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_store import load_model
from gpgmap_ros.apps.survey_tasks import SolvedWindow, load_window
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter
from gpgmap_ros.io.map_products import exported_values, write_layers_npz
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.scratch import ScratchLayer
from gpgmap_ros.io.stac import Asset, write_item
from gpgmap_ros.io.vrt import Source, write_vrt
from gpgmap_ros.mapping.layers import LAYERS, posterior_layers
from gpgmap_ros.storage.atomic import write_text

NPZ_CELLS = 30_000_000
"""Beyond it only GeoTIFFs are written, in sheets: no program reads so large an NPZ well."""
SHEET = 16 * TILE
"""Cells along a sheet."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A part of the map that is one file of each layer, in whole tiles of it from the north.

    rows, columns: in the map's grid; name: behind that of the layer, empty where one sheet holds all
    """

    rows: slice
    columns: slice
    name: str

    def path(self, folder: RunFolder, layer: str) -> Path:
        """Of a layer."""
        return folder.layers / (f"{layer}/{layer}_{self.name}.tif" if self.name else f"{layer}.tif")

    def grid(self, whole: Grid) -> Grid:
        """Its cells."""
        edge = whole.resolution
        origin = (whole.origin[0] + self.columns.start * edge, whole.origin[1] + self.rows.start * edge)
        shape = (self.rows.stop - self.rows.start, self.columns.stop - self.columns.start)
        return Grid(origin, shape, edge)


def divide_map(grid: Grid, edge: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a grid, rows from the north, whose edges (cells) are whole tiles of a GeoTIFF."""
    rows, columns = grid.shape
    for top in range(0, rows, edge):
        for left in range(0, columns, edge):
            yield slice(max(rows - top - edge, 0), rows - top), slice(left, min(left + edge, columns))


def make_sheets(grid: Grid) -> list[Sheet]:
    """One sheet for a small map, several for a large one."""
    if grid.shape[0] * grid.shape[1] <= NPZ_CELLS:
        return [Sheet(slice(0, grid.shape[0]), slice(0, grid.shape[1]), "")]
    return [
        Sheet(rows, columns, f"{(grid.shape[0] - rows.stop) // SHEET:03d}_{columns.start // SHEET:03d}")
        for rows, columns in divide_map(grid, SHEET)
    ]


def windows_by_sheet(
    grid: Grid, sheets: Sequence[Sheet], solved: Sequence[SolvedWindow]
) -> list[tuple[Sheet, list[SolvedWindow]]]:
    """The sheets with the windows in each that have known cells: windows do not cross the borders of sheets."""
    edge = SHEET if sheets[0].name else max(grid.shape)
    found: dict[tuple[int, int], list[SolvedWindow]] = {}
    for window in solved:
        if window.path is not None:
            place = ((grid.shape[0] - window.rows.stop) // edge, window.columns.start // edge)
            found.setdefault(place, []).append(window)
    return [
        (sheet, found.get(((grid.shape[0] - sheet.rows.stop) // edge, sheet.columns.start // edge), []))
        for sheet in sheets
    ]


def write_layer(
    scratch: Path, digest: str, grid: Grid, sheet: Sheet, layer: str, out: Path, crs: Crs,
    solved: Sequence[SolvedWindow],
) -> Path:  # fmt: skip
    """Write one layer of a sheet as GeoTIFF from its windows, unless an earlier attempt has. grid: of the whole map"""
    own = sheet.grid(grid)
    mark = _Mark(scratch, out, f"{_made_of(solved)} {own} {crs}")
    if mark.holds():
        return out
    model = load_model(scratch, digest)
    corner = (own.origin[0], own.origin[1] + own.shape[0] * own.resolution)
    out.parent.mkdir(parents=True, exist_ok=True)
    with GeoTiffWriter(out, own.shape, corner, own.resolution, crs, layer, LAYERS[layer].unit) as writer:
        for window in sorted(solved, key=lambda item: (-item.rows.stop, item.columns.start)):
            part = load_window(model, window)
            if part is not None:
                top, left = sheet.rows.stop - window.rows.stop, window.columns.start - sheet.columns.start
                write_tiles(writer, exported_values(part, layer)[::-1], top, left)
    if crs.wkt and not crs.keys:
        write_text(out.with_suffix(".prj"), crs.wkt)
    mark.set()
    return out


def _made_of(solved: Sequence[SolvedWindow]) -> list[str]:
    return sorted({window.signature for window in solved})


@dataclass(frozen=True)
class _Mark:
    """Says in the scratch folder that a file is there, and what it was made of."""

    scratch: Path
    out: Path
    signature: str

    @property
    def path(self) -> Path:
        return self.scratch / "written" / self.out.name

    def holds(self) -> bool:
        return self.out.exists() and self.path.exists() and self.path.read_text() == self.signature

    def set(self) -> None:
        """Call it last, when the file has its name."""
        self.path.parent.mkdir(exist_ok=True)
        write_text(self.path, self.signature)


def write_tiles(writer: GeoTiffWriter, image: NDArray[np.float32], top: int, left: int) -> None:
    """Write a window, north up. top, left: row from the north and column of its first cell; whole tiles"""
    for y in range(0, image.shape[0], TILE):
        for x in range(0, image.shape[1], TILE):
            writer.write_tile((top + y) // TILE, (left + x) // TILE, image[y : y + TILE, x : x + TILE])


def write_npz(
    scratch: Path, digest: str, grid: Grid, out: Path, crs: Crs, solved: Sequence[SolvedWindow]
) -> Path:
    """Write the layers of the posterior of a small map as one NPZ, which is never in memory as a whole, unless an
    earlier attempt has.
    """
    mark = _Mark(scratch, out, f"{_made_of(solved)} {grid} {crs}")
    if mark.holds():
        return out
    model = load_model(scratch, digest)
    own = secrets.token_hex(8)  # two workers may be at it, where one was believed lost
    with ExitStack() as stack:
        stored = {
            name: stack.enter_context(ScratchLayer(scratch / f"{name}.{own}.f4", grid.shape))
            for name in posterior_layers(model.config.mapping)
        }
        nothing = np.full(grid.shape[1], np.nan, dtype=np.float32)
        for layer in stored.values():
            for row in range(grid.shape[0]):
                layer.write(slice(row, row + 1), slice(0, grid.shape[1]), nothing[None])
        for window in solved:
            part = load_window(model, window)
            for name, layer in stored.items() if part is not None else ():
                layer.write(window.rows, window.columns, part[name])  # type: ignore[index]
        write_layers_npz(out, stored, grid, crs.label or "survey", 0, crs)
    mark.set()
    return out


def write_virtual_rasters(
    folder: RunFolder, grid: Grid, crs: Crs, layers: Sequence[str], sheets: Sequence[Sheet]
) -> None:
    """One file for each layer that shows its sheets as one. sheets: those that were written"""
    for layer in layers:
        sources = [
            Source(
                sheet.path(folder, layer), grid.shape[0] - sheet.rows.stop, sheet.columns.start,
                sheet.grid(grid).shape,
            )
            for sheet in sheets
        ]  # fmt: skip
        write_vrt(folder.layers / f"{layer}.vrt", grid, crs, sources, layer, LAYERS[layer].unit)


def write_survey_item(
    folder: RunFolder, name: str, grid: Grid, crs: Crs, layers: Sequence[str], sheets: Sequence[Sheet],
    newest: float,
) -> None:  # fmt: skip
    """The rasters of the map as a STAC item: those of all layers, in sheets also each of them. newest: see there"""
    assets: dict[str, Asset] = {}
    for layer in layers:
        about = LAYERS[layer].meaning, LAYERS[layer].unit
        if sheets[0].name:
            assets[layer] = Asset(folder.layers / f"{layer}.vrt", grid, *about)
        for sheet in sheets:
            path = sheet.path(folder, layer)
            assets[path.stem] = Asset(path, sheet.grid(grid), *about)
    write_item(folder.item, name, grid, crs, assets, newest)
