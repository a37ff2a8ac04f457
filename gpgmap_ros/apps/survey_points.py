"""The points of a survey: read and added up part by part, filtered, merged."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from gpgmap_ros.apps.survey_job import (
    SurveyJob,
    describe_progress,
    describe_workers,
    require_complete,
    run_stage,
)
from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.apps.survey_runner import Outcome, Task
from gpgmap_ros.apps.survey_tasks import merge_sums, sum_points
from gpgmap_ros.io.points import PointFileError
from gpgmap_ros.mapping.survey import Outliers
from gpgmap_ros.mapping.survey_parts import PartIndex
from gpgmap_ros.mapping.survey_window import find_outliers, without_tiles
from gpgmap_ros.progress import ProgressBar

FAN_IN = 16
"""Parts that a node of the tree of sums adds up; a window may need four times as many before there is a tree."""


def add_points(job: SurveyJob) -> list[PartIndex]:
    """Sums of all parts, in the order of files and points. Files that can't be read end the run, or are left out."""
    sources = [
        part for file in job.prepared.files for part in file.parts(job.request.classes, job.request.window)
    ]
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
        parts, level = run_stage(job, tasks, "merging sums", "node"), level + 1
    job.timings["merging"] = time.monotonic() - start
    return parts


def largest_overlap(parts: Sequence[PartIndex]) -> int:
    """Parts in the tile that most parts have points in."""
    keys = np.concatenate([np.column_stack([part.entries["row"], part.entries["column"]]) for part in parts])
    return int(np.unique(keys, axis=0, return_counts=True)[1].max()) if len(keys) else 0
