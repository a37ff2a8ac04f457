"""The files of a survey before it begins: scanned, compared with each other, and divided into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gp_core import __version__
from gpgmap_ros.apps.coordinate_systems import common_crs
from gpgmap_ros.apps.survey_plan import SAMPLE, Plan, SurveyError, clean_sample, ground_area, plan_sample
from gpgmap_ros.apps.survey_runner import LocalRunner, Runner, Task
from gpgmap_ros.apps.survey_tasks import PART_POINTS, FileScan, FileStamp, PartSource, scan_file, stamp_of
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import EVERYTHING, PointFileError, Window
from gpgmap_ros.mapping.survey import SurveyModel

LEAST_SAMPLE = 2_000
"""Points from each file, however many files there are."""
WHOLE_BYTES = 30_000_000
"""Of all files, up to which the sample comes from a pass over all points: 8 million of LAZ, two seconds."""
FAR_SIDES = 10.0
"""Longer sides of all other files by which one is too far from them: its scale, offset or zone is another."""


@dataclass(frozen=True)
class SurveyRequest:
    """What the user asked for.

    config, given: settings, and the names of those that are not to be estimated
    epsg: of the coordinates, 0 where the files say it; classes: of LAS points
    keep_outliers: map also points far from all others
    leave_out: go on without files that are damaged, change, are there twice or lie elsewhere; else they end the run
    ground_width: of the widest object to be told from ground, metres; 0: all points that are read are ground
    window: which points are read
    """

    files: tuple[Path, ...]
    config: Config
    given: frozenset[str] = frozenset()
    epsg: int = 0
    classes: tuple[int, ...] | None = None
    keep_outliers: bool = False
    leave_out: bool = False
    ground_width: float = 0.0
    window: Window = EVERYTHING

    def record(self) -> dict[str, Any]:
        """In plain JSON, to tell whether a later run asks for the same."""
        return {
            "version": __version__,
            "files": [str(path.resolve()) for path in self.files],
            "settings": str(self.config),
            "given": sorted(self.given),
            "crs": self.epsg,
            "classes": self.classes,
            "keep_outliers": self.keep_outliers,
            "ground": self.ground_width,
            "bounds": self.window.bounds,
            "spacing": self.window.spacing,
        }


@dataclass(frozen=True, eq=False)
class PlannedFile:
    """A file that is used, as `plan.json` keeps it."""

    number: int
    stamp: FileStamp
    count: int | None
    ranges: bool
    bounds: tuple[float, ...] | None
    decoder_bytes: int
    groups: int = 0

    def parts(self, classes: tuple[int, ...] | None, window: Window = EVERYTHING) -> list[PartSource]:
        """What its points are divided into."""
        bounds: Any = self.bounds
        if self.groups > 1:
            return [
                PartSource(self.number, k, self.stamp, classes, bounds=bounds, window=window, group=k)
                for k in range(self.groups)
            ]
        if not self.ranges or self.count is None:
            return [PartSource(self.number, 0, self.stamp, classes, bounds=bounds, window=window)]
        starts = range(0, max(self.count, 1), PART_POINTS)
        return [
            PartSource(
                self.number, k, self.stamp, classes, first, None if len(starts) == 1 else PART_POINTS, bounds
            )
            for k, first in enumerate(starts)
        ]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A survey that can begin. notes: about the files, for people; warnings: for the summary; missing: left out"""

    plan: Plan
    files: tuple[PlannedFile, ...]
    crs: Crs
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    missing: tuple[str, ...]


def prepare(
    request: SurveyRequest, runner: Runner, progress: Callable[[float], None] = lambda share: None
) -> Prepared:
    """Scan all files, check that they belong together, and estimate the settings from samples of them.

    PointFileError, SurveyError where they do not; progress: told the share that is done
    """
    scans, problems = scan_files(request, runner, progress)
    crs, warnings = common_crs([(scan.stamp.path, scan.crs) for scan in scans])
    good, doubtful = compare_files(scans)
    problems += doubtful
    if problems and not request.leave_out:
        raise PointFileError("; ".join(problems))
    with_points = [scan for scan in good if not scan.empty]
    if not with_points:
        raise SurveyError("; ".join([*problems, *(scan.empty for scan in good)]))
    names = ", ".join(scan.stamp.path for scan in good)
    counts = [scan.count for scan in with_points]
    points = None if None in counts else sum(count or 0 for count in counts)
    sample = clean_sample(np.concatenate([scan.sample for scan in with_points]), names)
    area = covered_area(with_points)
    planned = plan_sample(sample, points, names, request.config, set(request.given), area)
    order = {path_for(path, runner): number for number, path in reversed(list(enumerate(request.files)))}
    return Prepared(
        planned,
        tuple(planned_file(order[scan.stamp.path], scan) for scan in with_points),
        crs,
        tuple(sorted({scan.note for scan in with_points if scan.note})),
        (*warnings, *check_scatter(planned, request), *(scan.empty for scan in good if scan.empty)),
        tuple(problems),
    )


def model_of(request: SurveyRequest, planned: Plan) -> SurveyModel:
    """What all parts of the survey have in common."""
    heights = (-np.inf, np.inf) if request.keep_outliers else planned.heights
    return SurveyModel(planned.config, planned.trend, heights, request.ground_width)


