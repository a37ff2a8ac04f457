"""Point cloud files into one map, stage by stage: `gpgmap map`.

scan headers and samples -> plan -> sums by part -> merge -> outliers, grid -> windows -> files of the map -> report

Every stage is a list of tasks (survey_tasks.py) that a runner takes, in this process or on a cluster
(survey_runner.py). Between stages this process decides with what the tasks returned, in an order that does not depend
on who was first: the map is the same however many workers there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.grid import Grid, Workers
from gpgmap_ros.apps.survey_files import PlannedFile, Prepared, SurveyRequest, refresh_files
from gpgmap_ros.apps.survey_layers import (
    NPZ_CELLS,
    divide_map,
    make_sheets,
    windows_by_sheet,
    write_layer,
    write_npz,
    write_virtual_rasters,
)
from gpgmap_ros.apps.survey_overview import Overview, overview_factor
from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.apps.survey_report import write_survey_report
from gpgmap_ros.apps.survey_runner import DISK_FULL, IncompleteError, LocalRunner, Outcome, Runner, Task
from gpgmap_ros.apps.survey_store import (
    check_request,
    load_model,
    load_plan,
    save_model,
    save_plan,
    save_request,
)
from gpgmap_ros.apps.survey_tasks import (
    FileStamp,
    SolvedWindow,
    WindowJob,
    merge_sums,
    solve_survey_window,
    sum_points,
)
from gpgmap_ros.io.geotiff import TILE
from gpgmap_ros.io.points import PointFileError
from gpgmap_ros.io.points.decoder import decoder
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping.layers import exported_layers, posterior_layers
from gpgmap_ros.mapping.survey import Outliers, SurveyModel
from gpgmap_ros.mapping.survey_noise import estimate_survey_noise
from gpgmap_ros.mapping.survey_parts import PartIndex
from gpgmap_ros.mapping.survey_window import (
    cells_near_points,
    find_outliers,
    survey_grid,
    window_bounds,
    window_bytes,
    without_tiles,
)
from gpgmap_ros.memory import give_back, largest_bytes
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.storage.atomic import write_json

MAX_MAP_CELLS = 40_000_000_000
"""Cells of a map: 140 x 140 km in cells of 0.7 m. More are a mistake in the coordinates or the resolution."""
WINDOWS = (2 * TILE, TILE, TILE // 2, TILE // 4)
"""Cells along a window that is solved at once: a larger one computes less twice. Those of a whole tile of the GeoTIFFs
or more are tasks; smaller ones, for kernels that need much memory, are parts of a task."""
PROGRAM_BYTES, FREED_SHARE = 260 << 20, 10
"""Memory of a process before it solves anything; one part in so many is for arrays that are freed and not given
back."""
FAN_IN = 16
"""Parts that a node of the tree of sums adds up; a window may need four times as many before there is a tree."""
NAMED = 5
"""Of what is missing, named in a message; the rest is in run.json."""
SCRATCH = ".survey"
DEFAULT_MEMORY = 1 << 30


@dataclass(eq=False)
class SurveyJob:
    """What to map, where to, and by whom.

    name: of the run; memory: bytes that each process may use
    """

    name: str
    request: SurveyRequest
    prepared: Prepared
    folder: RunFolder
    memory: int
    runner: Runner
    warnings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    largest_mb: float = 0.0
    digest: str = ""

    def __post_init__(self) -> None:
        self.warnings.extend(self.prepared.warnings)
        self.missing.extend(self.prepared.missing)

    @property
    def scratch(self) -> Path:
        """Folder for sums and windows while the job runs; all workers must see it."""
        return (self.folder.path / SCRATCH).resolve()

    @property
    def threads(self) -> int | None:
        """Of a task: all cores where this process is alone, one where every core has a worker."""
        return None if isinstance(self.runner, LocalRunner) else 1

    @property
    def model(self) -> SurveyModel:
        return load_model(self.scratch, self.digest)


def begin_job(job: SurveyJob) -> None:
    """Write the plan into the scratch folder of a new run."""
    planned = job.prepared.plan
    heights = (-np.inf, np.inf) if job.request.keep_outliers else planned.heights
    save_request(job.scratch, job.request.record())
    job.digest = save_model(job.scratch, SurveyModel(planned.config, planned.trend, heights))
    files = [dataclasses.asdict(file) for file in job.prepared.files]
    notices = {"warnings": list(job.prepared.warnings), "missing": list(job.prepared.missing)}
    save_plan(job.scratch, planned, files, job.prepared.crs, notices)


def resume_plan(folder: RunFolder, request: SurveyRequest, runner: Runner) -> Prepared:
    """The plan of an unfinished run. SurveyError where there is none, or another was asked for."""
    scratch = (folder.path / SCRATCH).resolve()
    check_request(scratch, request.record())
    planned, records, crs, notices = load_plan(scratch)
    files = [PlannedFile(**{**record, "stamp": FileStamp(**record["stamp"])}) for record in records]
    return Prepared(
        planned,
        refresh_files(files, request, runner),
        crs,
        (),
        tuple(notices["warnings"]),
        tuple(notices["missing"]),
    )


def run_survey(job: SurveyJob, begin: float) -> dict[str, Any]:
    """Map the files, write the run folder, return its summary. begin: time.monotonic() when the command started"""
    planned = job.prepared.plan
    summary: dict[str, Any] = {
        "kind": "survey", "name": job.name, "sources": [str(path) for path in job.request.files],
        "guesses": list(planned.guesses), "crs": job.prepared.crs.label, "scheduler": job.runner.description,
        "warnings": job.warnings, "missing": job.missing, "losses": [],
    }  # fmt: skip
    needed = 0
    try:
        job.folder.begin(summary, planned.config)
        begin_job(job)
        job.runner.check(job.scratch)
        parts = add_points(job)
        decoder.close()
        parts = merge_tree(job, drop_outliers(job, parts))
        grid = survey_grid(parts, planned.config.mapping.resolution)
        check_size(grid)
        needed = disk_needed(job, parts, grid)
        check_disk(job.folder.path, needed)
        solved = solve(job, parts, grid)
        overview = write(job, grid, solved)
    except BaseException as error:
        failure = explain_failure(job, error, needed)
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(OSError):
            write_json(job.folder.summary, {**summary, "status": status, "error": str(failure)})
        raise failure from (None if failure is error else error)
    summary |= summarise(job, parts, grid, solved)
    summary["seconds"] = {"all": round(time.monotonic() - begin, 3)}
    write_survey_report(job.folder, summary, planned.config, overview, job.prepared.crs)
    write_json(job.folder.summary, summary)
    shutil.rmtree(job.scratch, ignore_errors=True)
    return summary


def summarise(
    job: SurveyJob, parts: Sequence[PartIndex], grid: Grid, solved: Sequence[SolvedWindow]
) -> dict[str, Any]:
    """What the summary of a complete survey adds."""
    count = sum(part.count for part in parts)
    known = sum(window.known for window in solved)
    cpu = job.timings.pop("processors")
    return {
        "status": "complete",
        "points": {
            "used": count,
            "per_second": round(count / max(job.timings["adding points"], 1e-9), 1),
            "per_processor_second": round(count / max(cpu, 1e-9), 1),
        },
        "map": {
            "resolution_m": grid.resolution, "cells": list(grid.shape), "origin": list(grid.origin),
            "known_m2": round(known * grid.resolution**2, 1), "npz": grid.shape[0] * grid.shape[1] <= NPZ_CELLS,
        },
        "timings_s": {name: round(seconds, 3) for name, seconds in job.timings.items()},
        "largest_memory_mb": round(max(job.largest_mb, largest_bytes() / 2**20), 1),
    }  # fmt: skip


# -- points ----------------------------------------------------------------------------------------------


def add_points(job: SurveyJob) -> list[PartIndex]:
    """Sums of all parts, in the order of files and points. Files that can't be read end the run, or are left out."""
    sources = [part for file in job.prepared.files for part in file.parts(job.request.classes)]
    tasks = [
        Task(f"sum-{source.file}-{source.part}", sum_points, (job.scratch, job.digest, source, job.threads))
        for source in sources
    ]
    found: dict[str, list[PartIndex]] = {}
    bad: dict[int, str] = {}
    failed: list[Outcome] = []
    start, count, expected = time.monotonic(), 0, job.prepared.plan.points
    with ProgressBar("adding points", expected or len(tasks)) as bar:
        for done, outcome in enumerate(job.runner.run(tasks), 1):
            if outcome.error is None:
                found[outcome.task.name] = outcome.value
                count += sum(part.count for part in outcome.value)
            elif isinstance(outcome.error, PointFileError):
                if not job.request.leave_out:
                    raise outcome.error
                bad[outcome.task.arguments[2].file] = str(outcome.error)
            else:
                failed.append(outcome)
            share = done / len(tasks)
            note = describe_progress(count, time.monotonic() - start, share, f"part {done} of {len(tasks)}")
            bar.update(share * (expected or len(tasks)), f"{note}{describe_workers(job.runner)}")
    require_complete(job, failed, len(tasks))
    job.missing.extend(bad[number] for number in sorted(bad))
    used = [source for source in sources if source.file not in bad]
    parts = [part for source in used for part in found[f"sum-{source.file}-{source.part}"]]
    job.timings["adding points"] = time.monotonic() - start
    job.timings["processors"] = sum(last_of(found[task.name]).facts["processor_seconds"] for task in tasks
                                    if task.name in found)  # fmt: skip
    job.largest_mb = max([job.largest_mb, *(part.facts["largest_mb"] for part in parts)])
    note_left_out(job, parts)
    return parts


