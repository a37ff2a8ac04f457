"""The tasks of a survey: what a worker does with one file, one part of the points, one window, one file of the map.

Each leaves its result in the scratch folder or the run folder and returns a summary. A result that is already there is
not computed again: tasks may be repeated at any time, by another worker or by a later run (`--resume`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, Workers
from gpgmap_ros.apps.survey_overview import shrink_window
from gpgmap_ros.apps.survey_store import load_model
from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import EVERYTHING, NoPointsError, PointFileError, Window, open_points
from gpgmap_ros.io.points.decoder import decoder
from gpgmap_ros.io.points.source import Bounds
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.derived_layers import Layer
from gpgmap_ros.mapping.layers import TRAVERSABILITY, posterior_layers
from gpgmap_ros.mapping.survey import PartialSums, SurveyModel, SurveyNoise, bounding_box
from gpgmap_ros.mapping.survey_parts import (
    Entries,
    PartIndex,
    merge_parts,
    merged_from,
    places_by_tile,
    read_index,
    remove_part,
    write_part,
)
from gpgmap_ros.mapping.survey_window import Places, load_tiles, solve_window
from gpgmap_ros.memory import give_back, largest_bytes
from gpgmap_ros.storage.npz import read_arrays, write_arrays_to

PART_POINTS = 4_000_000
"""Points of a part: 100 MB while it is made."""
OUTSIDE_SHARE, OUTSIDE_METRES = 0.1, 10.0
"""How far points may lie outside the extent in their header, over its side and in metres: writers round, and more."""


@dataclass(frozen=True)
class FileStamp:
    """By which a file is known to be the one that was planned with. modified: nanoseconds"""

    path: str
    size: int
    modified: int

    def check(self) -> None:
        """PointFileError where the file is another by now."""
        try:
            now = stamp_of(self.path)
        except OSError as error:
            raise PointFileError(f"{self.path}: is gone ({error.strerror}): bring it back") from error
        if now != self:
            raise PointFileError(
                f"{self.path}: changed while it was read: wait until it is complete, and begin again"
            )


def stamp_of(path: str) -> FileStamp:
    found = os.stat(path)
    return FileStamp(path, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, eq=False)
class FileScan:
    """What the header and a sample say of a file.

    count: points, of which the sample is some; ranges: whether parts of it can be read; groups: parts by place
    bounds: as in the header, None where it has none; sample: (N, 3); digest: of count and sample
    places: (P, 3) of the sample, as dense as the file is everywhere
    empty: why there are no points, where there are none
    """

    stamp: FileStamp
    count: int | None
    crs: Crs
    note: str
    ranges: bool
    groups: int
    bounds: Bounds | None
    decoder_bytes: int
    sample: Array
    places: Array
    digest: str
    empty: str = ""


def scan_file(
    path: str,
    epsg: int,
    classes: tuple[int, ...] | None,
    points: int,
    whole: bool,
    window: Window = EVERYTHING,
) -> FileScan:
    """Read the header and a sample of so many points. PointFileError where the file can't be read.

    whole: decode all of the file for the sample, else a part of it
    """
    if not Path(path).exists():
        raise PointFileError(f"{path}: no such file")
    stamp = stamp_of(path)
    source = open_points(Path(path), epsg, classes, window)
    sample = places = np.empty((0, 3))
    empty = ""
    try:
        if whole:
            sample = places = source.sample(points)
        else:
            sample, places = source.sample_places(points)
    except NoPointsError as error:
        empty = str(error)
    check_extent(path, source.bounds, sample)
    count = source.seen if source.count is None else source.count  # where the header does not tell
    digest = hashlib.sha256(f"{count} ".encode() + sample.tobytes()).hexdigest()
    return FileScan(
        stamp, count, source.crs, source.note, source.read_range is not None, source.groups, source.bounds,
        source.decoder_bytes, sample, places, digest, empty,
    )  # fmt: skip


@dataclass(frozen=True)
class PartSource:
    """Points of a file that one task reads.

    file, part: numbers of the file, and of the part in it; first, count: of its points, all where count is None
    group: of the file's parts by place, None where it has none
    """

    file: int
    part: int
    stamp: FileStamp
    classes: tuple[int, ...] | None
    first: int = 0
    count: int | None = None
    bounds: Bounds | None = None
    window: Window = EVERYTHING
    group: int | None = None

    def path(self, scratch: Path, sub: int) -> Path:
        """Of the sums: one part, or several of a file that can't be divided before it is read."""
        return scratch / "parts" / f"part_{self.file:06d}_{self.part:05d}_{sub:04d}"

    def signature(self, digest: str) -> str:
        """By which the sums are known to be those of these points with this plan."""
        stamp = dataclasses.replace(self.stamp, path=os.path.abspath(self.stamp.path))
        return f"{digest} {dataclasses.replace(self, stamp=stamp)}"


