"""Point cloud files into one map, stage by stage: `gpgmap map`.

scan headers and samples -> plan -> sums by part -> outliers, ground -> merge -> grid -> windows -> files -> report

Every stage is a list of tasks (survey_tasks.py) that a runner takes, in this process or on a cluster
(survey_runner.py). Between stages this process decides with what the tasks returned, in an order that does not depend
on who was first: the map is the same however many workers there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import Any

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_files import PlannedFile, Prepared, SurveyRequest, model_of, refresh_files
from gpgmap_ros.apps.survey_ground import filter_ground
from gpgmap_ros.apps.survey_job import SCRATCH, SurveyJob, run_stage
from gpgmap_ros.apps.survey_layers import (
    NPZ_CELLS,
    make_sheets,
    windows_by_sheet,
    write_layer,
    write_npz,
    write_survey_item,
    write_virtual_rasters,
)
from gpgmap_ros.apps.survey_overview import Overview
from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.apps.survey_points import add_points, drop_outliers, merge_tree
from gpgmap_ros.apps.survey_pyramid import write_pyramid
from gpgmap_ros.apps.survey_report import encode_overview, write_survey_report
from gpgmap_ros.apps.survey_room import check_disk, check_size, disk_needed, explain_failure
from gpgmap_ros.apps.survey_runner import Runner, Task
from gpgmap_ros.apps.survey_solve import solve
from gpgmap_ros.apps.survey_store import check_request, load_plan, save_model, save_plan, save_request
from gpgmap_ros.apps.survey_tasks import FileStamp, SolvedWindow
from gpgmap_ros.io.points.decoder import decoder
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping.layers import exported_layers, posterior_layers
from gpgmap_ros.mapping.survey_parts import PartIndex
from gpgmap_ros.mapping.survey_window import survey_grid
from gpgmap_ros.memory import largest_bytes
from gpgmap_ros.storage.atomic import write_json


def begin_job(job: SurveyJob) -> None:
    """Write the plan into the scratch folder of a new run."""
    planned = job.prepared.plan
    save_request(job.scratch, job.request.record())
    job.digest = save_model(job.scratch, model_of(job.request, planned))
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
        parts = merge_tree(job, filter_ground(job, drop_outliers(job, parts)))
        if not parts:
            raise SurveyError("no point was found to be ground: map all of them, without --ground")
        grid = survey_grid(parts, planned.config.mapping.resolution)
        check_size(grid)
        needed = disk_needed(job, parts, grid)
        check_disk(job.folder.path, needed)
        solved = solve(job, parts, grid)
        overview = write(job, grid, solved)
        shown = encode_overview(overview, job.prepared.crs)
        shown["tiles"] = write_pyramid(job, grid, solved, shown["resolution"])
    except BaseException as error:
        failure = explain_failure(job, error, needed)
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(OSError):
            write_json(job.folder.summary, {**summary, "status": status, "error": str(failure)})
        raise failure from (None if failure is error else error)
    summary |= summarise(job, parts, grid, solved)
    summary["seconds"] = {"all": round(time.monotonic() - begin, 3)}
    write_survey_report(job.folder, summary, planned.config, shown, job.prepared.crs)
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
            "objects": job.objects,
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


def write(job: SurveyJob, grid: Grid, solved: Sequence[SolvedWindow]) -> Overview:
    """Write the files of the map from its solved windows; an overview of it."""
    start, crs = time.monotonic(), job.prepared.crs
    layers = exported_layers(posterior_layers(job.model.config.mapping))
    job.folder.layers.mkdir(parents=True, exist_ok=True)
    tasks, sheets = [], []
    if grid.shape[0] * grid.shape[1] <= NPZ_CELLS:  # the longest task comes first
        own = [dataclasses.replace(window, small={}) for window in solved]
        arguments: tuple[Any, ...] = (job.scratch, job.digest, grid, job.folder.map.resolve(), crs, own)
        tasks.append(Task("write-map", write_npz, arguments))
    for sheet, windows in windows_by_sheet(grid, make_sheets(grid), solved):
        if not windows and sheet.name:
            continue  # nothing is known there
        sheets.append(sheet)
        own = [dataclasses.replace(window, small={}) for window in windows]
        for layer in layers:
            path = sheet.path(job.folder, layer).resolve()
            arguments = (job.scratch, job.digest, grid, sheet, layer, path, crs, own)
            tasks.append(Task(f"write-{layer}-{sheet.name}", write_layer, arguments))
    run_stage(job, tasks, "writing", "file")
    if sheets[0].name:
        write_virtual_rasters(job.folder, grid, crs, layers, sheets)
    newest = max(file.stamp.modified for file in job.prepared.files) / 1e9
    write_survey_item(job.folder, job.name, grid, crs, layers, sheets, newest)
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
