"""Point cloud files into one map: `gpgmap map`."""

from __future__ import annotations

import contextlib
import errno
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
from gpgmap_ros.apps.survey_overview import Overview
from gpgmap_ros.apps.survey_plan import Plan, SurveyError
from gpgmap_ros.apps.survey_report import write_survey_report
from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter
from gpgmap_ros.io.map_products import exported_values, write_layers_npz
from gpgmap_ros.io.points import NoPointsError, PointSource
from gpgmap_ros.io.points.decoder import decoder
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.scratch import ScratchLayer
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import LAYERS, exported_layers, posterior_layers
from gpgmap_ros.mapping.survey import Outliers, Survey
from gpgmap_ros.memory import give_back, largest_bytes, resident_bytes
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.storage.atomic import write_json, write_text

ADDING_BYTES = 150 << 20
"""Memory beside the tiles while points are added: the pieces that are read and sorted."""
MAX_MAP_CELLS = 40_000_000_000
"""Cells of a map: 140 x 140 km in cells of 0.7 m. More are a mistake in the coordinates or the resolution."""
WINDOWS = (2 * TILE, TILE)
"""Cells along a window that is solved at once, whole tiles of the GeoTIFFs: the larger one computes less twice."""
FREED_SHARE = 10
"""One part in so many of the memory is for arrays that are freed and not given back to the system."""
TILES_WORTHWHILE = 100 << 20
"""Memory that the larger window must leave for tiles."""
NPZ_CELLS = 30_000_000
"""Beyond it only GeoTIFFs are written: no program reads so large an NPZ well."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that is full, a quota that is used up, a file that may not grow."""


@dataclass(frozen=True, eq=False)
class SurveyJob:
    """What to map, and where to.

    name: of the run; sources, planned: the files and their settings; crs: of their coordinates
    memory: bytes that may be used; keep_outliers: map also points far from all others
    warnings: sentences for the summary
    """

    name: str
    sources: list[PointSource]
    planned: Plan
    crs: Crs
    folder: RunFolder
    memory: int
    keep_outliers: bool
    warnings: list[str]

    @property
    def tiles(self) -> Path:
        """Folder for what does not fit into the memory, while the job runs."""
        return self.folder.path / ".tiles"


@dataclass(frozen=True)
class Spent:
    """Seconds: adding points, waiting for them to be read (they are read beside), and of all processors for both."""

    adding: float
    reading: float
    processors: float


def run_survey(job: SurveyJob, begin: float) -> dict[str, Any]:
    """Map the files, write the run folder, return its summary. begin: time.monotonic() when the command started"""
    summary: dict[str, Any] = {
        "kind": "survey", "name": job.name, "sources": [str(source.path) for source in job.sources],
        "guesses": list(job.planned.guesses), "crs": job.crs.label, "warnings": job.warnings, "losses": [],
    }  # fmt: skip
    job.folder.begin(summary, job.planned.config)
    needed = 0
    try:
        survey, spent, notes = add_points(job)
        decoder.close()
        job.warnings.extend(notes)
        needed = disk_needed(survey)
        check_disk(job.folder.path, needed)
        with ProgressBar("solving", 1) as bar:
            start = time.monotonic()
            numbers, overview = write_survey(
                job,
                survey,
                lambda done, total: bar.update((done + 1) / total, f"window {done + 1} of {total}"),
            )
            solving = time.monotonic() - start
    except BaseException as error:
        failure = explain_failure(job.folder.path, error, needed)
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(OSError):
            write_json(job.folder.summary, {**summary, "status": status, "error": str(failure)})
        raise failure from (None if failure is error else error)
    finally:
        shutil.rmtree(job.tiles, ignore_errors=True)
    summary |= summarise(survey, spent, solving, numbers)
    summary["seconds"] = {"all": round(time.monotonic() - begin, 3)}
    write_survey_report(job.folder, summary, job.planned.config, overview, job.crs)
    write_json(job.folder.summary, summary)
    return summary