def last_of(parts: Sequence[PartIndex]) -> PartIndex:
    """The one that was written when all points of a task were in."""
    return parts[-1]


def describe_progress(count: int, spent: float, share: float, step: str) -> str:
    """Points, rate, step and what is left, for the terminal."""
    left = spent * (1.0 - share) / max(share, 1e-9)
    return f"{count / 1e6:.1f} M points  {count / max(spent, 1e-6) / 1e6:.1f} M/s  {step}  {left:.0f} s left"


def describe_workers(runner: Runner) -> str:
    return "" if isinstance(runner, LocalRunner) else f"  {runner.workers} workers"


def require_complete(job: SurveyJob, failed: Sequence[Outcome], total: int) -> None:
    """IncompleteError where tasks failed although they were tried again; a full disk as itself where that was all."""
    if not failed:
        return
    errors = [outcome.error for outcome in failed]
    if isinstance(job.runner, LocalRunner) and errors[0] is not None:
        raise errors[0]
    missing = [f"{describe_task(outcome.task)}: {outcome.error}" for outcome in failed]
    job.missing.extend(missing)
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    raise IncompleteError(
        f"{len(failed)} of {total} steps could not be done: {'; '.join(missing[:NAMED])}{more}"
    )


def describe_task(task: Task) -> str:
    """What a task was for, as a user knows it."""
    about = task.arguments[2]
    if hasattr(about, "stamp"):
        end = "" if about.count is None else f" points {about.first:,} to {about.first + about.count:,}"
        return f"{about.stamp.path}{end}"
    return task.name


