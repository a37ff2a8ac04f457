"""Surveys on a real Dask cluster of processes on this machine: the same map, whatever happens to its workers."""

from __future__ import annotations

import dataclasses
import functools
import os
import resource
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import PATIENCE
from survey_case import (
    assert_same_map,
    hills,
    kill_this_worker,
    limit_files,
    map_files,
    request_of,
    write_tiles,
)

from gpgmap_ros.apps import survey, survey_points, survey_tasks
from gpgmap_ros.apps.survey_cluster import RETURN, open_runner
from gpgmap_ros.apps.survey_ground import filter_square
from gpgmap_ros.apps.survey_layers import write_layer, write_npz
from gpgmap_ros.apps.survey_pyramid import make_tile
from gpgmap_ros.apps.survey_runner import DaskRunner, IncompleteError, Outcome, Task
from gpgmap_ros.report import content

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install '.[survey]'")
distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[survey]'")
STAGES = (
    survey_tasks.scan_file,
    survey_tasks.sum_points,
    survey_tasks.solve_survey_window,
    write_npz,
    write_layer,
    make_tile,
)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    patient = {f"distributed.comm.timeouts.{name}": f"{PATIENCE} s" for name in ("connect", "tcp")}
    with (
        dask.config.set({**patient, **RETURN}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False, timeout=PATIENCE) as client,
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


def test_detail_below_the_cells_is_that_of_one_process(client: Any, tmp_path: Path) -> None:
    """With the settings that `gpgmap map` has by default, on ground that is rough enough to have some."""
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.0, 1.0, (100_000, 2)) * [300.0, 60.0]
    waves = sum(np.sin(xy @ rng.normal(0.0, 1.2, 2) + rng.uniform(0.0, 6.3)) for _ in range(40))
    points = tmp_path / "points.npz"
    np.savez(points, xyz=np.column_stack([xy, 0.1 * waves + 0.005 * rng.normal(size=len(xy))]), epsg=32611)
    settings = {"mapping.resolution": 1.0}
    map_files([points], tmp_path / "one", settings=settings)
    map_files([points], tmp_path / "two", DaskRunner(client, "two processes"), settings=settings)
    assert_same_map(tmp_path / "one", tmp_path / "two")
    map_files([points], tmp_path / "never", settings={**settings, "mapping.detail": "never"})
    with np.load(tmp_path / "one" / "map.npz") as one, np.load(tmp_path / "never" / "map.npz") as never:
        change = np.abs(one["elevation"] - never["elevation"]) / np.sqrt(never["variance"])
        assert np.nanmedian(change) > 0.05


class Killing(DaskRunner):
    """In each stage, or in one, the worker that takes a task first is killed."""

    def __init__(self, client: Any, marks: Path, only: Any = None) -> None:
        super().__init__(client, "killed workers")
        self._marks, self._only = marks, only

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        return super().run([self._deadly(task) for task in tasks])

    def _deadly(self, task: Task) -> Task:
        if self._only not in (None, task.function):
            return task
        mark = str(self._marks / task.function.__name__)
        return dataclasses.replace(task, function=functools.partial(kill_this_worker, mark, task.function))


def test_workers_killed_in_every_stage_change_nothing(
    client: Any, plain: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "MAP_BYTES", 20_000)  # the report has tiles
    marks = tmp_path / "marks"
    marks.mkdir()
    map_files(plain[0], tmp_path / "out", Killing(client, marks))
    assert {path.name for path in marks.iterdir()} == {stage.__name__ for stage in STAGES}
    assert_same_map(plain[1], tmp_path / "out")
    assert not (tmp_path / "out" / ".survey").exists()
    map_files(plain[0], tmp_path / "alone")
    tiles = tiles_of(tmp_path / "alone")
    assert len(tiles) >= 1
    assert tiles_of(tmp_path / "out") == tiles


def tiles_of(out: Path) -> dict[str, bytes]:
    """All files there: none may be left of what was being written."""
    folder = out / "report_tiles"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