def summarise(survey: Survey, spent: Spent, solving: float, numbers: dict[str, Any]) -> dict[str, Any]:
    """What the summary of a complete survey adds. solving: seconds; numbers: of the map, from `write_survey`"""
    grid = survey.grid
    return {
        "status": "complete",
        "points": {
            "used": survey.count,
            "per_second": round(survey.count / (spent.adding + spent.reading), 1),
            "per_processor_second": round(survey.count / spent.processors, 1),
        },
        "map": {
            "resolution_m": grid.resolution, "cells": list(grid.shape), "origin": list(grid.origin), **numbers,
        },
        "timings_s": {
            "adding": round(spent.adding, 3),
            "reading": round(spent.reading, 3),
            "solving and writing": round(solving, 3),
        },
        "largest_memory_mb": round(largest_bytes() / 2**20 + decoder.largest_mb, 1),
    }  # fmt: skip


def add_points(job: SurveyJob) -> tuple[Survey, Spent, list[str]]:
    """`collect` with a progress bar."""
    start, expected = time.monotonic(), job.planned.points
    with ProgressBar("adding points", expected or 1) as bar:

        def show(count: int) -> None:
            spent = max(time.monotonic() - start, 1e-6)
            left = ((expected or count) - count) / (count / spent)
            bar.update(count, f"{count / 1e6:.1f} M points  {count / spent / 1e6:.1f} M/s  {left:.0f} s left")

        return collect(job, show)


def collect(job: SurveyJob, progress: Callable[[int], None]) -> tuple[Survey, Spent, list[str]]:
    """Read all points once; the survey, the time it took, and sentences about points that were left out.

    progress: told the number of points so far
    """
    start, cpu = time.perf_counter(), time.process_time()
    room = tile_memory(job.memory, job.sources, ADDING_BYTES)
    heights = (-np.inf, np.inf) if job.keep_outliers else job.planned.heights
    survey = Survey(job.planned.config, job.planned.trend, job.tiles, room, heights)
    adding, count, bad = 0.0, 0, 0
    notes: list[str] = []
    for source in job.sources:
        try:
            for piece in read_ahead(source.pieces()):
                begin = time.perf_counter()
                survey.add(piece)
                adding += time.perf_counter() - begin
                count += len(piece)
                progress(count)
        except NoPointsError as error:
            if len(job.sources) == 1:
                raise
            notes.append(str(error))
        bad += source.left_out
    if not count:
        raise SurveyError("; ".join(notes) or f"{job.sources[0].path}: the file has no points")
    if bad:
        notes.append(f"{bad:,} points have no usable coordinates (not finite, or beyond 1e9 m): left out")
    if not job.keep_outliers:
        notes += describe_outliers(survey.beyond_heights) + describe_outliers(survey.leave_out_outliers())
    spent = Spent(adding, time.perf_counter() - start - adding, time.process_time() - cpu)
    return survey, spent, notes


def describe_outliers(outliers: Outliers) -> list[str]:
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
    decoding = max((source.decoder_bytes for source in sources), default=0)
    return memory - resident_bytes() - working - decoding


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
    job: SurveyJob, survey: Survey, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any], Overview]:
    """Solve window by window and write the layers; numbers of the map, and an overview of it.

    progress: told windows done, and all
    """
    grid, crs, folder = survey.grid, job.crs, job.folder
    base = posterior_layers(survey.config.mapping)
    exported = exported_layers(base)
    check_size(grid)
    overview = Overview(grid)
    keep = grid.shape[0] * grid.shape[1] <= NPZ_CELLS
    folder.layers.mkdir(parents=True, exist_ok=True)
    parts = list(windows(survey, prepare_solving(survey, job.memory)))
    with ExitStack() as stack:
        writers = {name: stack.enter_context(open_geotiff(folder, name, grid, crs)) for name in exported}
        stored = {
            name: stack.enter_context(ScratchLayer(job.tiles / f"{name}.f4", grid.shape))
            for name in (base if keep else ())
        }
        known = 0
        for number, (rows, columns) in enumerate(parts):
            part = survey.window(rows, columns)
            give_back()
            progress(number, len(parts))
            for name, layer in stored.items():
                layer.write(rows, columns, empty_cells(rows, columns) if part is None else part[name])
            if part is not None:
                known += int(part.known.sum())
                write_tiles(writers, part, grid.shape[0] - rows.stop, columns.start)
                overview.add(part, rows, columns)
        survey.close()
        give_back()  # what the tiles held: the pictures and the report need room
        if keep:
            write_layers_npz(folder.map, stored, grid, crs.label or "survey", 0, crs)
    if crs.wkt and not crs.keys:
        for name in exported:
            write_text(folder.layers / f"{name}.prj", crs.wkt)
    overview.write_pictures(folder)
    return {"known_m2": round(known * grid.resolution**2, 1), "npz": keep}, overview


