"""Surveys on a real Dask cluster of processes on this machine: the same map, whatever happens to its workers."""

from __future__ import annotations

import dataclasses
import functools
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from survey_case import assert_same_map, kill_this_worker, limit_files, map_files, request_of, write_tiles

from gpgmap_ros.apps import survey, survey_tasks
from gpgmap_ros.apps.survey_cluster import open_runner
from gpgmap_ros.apps.survey_layers import write_layer
from gpgmap_ros.apps.survey_runner import DaskRunner, IncompleteError, Outcome, Task

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[survey]'")
STAGES = (
    survey_tasks.scan_file,
    survey_tasks.sum_points,
    survey_tasks.solve_survey_window,
    write_layer,
)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Three files, and the folder of the map that one process makes of them."""
    folder = tmp_path_factory.mktemp("plain")
    files = write_tiles(folder / "tiles", 3, 2000)
    map_files(files, folder / "out")
    return files, folder / "out"


def test_the_map_is_that_of_one_process(client: Any, plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    summary = map_files(plain[0], tmp_path / "out", DaskRunner(client, "two processes"))
    assert summary["points"]["used"] == 6000
    assert_same_map(plain[1], tmp_path / "out")


class Killing(DaskRunner):
    """In each stage the worker that takes a task first is killed."""

    def __init__(self, client: Any, marks: Path) -> None:
        super().__init__(client, "killed workers")
        self._marks = marks

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        return super().run([self._deadly(task) for task in tasks])

    def _deadly(self, task: Task) -> Task:
        mark = str(self._marks / task.function.__name__)
        return dataclasses.replace(task, function=functools.partial(kill_this_worker, mark, task.function))


def test_workers_killed_in_every_stage_change_nothing(
    client: Any, plain: tuple[list[Path], Path], tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    map_files(plain[0], tmp_path / "out", Killing(client, marks))
    assert {path.name for path in marks.iterdir()} == {stage.__name__ for stage in STAGES}
    assert_same_map(plain[1], tmp_path / "out")
    assert not (tmp_path / "out" / ".survey").exists()


def test_a_full_disk_on_one_worker_leaves_the_work_to_the_other(
    client: Any, plain: tuple[list[Path], Path], tmp_path: Path
) -> None:
    client.wait_for_workers(2)
    full = min(client.nthreads())
    client.run(limit_files, 20_000, workers=[full])
    try:
        map_files(plain[0], tmp_path / "out", DaskRunner(client, "one full disk"))
    finally:
        client.run(limit_files, resource.RLIM_INFINITY, workers=[full])
    assert_same_map(plain[1], tmp_path / "out")


def test_full_disks_everywhere_end_with_what_is_missing_and_the_run_goes_on(
    client: Any, plain: tuple[list[Path], Path], tmp_path: Path
) -> None:
    client.wait_for_workers(2)
    runner = DaskRunner(client, "full disks")
    client.run(limit_files, 20_000)
    try:
        with pytest.raises(IncompleteError, match=r"3 of 3 steps .*tile_0\.npz.*--resume goes on"):
            map_files(plain[0], tmp_path / "out", runner)
    finally:
        client.run(limit_files, resource.RLIM_INFINITY)
    map_files(plain[0], tmp_path / "out", DaskRunner(client, "again"), resume=True)
    assert_same_map(plain[1], tmp_path / "out")


def test_workers_that_do_not_see_the_folder_are_named(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = DaskRunner(client, "elsewhere")
    runner.check(tmp_path / "scratch")
    client.run(os.chdir, "/")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match=r"does not see .*: files and results must be on a file system"):
        runner.check(Path("relative"))


def test_a_scheduler_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(RuntimeError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        open_runner("tcp://127.0.0.1:9", 1 << 30),
    ):
        pass


def test_the_stages_as_dask_collections(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    request = request_of(plain[0])
    lazy = survey.plan(request.files, tmp_path / "scratch", request.config, request.given)
    assert not (tmp_path / "scratch").exists(), "nothing is computed before it is asked for"
    planned = lazy.compute(scheduler="synchronous")
    sums = survey.statistics(planned).compute(scheduler="threads")
    windows = survey.solve(planned, sums, 400 << 20).compute(scheduler="synchronous")
    with np.load(plain[1] / "map.npz") as file:
        whole = file["elevation"]
    for window in windows:
        part = survey.read(planned, window)
        np.testing.assert_allclose(part["elevation"], whole[window.rows, window.columns], rtol=1e-5)
    assert sum(window.known for window in windows) == np.isfinite(whole).sum()
