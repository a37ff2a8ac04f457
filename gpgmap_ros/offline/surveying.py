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
from gpgmap_ros.io.map_products import GEOTIFF_LAYERS, UNITS, write_layers_npz
from gpgmap_ros.io.points import NoPointsError, PointSource
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.scratch import ScratchLayer
from gpgmap_ros.io.staged import write_text
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.cells import cell_ids
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.outliers import height_limits, outlying_points
from gpgmap_ros.mapping.survey import Outliers, Survey, Trend, trend_of
from gpgmap_ros.memory import give_back, resident_bytes
from gpgmap_ros.offline.results import PICTURES, made
from gpgmap_ros.report.content import MOST_CELLS, Content, encoded_layers, settings_rows, shrunk
from gpgmap_ros.report.page import write_report
from gpgmap_ros.viz.rendering import STYLES, certainty, coloured, layer_values, png, shade, shaded

Array = NDArray[np.float64]

SAMPLE = 1_000_000
LEAST_POINTS = 10
ADDING_BYTES = 150 << 20
"""Memory beside the tiles while points are added: the pieces that are read and sorted."""
MOST_MAP_CELLS = 40_000_000_000
"""Cells of a map: 140 x 140 km in cells of 0.7 m. More are a mistake in the coordinates or the resolution."""
CELLS_PER_SCALE = 5.0
"""Length scale over edge of a cell, unless told: what the relief between points can be drawn with."""
TREND_SCALES = 8.0
"""Edge of the trend's cells in length scales."""
WINDOWS = (2 * TILE, TILE)
"""Cells along a window that is solved at once, whole tiles of the GeoTIFFs: the larger one computes less twice."""
FREED_SHARE = 10
"""One part in so many of the memory is for arrays that are freed and not given back to the system."""
TILES_WORTHWHILE = 100 << 20
"""Memory that the larger window must leave for tiles."""
NPZ_CELLS = 30_000_000
"""Beyond it only GeoTIFFs are written: an NPZ can't be written piece by piece."""


class SurveyError(ValueError):
    """No map can be made of these points: why, and what to do."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a sample says.

    config: settings, with those that were not given; trend: see mapping/survey.py
    guesses: sentences about them; points: in all files, None where unknown; density: points per square metre
    heights: limits beyond which a height is an outlier
    """

    config: Config
    trend: Trend
    guesses: tuple[str, ...]
    points: int | None
    density: float
    heights: tuple[float, float]


def plan(sources: list[PointSource], config: Config, given: set[str]) -> Plan:
    """given: names of settings that are not to be guessed"""
    sample = sample_of(sources)
    counts = [source.count for source in sources]
    points = None if None in counts else sum(count or 0 for count in counts)
    density = (points or len(sample)) / ground_area(sample)
    changes: dict[str, float] = {}
    guesses = []
    if "mapping.resolution" not in given:
        if np.ptp(sample[:, :2], axis=0).min() <= 0.0:
            raise SurveyError(
                f"{names_of(sources)}: the points lie on a line or at one place, so that no cells can be chosen:"
                " give them, as in --set mapping.resolution=1"
            )
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
    return Plan(with_settings(config, changes), trend, tuple(guesses), points, density, height_limits(sample))


