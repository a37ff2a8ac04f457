"""The quick look at a survey that is too large for the page of its report: tiles from its windows, level by level.

A task makes one tile. It leaves the tile's files beside the report and, in the scratch folder, the same ground with
cells twice as large, from which the tiles of the next level are made: a task holds four of these, never the map. What
is in the scratch folder says that a tile is finished; a run that goes on makes only the others.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_job import SurveyJob, run_stage
from gpgmap_ros.apps.survey_runner import Task
from gpgmap_ros.apps.survey_store import load_model
from gpgmap_ros.apps.survey_tasks import SolvedWindow, load_window, write_scratch
from gpgmap_ros.io.geotiff import halve
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.report.content import shrunk
from gpgmap_ros.report.map_tiles import (
    EDGE,
    LIGHT,
    TILED,
    Image,
    TileLevel,
    describe_tiles,
    tile_levels,
    tile_path,
    write_tile,
)
from gpgmap_ros.storage.atomic import remove_abandoned
from gpgmap_ros.viz.rendering import certainty, layer_values, relief_shade, shade_factor

MOST_CELLS = 1 << 30
"""Of the finest level, 4,096 tiles: a larger map has a quick look with larger cells, and its files for the rest."""
CELL_BYTES = 10
"""On disk for each known cell of the finest level: up to 6 of all tiles, the rest in the scratch folder."""


@dataclass(frozen=True, eq=False)
class TileJob:
    """A tile to make.

    folder: of all tiles; grid: of the whole map; signature: by which a finished tile is known to be of this survey
    windows: those of the solved windows that lie in it, of the finest level only; smaller tiles are made of those of
        the level before
    """

    folder: Path
    grid: Grid
    level: TileLevel
    row: int
    column: int
    signature: str
    windows: tuple[SolvedWindow, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        return self.row, self.column


def half_path(scratch: Path, level: int, row: int, column: int) -> Path:
    """Of a tile's ground in larger cells."""
    return scratch / "tiles" / f"half_{level}_{row}_{column}.npz"


def write_pyramid(
    job: SurveyJob, grid: Grid, solved: Sequence[SolvedWindow], coarsest: float
) -> dict[str, Any] | None:
    """Write the tiles of the report; what the page needs to know of them, None where it shows the whole map itself.

    coarsest: edge of the cells of the page's own map, metres
    """
    levels = tile_levels(grid, coarsest, MOST_CELLS)
    if not levels:
        return None
    start, there = time.monotonic(), []
    jobs = first_tiles(job.folder.tiles.resolve(), grid, levels[0], solved)
    for level in levels:
        if level.number:
            jobs = next_tiles(jobs, level)
        tasks = [
            Task(f"tile-{level.number}-{tile.row}-{tile.column}", make_tile, (job.scratch, job.digest, tile))
            for tile in jobs
        ]
        run_stage(job, tasks, f"quick look {level.number + 1} of {len(levels)}", "tile")
        there.append(frozenset(tile.place for tile in jobs))
        for layer in TILED:  # of workers that were killed
            remove_abandoned(tile_path(job.folder.tiles, layer, level.number, 0, 0).parent)
    job.timings["quick look"] = time.monotonic() - start
    return describe_tiles(job.folder.tiles.name, grid, levels, there)


def first_tiles(folder: Path, grid: Grid, level: TileLevel, solved: Sequence[SolvedWindow]) -> list[TileJob]:
    """The tiles of the finest level in which anything is known, each with its windows."""
    found: dict[tuple[int, int], list[SolvedWindow]] = {}
    edge = EDGE * level.factor
    for window in solved:
        if window.path is not None:
            place = ((grid.shape[0] - window.rows.stop) // edge, window.columns.start // edge)
            found.setdefault(place, []).append(dataclasses.replace(window, small={}))
    return [
        TileJob(folder, grid, level, *place, windows[0].signature, tuple(windows))
        for place, windows in sorted(found.items())
    ]


def next_tiles(before: Sequence[TileJob], level: TileLevel) -> list[TileJob]:
    """The tiles of a level that are made of those of the level before."""
    places = {(tile.row // 2, tile.column // 2): tile for tile in before}
    return [
        dataclasses.replace(tile, level=level, row=row, column=column, windows=())
        for (row, column), tile in sorted(places.items())
    ]


def make_tile(scratch: Path, digest: str, tile: TileJob) -> None:
    """Write a tile, and its ground in larger cells for the next level, unless an earlier attempt has finished both."""
    half = half_path(scratch, tile.level.number, *tile.place)
    signature = f"{tile.signature} {tile.level}"
    if is_finished(tile, half, signature):
        return
    images = join_halves(scratch, tile) if tile.level.number else join_windows(scratch, digest, tile)
    resolution = tile.grid.resolution * tile.level.factor
    write_tile(tile.folder, tile.level, tile.row, tile.column, images, resolution)
    smaller = {name: halve(image) for name, image in images.items()}
    write_scratch(half, {**smaller, "signature": np.array(signature)})  # last: it says that the tile is there


def is_finished(tile: TileJob, half: Path, signature: str) -> bool:
    paths = [tile_path(tile.folder, layer, tile.level.number, *tile.place) for layer in TILED]
    if not (half.exists() and all(path.exists() for path in paths)):
        return False
    try:
        with np.load(half) as file:
            return str(file["signature"]) == signature
    except (OSError, ValueError, LookupError, EOFError):
        return False


def blank_images(tile: TileJob) -> dict[str, Image]:
    shape = tile.level.tile_shape(*tile.place)
    return {name: np.full(shape, np.nan, dtype=np.float32) for name in (*TILED, LIGHT)}


def join_windows(scratch: Path, digest: str, tile: TileJob) -> dict[str, Image]:
    """The values of a tile of the finest level from its windows, one at a time."""
    model, images, factor = load_model(scratch, digest), blank_images(tile), tile.level.factor
    for window in tile.windows:
        part = load_window(model, window)
        if part is None:
            continue
        top = (tile.grid.shape[0] - window.rows.stop) // factor - tile.row * EDGE
        left = window.columns.start // factor - tile.column * EDGE
        for name, image in images.items():
            values = shrunk(_values(part, name)[::-1], factor)
            image[top : top + values.shape[0], left : left + values.shape[1]] = values
    return images


def join_halves(scratch: Path, tile: TileJob) -> dict[str, Image]:
    """The values of a tile from the up to four of the level before that it shows smaller."""
    images = blank_images(tile)
    for down, across in np.ndindex(2, 2):
        half = half_path(scratch, tile.level.number - 1, 2 * tile.row + down, 2 * tile.column + across)
        if not half.exists():
            continue  # nothing is known there
        y, x = down * EDGE // 2, across * EDGE // 2
        with np.load(half) as file:
            for name, image in images.items():
                values = file[name]
                image[y : y + values.shape[0], x : x + values.shape[1]] = values
    return images


def _values(part: GPGMap, name: str) -> Image:
    if name != LIGHT:
        return layer_values(part, name)
    light = shade_factor(relief_shade(part["gradient_x"], part["gradient_y"]), certain=certainty(part))
    return np.where(part.known, light, np.nan).astype(np.float32)
