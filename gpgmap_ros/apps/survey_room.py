"""Whether a survey's map has room: in numbers of cells, and on disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_job import SurveyJob
from gpgmap_ros.apps.survey_layers import NPZ_CELLS
from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.apps.survey_pyramid import CELL_BYTES, MOST_CELLS
from gpgmap_ros.apps.survey_runner import DISK_FULL, IncompleteError
from gpgmap_ros.apps.survey_tasks import KEPT_LAYERS
from gpgmap_ros.mapping.layers import exported_layers, posterior_layers
from gpgmap_ros.mapping.survey_parts import PartIndex
from gpgmap_ros.mapping.survey_window import cells_near_points

MAX_MAP_CELLS = 40_000_000_000
"""Cells of a map: 140 x 140 km in cells of 0.7 m. More are a mistake in the coordinates or the resolution."""


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
    layers = 4 * cells * (len(exported_layers(base)) + len(base) + len(KEPT_LAYERS) + npz)
    return layers + CELL_BYTES * min(cells, MOST_CELLS)


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
