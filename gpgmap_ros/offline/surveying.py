"""Point cloud files into one map: `gpgmap map`. What the settings should be is read off a sample, unless told."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter
from gpgmap_ros.io.map_products import GEOTIFF_LAYERS, UNITS, write_map_npz
from gpgmap_ros.io.points import PointSource
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.staged import write_text
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.cells import cell_ids
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.survey import Survey, Trend, trend_of
from gpgmap_ros.offline.results import PICTURES, made
from gpgmap_ros.report.content import MOST_CELLS, Content, encoded_layers, settings_rows, shrunk
from gpgmap_ros.report.page import write_report
from gpgmap_ros.viz.rendering import STYLES, coloured, layer_values, png, shade, shaded

Array = NDArray[np.float64]

SAMPLE = 1_000_000
CELLS_PER_SCALE = 5.0
"""Length scale over edge of a cell, unless told: what the relief between points can be drawn with."""
TREND_SCALES = 8.0
"""Edge of the trend's cells in length scales."""
WINDOW = 2 * TILE
"""Cells along a window that is solved at once; whole tiles of the GeoTIFFs."""
NPZ_CELLS = 30_000_000
"""Beyond it only GeoTIFFs are written: an NPZ can't be written piece by piece."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a sample says.

    config: settings, with those that were not given; trend: see mapping/survey.py
    guesses: sentences about them; points: in all files, None where unknown; density: points per square metre
    """

    config: Config
    trend: Trend
    guesses: tuple[str, ...]
    points: int | None
    density: float