def open_geotiff(folder: RunFolder, name: str, grid: Grid, crs: Crs) -> GeoTiffWriter:
    """The writer of one layer of the whole map."""
    corner = (grid.origin[0], grid.origin[1] + grid.shape[0] * grid.resolution)
    path = folder.layers / f"{name}.tif"
    return GeoTiffWriter(path, grid.shape, corner, grid.resolution, crs, name, LAYERS[name].unit)


def check_size(grid: Grid) -> None:
    """SurveyError where a map would be larger than any disk."""
    rows, columns = grid.shape
    if rows * columns > MAX_MAP_CELLS:
        raise SurveyError(
            f"the points span {columns * grid.resolution:,.0f} x {rows * grid.resolution:,.0f} m, which is"
            f" {rows * columns:,} cells of {grid.resolution:g} m; at most {MAX_MAP_CELLS:,} are possible:"
            " use larger cells (--set mapping.resolution), or leave out distant points (without --keep-outliers)"
        )


def empty_cells(rows: slice, columns: slice) -> NDArray[np.float32]:
    """A window in which nothing is known."""
    return np.full((rows.stop - rows.start, columns.stop - columns.start), np.nan, dtype=np.float32)


def write_tiles(writers: dict[str, GeoTiffWriter], part: GPGMap, top: int, left: int) -> None:
    """Write a window's layers. top, left: row from the north and column of its north-western cell; whole tiles"""
    for name, writer in writers.items():
        image = exported_values(part, name)[::-1]
        for y in range(0, image.shape[0], TILE):
            for x in range(0, image.shape[1], TILE):
                writer.write_tile((top + y) // TILE, (left + x) // TILE, image[y : y + TILE, x : x + TILE])


def disk_needed(survey: Survey) -> int:
    """Bytes on disk that a survey's results take at most: floats hardly get smaller by compression."""
    rows, columns = survey.grid.shape
    cells = min(rows * columns, survey.cells_near_points)
    base = posterior_layers(survey.config.mapping)
    layers = len(exported_layers(base)) + (2 * len(base) if rows * columns <= NPZ_CELLS else 0)
    return 4 * cells * layers + survey.bytes_stored


def check_disk(folder: Path, needed: int) -> None:
    """RuntimeError where the results can't fit: they take at least half of what is estimated."""
    free = shutil.disk_usage(folder).free
    if free < needed // 2:
        raise RuntimeError(
            f"{folder}: the results need about {format_bytes(needed)} of disk space, {format_bytes(free)} are free:"
            " make room, choose another folder with --out, or use larger cells (--set mapping.resolution)"
        )


def explain_failure(folder: Path, error: BaseException, needed: int) -> BaseException:
    """The error; of a full disk with what is needed (bytes, 0 where not known yet), what is free and what to do."""
    if not isinstance(error, OSError) or error.errno not in DISK_FULL:
        return error
    estimate = f"about {format_bytes(needed)} are needed in all, " if needed else ""
    free = shutil.disk_usage(folder).free
    return RuntimeError(
        f"{folder}: cannot be written ({error.strerror}): {estimate}{format_bytes(free)} are free:"
        " make room, or choose another folder with --out"
    )


def format_bytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.0f} MB"