def note_left_out(job: SurveyJob, parts: Sequence[PartIndex]) -> None:
    """Warnings about points and files that gave nothing. SurveyError where there are no points at all."""
    by_file: dict[str, list[PartIndex]] = {}
    for part in parts:
        by_file.setdefault(part.facts["file"], []).append(part)
    empty = [
        next(
            (part.facts["empty"] for part in own if part.facts["empty"]),
            f"{name}: has no points of the classes",
        )
        for name, own in by_file.items()
        if not sum(part.count for part in own)
    ]
    if not sum(part.count for part in parts):
        raise SurveyError("; ".join(empty + job.missing))
    job.warnings.extend(empty)
    if bad := sum(part.facts["left_out"] for part in parts if part.facts["last"]):
        job.warnings.append(
            f"{bad:,} points have no usable coordinates (not finite, or beyond 1e9 m): left out"
        )


def drop_outliers(job: SurveyJob, parts: list[PartIndex]) -> list[PartIndex]:
    """The parts without points far from all others, which are named."""
    if job.request.keep_outliers:
        return parts
    beyond = sum((part.beyond_heights for part in parts), Outliers())
    far, outliers = find_outliers(parts)
    job.warnings.extend(describe_outliers(beyond) + describe_outliers(outliers))
    return [without_tiles(part, far) for part in parts] if far else parts


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