def plan(sources: list[PointSource], config: Config, given: set[str]) -> Plan:
    """given: names of settings that are not to be guessed"""
    sample = np.concatenate([source.sample(SAMPLE // len(sources)) for source in sources])
    counts = [source.count for source in sources]
    points = None if None in counts else sum(count or 0 for count in counts)
    density = (points or len(sample)) / ground_area(sample)
    changes: dict[str, float] = {}
    guesses = []
    if "mapping.resolution" not in given:
        changes["mapping.resolution"] = nice(1.0 / np.sqrt(density))
        guesses.append(
            f"cells of {changes['mapping.resolution']:g} m: there are {density:.3g} points per square metre"
        )
    resolution = changes.get("mapping.resolution", config.mapping.resolution)
    if "mapping.length_scale" not in given:
        changes["mapping.length_scale"] = CELLS_PER_SCALE * resolution
        guesses.append(f"length scale {changes['mapping.length_scale']:g} m: {CELLS_PER_SCALE:g} cells")
    scale = changes.get("mapping.length_scale", config.mapping.length_scale)
    trend = trend_of(sample, max(TREND_SCALES * scale, coarsest_edge(sample)))
    rest = sample[:, 2] - trend.at(np.ascontiguousarray(sample[:, :2]))
    if "mapping.relief_std" not in given:
        changes["mapping.relief_std"] = max(round(float(np.std(rest)), 3), 0.05)
        guesses.append(f"relief {changes['mapping.relief_std']:g} m: standard deviation around the trend")
    if "noise.height_std" not in given:
        rough = roughness(sample, resolution)
        changes["noise.height_std"] = max(round(rough, 3), config.noise.height_std)
        guesses.append(
            f"noise {changes['noise.height_std']:g} m: scatter within a cell where the ground is smoothest"
        )
    return Plan(with_settings(config, changes), trend, tuple(guesses), points, density)


def ground_area(sample: Array) -> float:
    """Square metres with points in them: cells that hold four points of the sample each, were they spread evenly."""
    extent = np.ptp(sample[:, :2], axis=0)
    area = max(float(extent[0] * extent[1]), 1e-6)
    for _ in range(3):  # the box around a strip is mostly empty: each round counts in smaller cells
        edge = float(np.sqrt(4.0 * area / len(sample)))
        area = (int(cell_ids(np.ascontiguousarray(sample[:, :2]), edge).max()) + 1) * edge**2
    return area


def coarsest_edge(sample: Array) -> float:
    """Edge that gives the trend at most 1,000 x 1,000 cells, however far the survey reaches."""
    return float(np.ptp(sample[:, :2], axis=0).max()) / 1000.0


def roughness(sample: Array, edge: float) -> float:
    """Standard deviation of heights within a cell, in the smoothest quarter of the cells with three points or more."""
    ids = cell_ids(np.ascontiguousarray(sample[:, :2]), edge)
    count = np.bincount(ids)
    z = sample[:, 2] - sample[:, 2].mean()
    mean = np.bincount(ids, z) / count
    square = np.bincount(ids, (z - mean[ids]) ** 2)
    enough = count >= 3
    if enough.sum() < 20:
        return 0.0
    return float(np.percentile(np.sqrt(square[enough] / (count[enough] - 1)), 25.0))


def nice(edge: float) -> float:
    """The next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(edge))
    return float(
        f"{next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= edge * 0.999):.6g}"
    )


@dataclass(frozen=True)
class Spent:
    """Seconds: adding points, waiting for them to be read (they are read beside), and of all processors for both."""

    adding: float
    reading: float
    processors: float


def collect(
    sources: list[PointSource], planned: Plan, folder: Path, memory: int, progress: Callable[[int], None]
) -> tuple[Survey, Spent]:
    """Read all points once; the survey, and what it took. progress: told the points"""
    start, cpu = time.perf_counter(), time.process_time()
    survey = Survey(planned.config, planned.trend, folder, memory)
    adding = 0.0
    for source in sources:
        for piece in read_ahead(source.pieces()):
            begin = time.perf_counter()
            survey.add(piece)
            adding += time.perf_counter() - begin
            progress(survey.count)
    return survey, Spent(adding, time.perf_counter() - start - adding, time.process_time() - cpu)


def read_ahead(pieces: Iterator[Array]) -> Iterator[Array]:
    """The same pieces; while one is used the next is read in another thread, and no more than that."""
    with ThreadPoolExecutor(1, "reading") as reader:
        following = reader.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = reader.submit(next, pieces, None)
            yield piece


def windows(survey: Survey) -> Iterator[tuple[slice, slice]]:
    """Parts of the survey's grid that are whole tiles of a GeoTIFF, which counts from the north."""
    rows, columns = survey.grid.shape
    for top in range(0, rows, WINDOW):
        for left in range(0, columns, WINDOW):
            low = max(rows - top - WINDOW, 0)
            yield slice(low, rows - top), slice(left, min(left + WINDOW, columns))


def write_survey(
    folder: RunFolder, survey: Survey, crs: Crs, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]], Grid]:
    """Solve window by window and write GeoTIFFs as they come; numbers, and an overview for people.

    progress: told windows done and all
    """
    grid = survey.grid
    rows, columns = grid.shape
    shrink = 1
    while rows * columns / shrink**2 > MOST_CELLS:
        shrink *= 2
    small = Grid(grid.origin, (-(-rows // shrink), -(-columns // shrink)), grid.resolution * shrink)
    overview = {name: np.full(small.shape, np.nan, dtype=np.float32) for name in (*PICTURES, "shade")}
    keep = rows * columns <= NPZ_CELLS
    base = {name: np.full(grid.shape, np.nan, dtype=np.float32) for name in BASE} if keep else {}
    folder.layers.mkdir(parents=True, exist_ok=True)
    corner = (grid.origin[0], grid.origin[1] + rows * grid.resolution)
    known, parts = 0, list(windows(survey))
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(
                GeoTiffWriter(
                    folder.layers / f"{name}.tif",
                    grid.shape,
                    corner,
                    grid.resolution,
                    crs,
                    name,
                    UNITS.get(name, ""),
                )
            )
            for name in GEOTIFF_LAYERS
        }
        for number, (down, across) in enumerate(parts):
            part = survey.window(down, across)
            progress(number, len(parts))
            if part is None:
                continue
            known += int(part.known.sum())
            write_tiles(writers, part, rows - down.stop, across.start)
            for name in base:
                base[name][down, across] = part[name]
            add_overview(overview, part, down, across, shrink)
    if crs.wkt and not crs.keys:
        for name in GEOTIFF_LAYERS:
            write_text(folder.layers / f"{name}.prj", crs.wkt)
    if keep:
        write_map_npz(folder.map, GPGMap(grid, base, crs.label or "survey", 0, survey.config), crs)
    for name in PICTURES:
        pixels = coloured(overview[name], STYLES[name])
        if STYLES[name].shaded:
            pixels = shaded(pixels, overview["shade"])
        png(pixels, folder.layers / f"{name}.png")
    return {"known_m2": round(known * grid.resolution**2, 1), "npz": keep}, overview, small


def write_tiles(writers: dict[str, GeoTiffWriter], part: GPGMap, top: int, left: int) -> None:
    """top, left: row from the north and column of the part's north-western cell; whole tiles"""
    for name, writer in writers.items():
        layer = part[name]
        if name.endswith("variance"):
            layer = np.where(part.known, layer, np.float32(np.nan))
        image = layer[::-1]
        for y in range(0, image.shape[0], TILE):
            for x in range(0, image.shape[1], TILE):
                writer.write_tile((top + y) // TILE, (left + x) // TILE, image[y : y + TILE, x : x + TILE])


def add_overview(
    overview: dict[str, NDArray[np.float32]], part: GPGMap, down: slice, across: slice, shrink: int
) -> None:
    """Means of squares of cells. A part need not begin at a whole one: what both sides know is averaged in order."""
    pad = down.start % shrink
    for name, whole in overview.items():
        layer = shade(part["gradient_x"], part["gradient_y"]) if name == "shade" else layer_values(part, name)
        if pad:
            layer = np.vstack([np.full((pad, layer.shape[1]), np.nan, dtype=np.float32), layer])
        small = shrunk(layer, shrink)
        y, x = down.start // shrink, across.start // shrink
        there = whole[y : y + small.shape[0], x : x + small.shape[1]]
        there[...] = np.where(np.isfinite(small), small, there)


def survey_report(
    folder: RunFolder, summary: dict[str, Any], config: Config, overview: dict[str, Any], grid: Grid, crs: Crs
) -> None:
    extent = [size * grid.resolution for size in grid.shape]
    map_ = summary["map"]
    speed = summary["points"]["per_second"]
    coarser = grid.resolution > map_["resolution_m"]
    shown = encoded_layers(
        {name: overview[name] for name in PICTURES}, grid, crs.label or "the files' coordinates"
    )
    if coarser:
        shown["note"] = (
            f"Shown with cells of {grid.resolution:g} m; the files have {map_['resolution_m']:g} m."
        )
    content = Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {', '.join(Path(item).name for item in summary['sources'])}",
        abstract=f"{summary['points']['used']:,} points make a map of {map_['known_m2']:,.0f} m² of ground in cells of"
        f" {map_['resolution_m']:g} m."
        + (f" Read off a sample: {'; '.join(summary['guesses'])}." if summary["guesses"] else ""),
        facts=[
            ("points", f"{summary['points']['used']:,}"),
            ("extent", f"{extent[1]:,.0f} x {extent[0]:,.0f} m"),
            ("known ground", f"{map_['known_m2']:,.0f} m²"),
            ("coordinates", crs.label or "not said"),
            ("reading and adding", f"{speed / 1e6:.1f} M points/s"),
        ],
        map=shown,
        timings=list(summary["timings_s"].items()),
        warnings=list(summary["warnings"]),
        settings=settings_rows(config),
        files=[
            *([("map.npz", "all layers")] if map_["npz"] else []),
            ("layers/elevation.tif", "GeoTIFF; the other layers beside it"),
            ("config.yaml", "the effective settings"),
            ("run.json", "this page's numbers"),
        ],
        made=made(),
    )
    write_report(folder.report, content)


def remove_tiles(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
