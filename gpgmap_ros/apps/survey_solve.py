"""The windows of a survey's map: how large they are, which there are, and their solution."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from gp_core.grid import Grid, Workers
from gpgmap_ros.apps.survey_job import SurveyJob, run_stage
from gpgmap_ros.apps.survey_layers import divide_map
from gpgmap_ros.apps.survey_overview import overview_factor
from gpgmap_ros.apps.survey_runner import Task
from gpgmap_ros.apps.survey_tasks import SolvedWindow, WindowJob, solve_survey_window
from gpgmap_ros.io.geotiff import TILE
from gpgmap_ros.mapping.model import is_rough
from gpgmap_ros.mapping.survey import SurveyModel
from gpgmap_ros.mapping.survey_noise import learn_survey_noise
from gpgmap_ros.mapping.survey_parts import PartIndex, merged_from
from gpgmap_ros.mapping.survey_window import window_bounds, window_bytes
from gpgmap_ros.memory import give_back

WINDOWS = (2 * TILE, TILE, TILE // 2, TILE // 4)
"""Cells along a window that is solved at once: a larger one computes less twice. Those of a whole tile of the GeoTIFFs
or more are tasks; smaller ones are parts of a task."""
ROUGH_WINDOW = TILE // 2
"""The largest of a rough kernel: its work by cell, its memory and its tables grow with the window, and its halo is
narrow."""
PROGRAM_BYTES, FREED_SHARE = 260 << 20, 10
"""Memory of a process before it solves anything; one part in so many is for arrays that are freed and not given
back."""
DEFAULT_MEMORY = 1 << 30


def window_edge(model: SurveyModel, memory: int) -> int:
    """Cells along a window that fits into the memory (bytes) of a process."""
    room = memory - memory // FREED_SHARE - PROGRAM_BYTES
    most = ROUGH_WINDOW if is_rough(model.config.mapping) else WINDOWS[0]
    fitting = (edge for edge in WINDOWS if edge <= most and window_bytes(model.config, edge) <= room)
    return next(fitting, WINDOWS[-1])


def make_windows(
    model: SurveyModel, digest: str, parts: Sequence[PartIndex], grid: Grid, memory: int
) -> list[WindowJob]:
    """The windows with points in them or near them, each with the sums that it needs.

    digest: of the model; memory: bytes of a process
    """
    factor = overview_factor(grid)
    made = merged_from(parts)
    edge = window_edge(model, memory)
    signature = hashlib.sha256(f"{digest} {grid} {factor} {edge} {made}".encode()).hexdigest()
    noise = learn_survey_noise(model, parts, grid, Workers(1))
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
            jobs.append(WindowJob(grid, rows, columns, needed, noise, edge, factor, signature))
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
    give_back()
    windows: list[SolvedWindow] = run_stage(job, tasks, "solving", "window")
    job.timings["solving"] = time.monotonic() - start
    job.largest_mb = max([job.largest_mb, *(window.largest_mb for window in windows)])
    return windows
