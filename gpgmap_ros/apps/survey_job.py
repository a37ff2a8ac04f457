"""A survey that runs: what is mapped, where to and by whom, and what is said about its steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpgmap_ros.apps.survey_files import Prepared, SurveyRequest
from gpgmap_ros.apps.survey_runner import IncompleteError, LocalRunner, Outcome, Runner, Task
from gpgmap_ros.apps.survey_store import load_model
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping.survey import SurveyModel
from gpgmap_ros.progress import ProgressBar

NAMED = 5
"""Of what is missing, or of files, named in a message; the rest is in run.json."""
SCRATCH = ".survey"


@dataclass(eq=False)
class SurveyJob:
    """What to map, where to, and by whom.

    name: of the run; memory: bytes that each process may use
    objects: points that were found not to be ground
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
    objects: int = 0

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


def run_stage(job: SurveyJob, tasks: Sequence[Task], title: str, step: str) -> list[Any]:
    """What the tasks return, in their order. IncompleteError where some can't be done. step: name of one, for people"""
    found: dict[str, Any] = {}
    failed: list[Outcome] = []
    start = time.monotonic()
    with ProgressBar(title, max(len(tasks), 1)) as bar:
        for done, outcome in enumerate(job.runner.run(tasks), 1):
            if outcome.error is None:
                found[outcome.task.name] = outcome.value
            else:
                failed.append(outcome)
            left = (time.monotonic() - start) * (len(tasks) / done - 1.0)
            bar.update(
                done, f"{step} {done} of {len(tasks)}  {left:.0f} s left{describe_workers(job.runner)}"
            )
    require_complete(job, failed, len(tasks))
    return [found[task.name] for task in tasks]


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
        end = end if about.group is None else f" part {about.group + 1}"
        return f"{about.stamp.path}{end}"
    return task.name