def sum_points(scratch: Path, digest: str, source: PartSource, threads: int | None) -> list[PartIndex]:
    """Read, filter and add the points of a part. PointFileError where the file is damaged, or not what it was."""
    signature = source.signature(digest)
    if (there := finished_parts(scratch, source, signature)) is not None:
        return there
    begin, cpu = time.perf_counter(), time.process_time() + decoder.processor_seconds
    model, workers = load_model(scratch, digest), Workers(threads)
    source.stamp.check()
    opened = open_points(Path(source.stamp.path), classes=source.classes, window=source.window)
    found: list[PartIndex] = []
    sums, empty = PartialSums(model), ""

    def facts(last: bool) -> dict[str, Any]:
        source.stamp.check()
        return {
            "of": signature, "file": source.stamp.path, "last": last, "empty": empty, "left_out": opened.left_out,
            "seconds": time.perf_counter() - begin, "largest_mb": (largest_bytes() >> 20) + decoder.largest_mb,
            "processor_seconds": time.process_time() + decoder.processor_seconds - cpu,
        }  # fmt: skip

    try:
        for piece in read_ahead(opened.pieces(source.first, source.count, source.group)):
            check_extent(source.stamp.path, source.bounds, piece)
            if sums.tiles and sums.count + len(piece) > PART_POINTS:
                found.append(write_part(source.path(scratch, len(found)), sums, facts(last=False), workers))
                sums = PartialSums(model)
            sums.add(piece)
    except NoPointsError as error:
        empty = str(error)
    found.append(write_part(source.path(scratch, len(found)), sums, facts(last=True), workers))
    give_back()
    return found


def finished_parts(scratch: Path, source: PartSource, signature: str) -> list[PartIndex] | None:
    """The sums of a part that an earlier attempt has finished; None where there are none, which removes the rest."""
    found: list[PartIndex] = []
    while (index := read_index(source.path(scratch, len(found)))) is not None:
        if index.facts.get("of") != signature:
            break
        found.append(index)
        if index.facts.get("last"):
            return found
    for sub in range(len(found) + 1):
        remove_part(source.path(scratch, sub))
    return None


def check_extent(path: str, bounds: Bounds | None, piece: Array) -> None:
    """PointFileError where points lie far outside what the header says: its scale or offset is wrong."""
    if bounds is None or not len(piece):
        return
    low, high = np.array(bounds[:3]), np.array(bounds[3:])
    spare = OUTSIDE_SHARE * (high - low) + OUTSIDE_METRES
    found_low, found_high = bounding_box(np.ascontiguousarray(piece))
    outside = (found_low < low - spare) | (found_high > high + spare)
    if outside.any():
        axis = int(np.argmax(outside))
        raise PointFileError(
            f"{path}: its header says {'xyz'[axis]} from {low[axis]:.1f} to {high[axis]:.1f}, but its"
            f" points reach from {found_low[axis]:.1f} to {found_high[axis]:.1f}: scale or offset in the header is"
            " wrong; write the file again"
        )


def read_ahead(pieces: Iterator[Array]) -> Iterator[Array]:
    """The same pieces; while one is used the next is read in another thread, and no more than that."""
    with ThreadPoolExecutor(1, "reading") as reader:
        following = reader.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = reader.submit(next, pieces, None)
            yield piece


def merge_sums(
    scratch: Path, digest: str, name: str, parts: Sequence[PartIndex], threads: int | None
) -> PartIndex:
    """One part of several, in their order: a node of the tree of sums."""
    path = scratch / "parts" / name
    there = read_index(path)
    if there is not None and there.facts.get("of") == merged_from(parts):
        return there
    return merge_parts(path, parts, load_model(scratch, digest), Workers(threads))


@dataclass(frozen=True, eq=False)
class WindowJob:
    """A window of the map that is solved at once.

    grid: of the whole map; rows, columns: of the window; parts: sums in it and around it, those tiles only
    noise: of the whole survey; edge: cells along what is solved at once; factor: along a square of the overview
    signature: by which a result is known to be of this job
    """

    grid: Grid
    rows: slice
    columns: slice
    parts: tuple[tuple[str, Entries], ...]
    noise: SurveyNoise | None
    edge: int
    factor: int
    signature: str

    @property
    def solved_shape(self) -> tuple[int, int]:
        """Rows and columns of what is solved at once: the same at the edges of the map as within it."""
        return min(self.edge, self.grid.shape[0]), min(self.edge, self.grid.shape[1])

    def path(self, scratch: Path) -> Path:
        """Of the solved layers."""
        return scratch / "windows" / f"window_{self.rows.start}_{self.columns.start}.npz"


@dataclass(frozen=True, eq=False)
class SolvedWindow:
    """grid: of the whole map; known: cells; path: of the layers, None where nothing is known; small: its overview
    signature: of its job
    """

    grid: Grid
    rows: slice
    columns: slice
    known: int
    path: Path | None
    small: dict[str, NDArray[np.float32]]
    largest_mb: float
    signature: str


