"""Surveys as Dask collections, for programs: the stages of `gpgmap map`, to be computed on any scheduler of Dask.

    from gpgmap_ros.apps import survey

    planned = survey.plan(sorted(folder.glob("*.laz")), scratch).compute()
    sums = survey.statistics(planned).compute()
    sums = survey.ground(planned, sums).compute()   # only with plan(..., ground_width=20.0)
    windows = survey.solve(planned, sums).compute()
    first = survey.read(planned, windows[0])        # a GPGMap

Nothing is computed before `compute`. Sums and windows are files in the scratch folder, which all workers must see;
what travels through Dask is where they are. Computing a collection again uses what is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_files import Prepared, SurveyRequest, model_of, prepare
from gpgmap_ros.apps.survey_ground import filter_square, ground_jobs
from gpgmap_ros.apps.survey_runner import LocalRunner
from gpgmap_ros.apps.survey_solve import DEFAULT_MEMORY, make_windows
from gpgmap_ros.apps.survey_store import load_model, save_model
from gpgmap_ros.apps.survey_tasks import (
    SolvedWindow,
    load_window,
    solve_survey_window,
    sum_points,
    window_layers,
)
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.survey import SurveyModel
from gpgmap_ros.mapping.survey_parts import PartIndex
from gpgmap_ros.mapping.survey_window import find_outliers, survey_grid, without_tiles

if TYPE_CHECKING:
    from dask.bag import Bag
    from dask.delayed import Delayed

__all__ = ["SurveyPlan", "ground", "plan", "read", "solve", "statistics"]


@dataclass(frozen=True, eq=False)
class SurveyPlan:
    """A survey that was planned: settings, trend and noise are fixed.

    prepared: settings and files; scratch: folder of sums and windows; digest: of the model there
    """

    request: SurveyRequest
    prepared: Prepared
    scratch: Path
    digest: str

    @property
    def model(self) -> SurveyModel:
        return load_model(self.scratch, self.digest)


def plan(
    files: Iterable[Path | str],
    scratch: Path | str,
    config: Config | None = None,
    given: Iterable[str] = (),
    *,
    epsg: int = 0,
    classes: tuple[int, ...] | None = None,
    keep_outliers: bool = False,
    leave_out: bool = False,
    ground_width: float = 0.0,
) -> Delayed:
    """A Delayed `SurveyPlan`: headers and samples of all files, and the settings that follow from them.

    scratch: folder for sums and windows; config, given: settings, and the names of those that are not estimated
    the others: see `SurveyRequest`
    """
    from dask import delayed

    paths = tuple(Path(path).resolve() for path in files)
    request = SurveyRequest(
        paths, config or Config(), frozenset(given), epsg, classes, keep_outliers, leave_out, ground_width
    )
    planned: Delayed = delayed(_plan)(request, Path(scratch).resolve())
    return planned


def _plan(request: SurveyRequest, scratch: Path) -> SurveyPlan:
    prepared = prepare(request, LocalRunner())
    digest = save_model(scratch, model_of(request, prepared.plan))
    return SurveyPlan(request, prepared, scratch, digest)


def statistics(planned: SurveyPlan) -> Bag:
    """A Bag of `PartIndex`, one partition for each part of a file: where the sums over its points are."""
    from dask import delayed
    from dask.bag import from_delayed

    parts = [
        part
        for file in planned.prepared.files
        for part in file.parts(planned.request.classes, planned.request.window)
    ]
    tasks = [delayed(sum_points)(planned.scratch, planned.digest, part, 1) for part in parts]
    return from_delayed(tasks)


def ground(planned: SurveyPlan, sums: Any) -> Bag:
    """A Bag of `PartIndex`, one for each square of the survey: the points of `statistics` that are ground.

    sums: what `statistics` gives, computed; a Bag is computed first
    """
    from dask import delayed
    from dask.bag import from_delayed

    parts, _ = used_parts(planned, sums.compute() if hasattr(sums, "compute") else list(sums))
    tasks = [
        delayed(_filter)(planned.scratch, planned.digest, job) for job in ground_jobs(planned.model, parts)
    ]
    return from_delayed(tasks)


def _filter(scratch: Path, digest: str, job: Any) -> list[PartIndex]:
    return [filter_square(scratch, digest, job, 1)]


def solve(planned: SurveyPlan, sums: Any, memory: int = DEFAULT_MEMORY) -> Bag:
    """A Bag of `SolvedWindow`, one for each window of the map with points in it or near it.

    ValueError where the plan asks for ground and `ground` was not applied.

    sums: what `statistics` gives, computed; a Bag is computed first, because the sums say which windows there are
    memory: bytes of a process, which the size of the windows depends on
    """
    from dask import delayed
    from dask.bag import from_delayed

    parts, grid = used_parts(planned, sums.compute() if hasattr(sums, "compute") else list(sums))
    if planned.model.ground_width and any("left_out_objects" not in part.facts for part in parts):
        raise ValueError("the plan asks for ground: solve(planned, ground(planned, sums))")
    jobs = make_windows(planned.model, planned.digest, parts, grid, memory)
    tasks = [delayed(_solve)(planned.scratch, planned.digest, job) for job in jobs]
    return from_delayed(tasks)


def _solve(scratch: Path, digest: str, job: Any) -> list[SolvedWindow]:
    return [solve_survey_window(scratch, digest, job, 1)]


def used_parts(planned: SurveyPlan, parts: list[PartIndex]) -> tuple[list[PartIndex], Grid]:
    """The parts without points far from all others, in their order, and the grid of the map."""
    parts = sorted(parts, key=lambda part: part.path.name)
    if not planned.request.keep_outliers:
        far, _ = find_outliers(parts)
        parts = [without_tiles(part, far) for part in parts]
    return parts, survey_grid(parts, planned.model.config.mapping.resolution)


def read(planned: SurveyPlan, window: SolvedWindow) -> GPGMap | None:
    """The map of a window that was solved; None where nothing is known there."""
    found = load_window(planned.model, window)
    if found is not None:
        for name in window_layers(planned.model):
            found[name]  # read now: the scratch folder may be gone when it is asked for
    return found