def merge_tree(job: SurveyJob, parts: list[PartIndex]) -> list[PartIndex]:
    """The same sums in fewer parts, where the points came in such an order that most parts reach into most tiles.

    Neighbours in the order of the parts are added up, FAN_IN at a time, level by level: the order of the sums does
    not depend on who adds.
    """
    start, level = time.monotonic(), 0
    while len(parts) > 4 * FAN_IN and largest_overlap(parts) > 4 * FAN_IN:
        groups = [parts[k : k + FAN_IN] for k in range(0, len(parts), FAN_IN)]
        tasks = [
            Task(
                f"merge-{level}-{k}", merge_sums,
                (job.scratch, job.digest, f"merged_{level}_{k:06d}", group, job.threads),
            )
            for k, group in enumerate(groups)
        ]  # fmt: skip
        found: dict[str, PartIndex] = {}
        failed: list[Outcome] = []
        with ProgressBar("merging sums", len(tasks)) as bar:
            for done, outcome in enumerate(job.runner.run(tasks), 1):
                if outcome.error is None:
                    found[outcome.task.name] = outcome.value
                else:
                    failed.append(outcome)
                bar.update(done, f"{done} of {len(tasks)}")
        require_complete(job, failed, len(tasks))
        parts, level = [found[task.name] for task in tasks], level + 1
    job.timings["merging"] = time.monotonic() - start
    return parts


def largest_overlap(parts: Sequence[PartIndex]) -> int:
    """Parts in the tile that most parts have points in."""
    keys = np.concatenate([np.column_stack([part.entries["row"], part.entries["column"]]) for part in parts])
    return int(np.unique(keys, axis=0, return_counts=True)[1].max()) if len(keys) else 0


# -- the map ---------------------------------------------------------------------------------------------


def window_edge(model: SurveyModel, memory: int) -> int:
    """Cells along a window that fits into the memory (bytes) of a process."""
    room = memory - memory // FREED_SHARE - PROGRAM_BYTES
    return next((edge for edge in WINDOWS if window_bytes(model.config, edge) <= room), WINDOWS[-1])


def make_windows(
    model: SurveyModel, digest: str, parts: Sequence[PartIndex], grid: Grid, memory: int
) -> list[WindowJob]:
    """The windows with points in them or near them, each with the sums that it needs.

    digest: of the model; memory: bytes of a process
    """
    factor = overview_factor(grid)
    made = repr([(part.path.name, part.count, len(part.entries)) for part in parts])
    edge = window_edge(model, memory)
    signature = hashlib.sha256(f"{digest} {grid} {factor} {edge} {made}".encode()).hexdigest()
    noise_level = estimate_survey_noise(model, parts, Workers(1))
    tiles: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, part in enumerate(parts):
        for place, (row, column) in enumerate(zip(part.entries["row"], part.entries["column"], strict=True)):
            tiles.setdefault((int(row), int(column)), []).append((number, place))
    jobs = []
    for rows, columns in divide_map(grid, max(edge, TILE)):
        down, across = model.lattice.tiles_in(window_bounds(model, grid, rows, columns))
        places: dict[int, list[int]] = {}
        for key in ((row, column) for row in down for column in across):
            for number, place in tiles.get(key, ()):
                places.setdefault(number, []).append(place)
        if places:
            needed = tuple((str(parts[n].path), parts[n].entries[places[n]]) for n in sorted(places))
            jobs.append(WindowJob(grid, rows, columns, needed, noise_level, edge, factor, signature))
    return jobs


def solve(job: SurveyJob, parts: Sequence[PartIndex], grid: Grid) -> list[SolvedWindow]:
    """Solve all windows with points; their results in the order of the map."""
    start = time.monotonic()
    tasks = [
        Task(
            f"solve-{window.rows.start}-{window.columns.start}", solve_survey_window,
            (job.scratch, job.digest, window, job.threads),
        )
        for window in make_windows(job.model, job.digest, parts, grid, job.memory)
    ]  # fmt: skip
    solved: dict[str, SolvedWindow] = {}
    failed: list[Outcome] = []
    give_back()
    with ProgressBar("solving", 1) as bar:
        for done, outcome in enumerate(job.runner.run(tasks), 1):
            if outcome.error is None:
                solved[outcome.task.name] = outcome.value
            else:
                failed.append(outcome)
            left = (time.monotonic() - start) * (len(tasks) / done - 1.0)
            bar.update(
                done / len(tasks),
                f"window {done} of {len(tasks)}  {left:.0f} s left{describe_workers(job.runner)}",
            )
    require_complete(job, failed, len(tasks))
    job.timings["solving"] = time.monotonic() - start
    windows = [solved[task.name] for task in tasks]
    job.largest_mb = max([job.largest_mb, *(window.largest_mb for window in windows)])
    return windows