def sample_of(sources: list[PointSource]) -> Array:
    """Points from all over the files, without those far from all others. SurveyError where they are too few."""
    found: list[Array] = []
    empty: list[NoPointsError] = []
    for source in sources:
        try:
            found.append(source.sample(SAMPLE // len(sources)))
        except NoPointsError as error:
            empty.append(error)
    if not found:
        raise empty[0]
    sample = np.concatenate(found)
    del found
    if len(sample) < LEAST_POINTS:
        raise SurveyError(
            f"{names_of(sources)}: only {len(sample)} points that can be used: a map needs {LEAST_POINTS} at least"
            " (of LAS files, see --class)"
        )
    far = outlying_points(np.ascontiguousarray(sample[:, :2]))
    sample = sample[~far] if far.any() else sample
    lowest, highest = height_limits(sample)
    good = (sample[:, 2] >= lowest) & (sample[:, 2] <= highest)
    return sample if good.all() else sample[good]


def names_of(sources: list[PointSource]) -> str:
    return ", ".join(str(source.path) for source in sources)


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
    sources: list[PointSource],
    planned: Plan,
    folder: Path,
    memory: int,
    progress: Callable[[int], None],
    keep_outliers: bool = False,
) -> tuple[Survey, Spent, list[str]]:
    """Read all points once; the survey, what it took, and sentences about points that were left out.

    memory: bytes that this process and the decoder may hold, see `tile_memory`; progress: told the points
    """
    start, cpu = time.perf_counter(), time.process_time()
    room = tile_memory(memory, sources, ADDING_BYTES)
    heights = (-np.inf, np.inf) if keep_outliers else planned.heights
    survey = Survey(planned.config, planned.trend, folder, room, heights)
    adding, count, bad = 0.0, 0, 0
    notes: list[str] = []
    for source in sources:
        try:
            for piece in read_ahead(source.pieces()):
                begin = time.perf_counter()
                survey.add(piece)
                adding += time.perf_counter() - begin
                count += len(piece)
                progress(count)
        except NoPointsError as error:
            if len(sources) == 1:
                raise
            notes.append(str(error))
        bad += source.left_out
    if not count:
        raise SurveyError("; ".join(notes) or f"{sources[0].path}: there are no points in it")
    if bad:
        notes.append(f"{bad:,} points have no usable coordinates (not finite, or beyond 1e9 m): left out")
    if not keep_outliers:
        notes += left_out(survey.beyond_heights) + left_out(survey.leave_out_outliers())
    spent = Spent(adding, time.perf_counter() - start - adding, time.process_time() - cpu)
    return survey, spent, notes


def left_out(outliers: Outliers) -> list[str]:
    """A sentence about points that were left out, if there are any."""
    if not outliers.count:
        return []
    places = "; ".join(
        " ".join(f"{axis} {value:.1f}" for axis, value in zip("xyz", place, strict=False))
        for place in outliers.places
    )
    what = "1 point lies" if outliers.count == 1 else f"{outliers.count:,} points lie"
    return [f"{what} far from all others ({places}): left out; --keep-outliers maps such points"]


def tile_memory(memory: int, sources: list[PointSource], working: int) -> int:
    """Bytes for tiles: of all that may be used, what the process, its work and the decoder of LAS files leave."""
    give_back()
    decoder = max((source.decoder_bytes for source in sources), default=0)
    return memory - resident_bytes() - working - decoder


def read_ahead(pieces: Iterator[Array]) -> Iterator[Array]:
    """The same pieces; while one is used the next is read in another thread, and no more than that."""
    with ThreadPoolExecutor(1, "reading") as reader:
        following = reader.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = reader.submit(next, pieces, None)
            yield piece


def windows(survey: Survey, edge: int) -> Iterator[tuple[slice, slice]]:
    """Parts of the survey's grid that are whole tiles of a GeoTIFF, which counts from the north. edge: in cells"""
    rows, columns = survey.grid.shape
    for top in range(0, rows, edge):
        for left in range(0, columns, edge):
            low = max(rows - top - edge, 0)
            yield slice(low, rows - top), slice(left, min(left + edge, columns))


def prepare_solving(survey: Survey, memory: int) -> int:
    """Keep as many tiles as the memory for all (bytes) leaves beside the solver; cells along a window."""
    give_back()
    room = memory - memory // FREED_SHARE - (resident_bytes() - survey.bytes_in_memory)
    large, small = WINDOWS
    edge = large if room - survey.window_bytes(large) >= TILES_WORTHWHILE else small
    survey.limit_memory(room - survey.window_bytes(edge))
    give_back()
    return edge


def write_survey(
    folder: RunFolder,
    survey: Survey,
    crs: Crs,
    scratch: Path,
    memory: int,
    progress: Callable[[int, int], None],
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]], Grid]:
    """Solve window by window and write GeoTIFFs as they come; numbers, and an overview for people.

    scratch: folder for layers that are not whole yet; memory: bytes that may be used; progress: told windows done, all
    """
    grid = survey.grid
    check_size(grid)
    rows, columns = grid.shape
    shrink = 1
    while rows * columns / shrink**2 > MOST_CELLS:
        shrink *= 2
    small = Grid(grid.origin, (-(-rows // shrink), -(-columns // shrink)), grid.resolution * shrink)
    overview = {
        name: np.full(small.shape, np.nan, dtype=np.float32) for name in (*PICTURES, "shade", "certain")
    }
    keep = rows * columns <= NPZ_CELLS
    folder.layers.mkdir(parents=True, exist_ok=True)
    corner = (grid.origin[0], grid.origin[1] + rows * grid.resolution)
    known, parts = 0, list(windows(survey, prepare_solving(survey, memory)))
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
        base = {
            name: stack.enter_context(ScratchLayer(scratch / f"{name}.f4", grid.shape))
            for name in (BASE if keep else ())
        }
        for number, (down, across) in enumerate(parts):
            part = survey.window(down, across)
            give_back()
            progress(number, len(parts))
            for name, layer in base.items():
                layer.write(down, across, empty_cells(down, across) if part is None else part[name])
            if part is None:
                continue
            known += int(part.known.sum())
            write_tiles(writers, part, rows - down.stop, across.start)
            add_overview(overview, part, down, across, shrink)
        survey.close()
        give_back()  # what the tiles held: the pictures and the report need room
        if keep:
            write_layers_npz(folder.map, base, grid, crs.label or "survey", 0, crs)
    if crs.wkt and not crs.keys:
        for name in GEOTIFF_LAYERS:
            write_text(folder.layers / f"{name}.prj", crs.wkt)
    for name in PICTURES:
        pixels = coloured(overview[name], STYLES[name])
        if STYLES[name].shaded:
            pixels = shaded(pixels, overview["shade"], certain=np.nan_to_num(overview["certain"]))
        png(pixels, folder.layers / f"{name}.png")
    return {"known_m2": round(known * grid.resolution**2, 1), "npz": keep}, overview, small


def check_size(grid: Grid) -> None:
    """SurveyError where a map would be larger than any disk."""
    rows, columns = grid.shape
    if rows * columns > MOST_MAP_CELLS:
        raise SurveyError(
            f"the points span {columns * grid.resolution:,.0f} x {rows * grid.resolution:,.0f} m, which is"
            f" {rows * columns:,} cells of {grid.resolution:g} m, and {MOST_MAP_CELLS:,} are possible:"
            " give larger cells with --set mapping.resolution, or leave out what is far away (no --keep-outliers)"
        )


def empty_cells(down: slice, across: slice) -> NDArray[np.float32]:
    return np.full((down.stop - down.start, across.stop - across.start), np.nan, dtype=np.float32)


def room_needed(survey: Survey) -> int:
    """Bytes on disk that a survey's results take at most: floats hardly get smaller by compression."""
    rows, columns = survey.grid.shape
    cells = min(rows * columns, survey.cells_near_points)
    layers = len(GEOTIFF_LAYERS) + (2 * len(BASE) if rows * columns <= NPZ_CELLS else 0)
    return 4 * cells * layers + survey.bytes_stored


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
        if name == "shade":
            layer = shade(part["gradient_x"], part["gradient_y"])
        elif name == "certain":
            layer = certainty(part)
        else:
            layer = layer_values(part, name)
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
        {name: overview[name] for name in PICTURES},
        grid,
        crs.label or "the files' coordinates",
        np.nan_to_num(overview["certain"]),
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
