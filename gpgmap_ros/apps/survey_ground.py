"""The ground stage of a survey of everything: squares of tiles, each filtered with the points around it.

Parts of such a survey keep their points. A task reads those of a square tile by tile, with a halo as wide as an object,
finds the surface of the ground, and writes one part with the points near it: what is in memory are cells, and the
points of one tile.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gp_core.arrays import Array
from gp_core.grid import Workers
from gp_core.grid.tiled_statistics import TileKey
from gpgmap_ros.apps.survey_job import SurveyJob, run_stage
from gpgmap_ros.apps.survey_runner import Task
from gpgmap_ros.apps.survey_store import load_model
from gpgmap_ros.mapping.survey import SurveyModel
from gpgmap_ros.mapping.survey_ground import GroundCells, filter_edge, ground_surface, is_ground
from gpgmap_ros.mapping.survey_parts import (
    Entries,
    PartIndex,
    merged_from,
    places_by_tile,
    read_index,
    read_tile_points,
    write_tiles,
)

LEAST_TILES = 4
"""Along a square that is filtered at once."""
HALO_WIDTHS = 1.5
"""Halo over the width of the widest object."""
TOLERANCE, TOLERANCE_CELLS = 0.3, 0.4
"""Metres, and edges of the filter's cells, by which points of ground lie off the surface: the smaller counts."""


@dataclass(frozen=True, eq=False)
class GroundJob:
    """A square of tiles. row, column: of its first tile; tiles: along it; halo: tiles around it
    parts: points in it and around it; made: what these parts were made of; density: of all points, per square metre
    """

    row: int
    column: int
    tiles: int
    halo: int
    parts: tuple[tuple[str, Entries], ...]
    made: str
    density: float

    @property
    def name(self) -> str:
        return f"ground_{self.row}_{self.column}"

    def has(self, key: TileKey) -> bool:
        """Whether a tile is in the square itself."""
        return self.row <= key[0] < self.row + self.tiles and self.column <= key[1] < self.column + self.tiles

    def signature(self, digest: str) -> str:
        """By which a result is known to be of this job."""
        return f"{digest} {self.density:.6g} {self.tiles} {self.made}"


def ground_jobs(model: SurveyModel, parts: Sequence[PartIndex]) -> list[GroundJob]:
    """Squares with points, row by row."""
    edge = min(model.lattice.tile_size)
    halo = int(np.ceil(HALO_WIDTHS * model.ground_width / edge))
    side = max(LEAST_TILES, 2 * halo)
    entries: Entries = np.concatenate([part.entries for part in parts])
    extent = (entries["high"] - entries["low"]).prod(axis=1)
    density = float(np.median(entries["count"] / np.maximum(extent, 1e-6))) if len(entries) else 1.0
    squares = np.unique(np.column_stack([entries["row"] // side, entries["column"] // side]), axis=0)
    jobs = []
    for row, column in squares * side:
        near: list[PartIndex] = []
        for part in parts:
            own = part.entries
            inside = (own["row"] >= row - halo) & (own["row"] < row + side + halo)
            inside &= (own["column"] >= column - halo) & (own["column"] < column + side + halo)
            if inside.any():
                near.append(dataclasses.replace(part, entries=own[inside]))
        held = tuple((str(part.path), part.entries) for part in near)
        jobs.append(GroundJob(int(row), int(column), side, halo, held, merged_from(near), density))
    return jobs


def filter_square(scratch: Path, digest: str, job: GroundJob, threads: int | None) -> PartIndex:
    """Write the part of a square's ground. facts: `left_out_objects` says how many points are none."""
    path, signature = scratch / "parts" / job.name, job.signature(digest)
    there = read_index(path)
    if there is not None and there.facts.get("of") == signature:
        return there
    model = load_model(scratch, digest)
    places = places_by_tile([PartIndex(Path(name), entries, {}) for name, entries in job.parts])
    edge = filter_edge(model.config.mapping.resolution, job.density)
    tolerance = min(TOLERANCE, TOLERANCE_CELLS * edge)
    width, height = model.lattice.tile_size
    origin = ((job.column - job.halo) * width, (job.row - job.halo) * height)
    count = job.tiles + 2 * job.halo
    cells = GroundCells(
        origin, (int(np.ceil(count * height / edge)), int(np.ceil(count * width / edge))), edge
    )
    lowest = cells.lowest()
    for key in sorted(places):
        cells.add(lowest, *read_tile_points(places[key]), tolerance)
    surface = ground_surface(lowest, edge, tolerance, model.ground_width)
    left_out = 0

    def kept() -> Iterator[tuple[TileKey, Array, Array]]:
        nonlocal left_out
        for key in sorted(key for key in places if job.has(key)):
            xy, z = read_tile_points(places[key])
            good = is_ground(xy, z, surface, cells, tolerance)
            left_out += int(len(good) - good.sum())
            if good.any():
                yield key, np.ascontiguousarray(xy[good]), z[good]

    return write_tiles(
        path, model, kept(), lambda: {"of": signature, "left_out_objects": left_out}, Workers(threads)
    )


def filter_ground(job: SurveyJob, parts: list[PartIndex]) -> list[PartIndex]:
    """The parts of the ground, in their order on the map; the same parts where no filter was asked for."""
    if not job.model.ground_width:
        return parts
    start = time.monotonic()
    tasks = [
        Task(square.name, filter_square, (job.scratch, job.digest, square, job.threads))
        for square in ground_jobs(job.model, parts)
    ]
    found: list[PartIndex] = run_stage(job, tasks, "finding ground", "square")
    job.timings["finding ground"] = time.monotonic() - start
    gone = sum(part.facts["left_out_objects"] for part in found)
    job.objects = gone
    return [part for part in found if len(part.entries)]