def covered_area(scans: Sequence[FileScan]) -> float | None:
    """Square metres with points in them, from places in the files and their boxes; None where the sample says it.

    Places are few, so that cells around them reach beyond the edges of the survey; boxes are too large where a survey
    is not a rectangle. The smaller is nearer to the truth.
    """
    if all(scan.places is scan.sample or len(scan.places) == len(scan.sample) for scan in scans):
        return None
    around = ground_area(np.concatenate([scan.places for scan in scans]))
    sides = [
        np.ptp(scan.sample[:, :2], axis=0) if scan.bounds is None
        else np.subtract(scan.bounds[3:5], scan.bounds[:2])
        for scan in scans
    ]  # fmt: skip
    return float(min(around, sum(side[0] * side[1] for side in sides)))


def planned_file(number: int, scan: FileScan) -> PlannedFile:
    return PlannedFile(
        number, scan.stamp, scan.count, scan.ranges, scan.bounds, scan.decoder_bytes, scan.groups
    )


def scan_files(
    request: SurveyRequest, runner: Runner, progress: Callable[[float], None]
) -> tuple[list[FileScan], list[str]]:
    """What headers and samples say, in the order of the files, and what is wrong with those that can't be read."""
    points = max(SAMPLE // len(request.files), LEAST_SAMPLE)
    whole = sum(path.stat().st_size for path in request.files if path.is_file()) <= WHOLE_BYTES
    asked = (request.epsg, request.classes, points, whole, request.window)
    tasks = [
        Task(f"scan-{number}", scan_file, (path_for(path, runner), *asked))
        for number, path in enumerate(request.files)
    ]
    scans: dict[str, FileScan] = {}
    problems: dict[str, str] = {}
    for done, outcome in enumerate(runner.run(tasks)):
        progress((done + 1) / len(tasks))
        if outcome.error is None:
            scans[outcome.task.name] = outcome.value
        elif isinstance(outcome.error, PointFileError):
            problems[outcome.task.name] = str(outcome.error)
        else:
            raise outcome.error
    names = [task.name for task in tasks]
    if len(problems) == len(names):
        raise PointFileError("; ".join(problems[name] for name in names))
    return [scans[name] for name in names if name in scans], [problems[n] for n in names if n in problems]


def path_for(path: Path, runner: Runner) -> str:
    """As the user named it, where messages come from this process; workers of a cluster have another folder."""
    return str(path if isinstance(runner, LocalRunner) else path.resolve())


def check_scatter(planned: Plan, request: SurveyRequest) -> list[str]:
    """What is to be known where points of one cell have heights that no ground has."""
    scatter, cell = planned.config.noise.height_std, planned.config.mapping.resolution
    if scatter <= cell or "noise.height_std" in request.given or request.ground_width:
        return []
    return [
        f"heights within a cell of {cell:g} m differ by {scatter:.2g} m (standard deviation) even where the ground is"
        " smoothest: is z up, are these the columns of x, y and z, or is it more than ground (--ground)?"
    ]


def compare_files(scans: Sequence[FileScan]) -> tuple[list[FileScan], list[str]]:
    """The files that belong together, and what is wrong with the others: there twice, or far from the rest."""
    problems: list[str] = []
    first: dict[str, FileScan] = {}
    good: list[FileScan] = []
    for scan in scans:
        twin = first.setdefault(scan.digest, scan)
        if twin is not scan and not scan.empty:
            problems.append(f"{scan.stamp.path}: has the same points as {twin.stamp.path}: name it once")
        else:
            good.append(scan)
    far = {id(scan) for scan in distant_files(good)}
    problems += [
        f"{scan.stamp.path}: lies far from all other files (around x {np.median(scan.sample[:, 0]):.0f}"
        f" y {np.median(scan.sample[:, 1]):.0f}): its scale, offset or zone is another; map it on its own"
        for scan in good
        if id(scan) in far
    ]
    return [scan for scan in good if id(scan) not in far], problems


def distant_files(scans: Sequence[FileScan]) -> list[FileScan]:
    """Files whose middle is farther from the middle of all than ten times the size of the rest. Needs three files."""
    scans = [scan for scan in scans if len(scan.sample)]
    if len(scans) < 3:
        return []
    middles = np.array([np.median(scan.sample[:, :2], axis=0) for scan in scans])
    sizes = np.array(
        [np.ptp(np.percentile(scan.sample[:, :2], (2, 98), axis=0), axis=0).max() for scan in scans]
    )
    distance = np.abs(middles - np.median(middles, axis=0)).max(axis=1)
    half = distance <= np.median(distance)
    side = max(float((distance[half] + sizes[half]).max()), 1e-6)
    far = distance > FAR_SIDES * side
    return [scan for scan, is_far in zip(scans, far, strict=True) if is_far] if far.mean() < 0.5 else []


def refresh_files(
    files: Sequence[PlannedFile], request: SurveyRequest, runner: Runner
) -> tuple[PlannedFile, ...]:
    """The files of an earlier plan; those that have changed since then are scanned again."""
    fresh: list[PlannedFile] = []
    for file in files:
        path = path_for(request.files[file.number], runner)
        try:
            now = stamp_of(path)
        except OSError:
            raise PointFileError(f"{path}: no such file: the unfinished run was planned with it") from None
        if (now.size, now.modified) == (file.stamp.size, file.stamp.modified):
            fresh.append(replace(file, stamp=now))
            continue
        arguments = (path, request.epsg, request.classes, LEAST_SAMPLE, False, request.window)
        for outcome in runner.run([Task(f"scan-again-{file.number}", scan_file, arguments)]):
            if outcome.error is not None:
                raise outcome.error
            fresh.append(planned_file(file.number, outcome.value))
    return tuple(fresh)