def test_workers_killed_while_sums_are_merged_or_ground_is_found_change_nothing(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_points, "FAN_IN", 2)
    rng = np.random.default_rng(4)
    ground = hills(5000, (0.0, 0.0), 4)
    trees = ground[rng.choice(len(ground), 500)] + [0.0, 0.0, 6.0]
    files = []
    for number, part in enumerate(np.array_split(rng.permutation(np.vstack([ground, trees])), 10)):
        files.append(tmp_path / f"part_{number}.npz")
        np.savez(files[-1], xyz=part, epsg=32611)
    for name, stage, width in (("merge", survey_tasks.merge_sums, 0.0), ("ground", filter_square, 20.0)):
        marks = tmp_path / f"{name}_marks"
        marks.mkdir()
        map_files(files, tmp_path / f"{name}_alone", ground_width=width)
        summary = map_files(files, tmp_path / name, Killing(client, marks, stage), ground_width=width)
        assert [path.name for path in marks.iterdir()] == [stage.__name__]
        assert_same_map(tmp_path / f"{name}_alone", tmp_path / name)
        assert summary["points"]["used"] + summary["points"]["objects"] == 5500
    assert summary["points"]["objects"] == pytest.approx(500, abs=75)


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


def test_a_worker_whose_successor_takes_long_to_start_is_waited_for(tmp_path: Path) -> None:
    """Dask gives a lost worker up after a while, here at once: on a busy machine all would be gone in the end."""
    impatient = {"distributed.deploy.lost-worker-timeout": "50 ms"}
    with dask.config.set(impatient), open_runner("processes", 1 << 30) as runner:
        workers = runner.workers
        task = Task("deadly", kill_this_worker, (str(tmp_path / "mark"), os.getpid))
        (outcome,) = runner.run([task])
        assert outcome.value != os.getpid()
        deadline = time.monotonic() + PATIENCE
        while runner.workers < workers and time.monotonic() < deadline:
            time.sleep(0.1)
        assert runner.workers == workers


def test_the_stages_as_dask_collections(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    request = request_of(plain[0])
    lazy = survey.plan(request.files, tmp_path / "scratch", request.config, request.given)
    assert not (tmp_path / "scratch").exists(), "nothing is computed before it is asked for"
    planned = lazy.compute(scheduler="synchronous")
    sums = survey.statistics(planned).compute(scheduler="threads")
    windows = survey.solve(planned, sums, 400 << 20).compute(scheduler="synchronous")
    with np.load(plain[1] / "map.npz") as file:
        whole = file["elevation"]
    parts = [survey.read(planned, window) for window in windows]
    shutil.rmtree(tmp_path / "scratch")  # a map that was read does not need it any more
    for window, part in zip(windows, parts, strict=True):
        assert part["traversability"].shape == part.grid.shape
        np.testing.assert_allclose(part["elevation"], whole[window.rows, window.columns], rtol=1e-5)
    assert sum(window.known for window in windows) == np.isfinite(whole).sum()


def test_ground_as_a_dask_collection(tmp_path: Path) -> None:
    ground = hills(5000, (0.0, 0.0), 4)
    trees = ground[::10] + np.array([0.0, 0.0, 6.0])
    np.savez(tmp_path / "forest.npz", xyz=np.vstack([ground, trees]))
    request = request_of([tmp_path / "forest.npz"])
    planned = survey.plan(
        request.files, tmp_path / "scratch", request.config, request.given, ground_width=20.0
    ).compute(scheduler="synchronous")
    sums = survey.statistics(planned).compute(scheduler="synchronous")
    with pytest.raises(ValueError, match="the plan asks for ground"):
        survey.solve(planned, sums)
    found = survey.ground(planned, sums).compute(scheduler="synchronous")
    assert sum(part.count for part in found) == pytest.approx(5000, abs=75)
    (window,) = survey.solve(planned, found).compute(scheduler="synchronous")
    assert survey.read(planned, window)["elevation"].max() < ground[:, 2].max() + 0.3