OVERVIEW = "overview_"
KEPT_LAYERS = (TRAVERSABILITY,)
"""Derived layers that a window keeps: they take long, and both the overview and the GeoTIFFs show them."""
_SOLVING = threading.Lock()
"""A window is solved by several threads; two at once in one process are slower than one after the other."""


def window_layers(model: SurveyModel) -> tuple[str, ...]:
    """Layers in the file of a window."""
    return (*posterior_layers(model.config.mapping), *KEPT_LAYERS)


def solve_survey_window(scratch: Path, digest: str, job: WindowJob, threads: int | None) -> SolvedWindow:
    """Solve a window of the map from the sums in it and around it."""
    path = job.path(scratch)
    model = load_model(scratch, digest)
    there = read_window(path, job, window_layers(model))
    if there is not None:
        return there
    parts = [PartIndex(Path(name), entries, {}) for name, entries in job.parts]
    with _SOLVING:
        part = solve_divided(model, job, places_by_tile(parts), Workers(threads))
    small: dict[str, NDArray[np.float32]] = {}
    layers: dict[str, NDArray[Any]] = {}
    if part is not None:
        small = shrink_window(part, job.rows, job.factor)
        layers = {name: part[name] for name in window_layers(model)}
    known = 0 if part is None else int(part.known.sum())
    write_scratch(
        path,
        {
            **layers,
            **{OVERVIEW + name: values for name, values in small.items()},
            "signature": np.array(job.signature),
            "known": np.array(known),
        },
    )
    return SolvedWindow(
        job.grid, job.rows, job.columns, known, path if layers else None, small, largest_bytes() / 2**20,
        job.signature,
    )  # fmt: skip


def solve_divided(model: SurveyModel, job: WindowJob, places: Places, workers: Workers) -> GPGMap | None:
    """The map of a window, solved in squares of `job.edge` cells; None where nothing is known in it."""
    names = posterior_layers(model.config.mapping)
    shape = (job.rows.stop - job.rows.start, job.columns.stop - job.columns.start)
    layers = {name: np.full(shape, np.nan, dtype=np.float32) for name in names}
    known = False
    tiles = load_tiles(model, job.grid, job.rows, job.columns, places, workers)
    for y in range(0, shape[0], job.edge):
        for x in range(0, shape[1], job.edge):
            rows = slice(job.rows.start + y, min(job.rows.start + y + job.edge, job.rows.stop))
            columns = slice(job.columns.start + x, min(job.columns.start + x + job.edge, job.columns.stop))
            part = solve_window(model, job.grid, rows, columns, tiles, job.noise, job.solved_shape)
            if part is not None:
                known = True
                for name, layer in layers.items():
                    layer[y : y + job.edge, x : x + job.edge] = part[name]
    if not known:
        return None
    edge = job.grid.resolution
    origin = (job.grid.origin[0] + job.columns.start * edge, job.grid.origin[1] + job.rows.start * edge)
    return GPGMap(Grid(origin, shape, edge), layers, "survey", 0, model.config)


def write_scratch(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """An NPZ that is complete or not there; not synchronised with the disk, because it can be made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with staged.open("xb") as file:
            write_arrays_to(file, arrays)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)


def read_window(path: Path, job: WindowJob, names: Sequence[str]) -> SolvedWindow | None:
    """A window that an earlier attempt has solved; None where there is none, of another job, or without these layers
    (that attempt was one of an older version)."""
    if not path.exists():
        return None
    try:
        with np.load(path) as file:
            if str(file["signature"]) != job.signature:
                return None
            small = {name[len(OVERVIEW) :]: file[name] for name in file.files if name.startswith(OVERVIEW)}
            known, layers = int(file["known"]), [name for name in names if name in file.files]
            if known and len(layers) < len(names):
                return None
    except (OSError, ValueError, LookupError, EOFError):
        return None
    return SolvedWindow(
        job.grid, job.rows, job.columns, known, path if layers else None, small, largest_bytes() / 2**20,
        job.signature,
    )  # fmt: skip


class WindowLayers(Mapping[str, Layer]):
    """The layers in the file of a window, each read when it is asked for: who writes one layer needs one or two."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._names = path, tuple(names)

    def __getitem__(self, name: str) -> Layer:
        if name not in self._names:
            raise KeyError(name)
        return read_arrays(self._path, (name,))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would read the layer


def load_window(model: SurveyModel, solved: SolvedWindow) -> GPGMap | None:
    """The map of a window that was solved."""
    if solved.path is None:
        return None
    layers = WindowLayers(solved.path, window_layers(model))
    grid, edge = solved.grid, solved.grid.resolution
    origin = (grid.origin[0] + solved.columns.start * edge, grid.origin[1] + solved.rows.start * edge)
    shape = (solved.rows.stop - solved.rows.start, solved.columns.stop - solved.columns.start)
    return GPGMap(Grid(origin, shape, edge), layers, "survey", 0, model.config)