def write(job: SurveyJob, grid: Grid, solved: Sequence[SolvedWindow]) -> Overview:
    """Write the files of the map from its solved windows; an overview of it."""
    start, crs = time.monotonic(), job.prepared.crs
    layers = exported_layers(posterior_layers(job.model.config.mapping))
    job.folder.layers.mkdir(parents=True, exist_ok=True)
    tasks, sheets = [], []
    for sheet, windows in windows_by_sheet(grid, make_sheets(grid), solved):
        if not windows and sheet.name:
            continue  # nothing is known there
        sheets.append(sheet)
        own = [dataclasses.replace(window, small={}) for window in windows]
        for layer in layers:
            path = sheet.path(job.folder, layer).resolve()
            arguments = (job.scratch, job.digest, grid, sheet, layer, path, crs, own)
            tasks.append(Task(f"write-{layer}-{sheet.name}", write_layer, arguments))
    failed = []
    with ProgressBar("writing", len(tasks)) as bar:
        for done, outcome in enumerate(job.runner.run(tasks), 1):
            if outcome.error is not None:
                failed.append(outcome)
            bar.update(done, f"file {done} of {len(tasks)}{describe_workers(job.runner)}")
    require_complete(job, failed, len(tasks))
    if sheets[0].name:
        write_virtual_rasters(job.folder, grid, crs, layers, sheets)
    else:
        write_npz(job.folder, job.scratch, job.digest, grid, crs, solved)
    overview = make_overview(grid, solved)
    overview.write_pictures(job.folder)
    job.timings["writing"] = time.monotonic() - start
    return overview


def make_overview(grid: Grid, solved: Iterable[SolvedWindow]) -> Overview:
    """The whole map with few cells."""
    overview = Overview(grid)
    for window in solved:
        overview.place(window.small, window.rows, window.columns)
    return overview


# -- room ------------------------------------------------------------------------------------------------


def check_size(grid: Grid) -> None:
    """SurveyError where a map would be larger than any disk."""
    rows, columns = grid.shape
    if rows * columns > MAX_MAP_CELLS:
        raise SurveyError(
            f"the points span {columns * grid.resolution:,.0f} x {rows * grid.resolution:,.0f} m, which is"
            f" {rows * columns:,} cells of {grid.resolution:g} m; at most {MAX_MAP_CELLS:,} are possible:"
            " use larger cells (--set mapping.resolution), or leave out distant points (without --keep-outliers)"
        )


def disk_needed(job: SurveyJob, parts: Sequence[PartIndex], grid: Grid) -> int:
    """Bytes on disk that the results still take at most: floats hardly get smaller by compression."""
    rows, columns = grid.shape
    keys = np.concatenate([np.column_stack([part.entries["row"], part.entries["column"]]) for part in parts])
    cells = min(rows * columns, cells_near_points(job.prepared.plan.config, len(np.unique(keys, axis=0))))
    base = posterior_layers(job.prepared.plan.config.mapping)
    npz = 2 * len(base) if rows * columns <= NPZ_CELLS else 0
    return 4 * cells * (len(exported_layers(base)) + len(base) + npz)


def check_disk(folder: Path, needed: int) -> None:
    """RuntimeError where the results can't fit: they take at least half of what is estimated."""
    free = shutil.disk_usage(folder).free
    if free < needed // 2:
        raise RuntimeError(
            f"{folder}: the results need about {format_bytes(needed)} of disk space, {format_bytes(free)} are free:"
            " make room, choose another folder with --out, or use larger cells (--set mapping.resolution)"
        )


def explain_failure(job: SurveyJob, error: BaseException, needed: int) -> BaseException:
    """The error; of a full disk with what is needed (bytes, 0 where not known yet), what is free and what to do."""
    folder = job.folder.path
    if isinstance(error, IncompleteError):
        return IncompleteError(
            f"{error}; the same call with --out {folder} --resume goes on from what is done"
        )
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
