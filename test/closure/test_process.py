"""The process of the loop closures: answers to every request, survives its own end, ends with its parent."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import PATIENCE

from gpgmap_ros.closure.process import MOST_WAITING, ClosureProcess
from gpgmap_ros.closure.requests import Add, GlobalMap, MakeGlobalMap, Problem, Reject, Rejected, Update
from gpgmap_ros.closure.worker import thinned
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.pipeline import MappingPipeline

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ros"))
from returning_drive import PARAMETERS, ReturningDrive

pytest.importorskip("gtsam")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return with_settings(Config(), {**PARAMETERS, "map_folder": str(tmp_path_factory.mktemp("maps"))})


@pytest.fixture(scope="module")
def submaps(config: Config) -> list[Submap]:
    pipeline, found = MappingPipeline(config), []
    for step in ReturningDrive():
        report = pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp)
        if report.submap is not None:
            found.append(report.submap)
    return found


@pytest.fixture
def folder(config: Config, submaps: list[Submap], tmp_path: Path) -> Path:
    """All submaps, and nothing that was found out about them."""
    return Path(shutil.copytree(config.map_folder, tmp_path / "maps"))


class Listener:
    """A process and its answers."""

    def __init__(self, config: Config, folder: Path | None, next_id: int = 0) -> None:
        self.answers: queue.Queue[Any] = queue.Queue()
        self.process = ClosureProcess(config, folder, self.answers.put, next_id)

    def next(self, kind: type) -> Any:
        """The next answer of a kind; others are passed over, but not problems."""
        while True:
            answer = self.answers.get(timeout=PATIENCE)
            if isinstance(answer, kind):
                return answer
            assert not isinstance(answer, Problem), answer


@pytest.fixture
def listener(config: Config, request: pytest.FixtureRequest) -> Any:
    made = []

    def make(folder: Path | None, next_id: int = 0) -> Listener:
        made.append(Listener(config, folder, next_id))
        return made[-1]

    yield make
    for one in made:
        one.process.close()


def test_every_request_is_answered(listener: Any, submaps: list[Submap], folder: Path) -> None:
    """The folder holds all submaps already, three of them from an earlier run: the others are news."""
    one = listener(folder, next_id=3)
    one.process.start()
    for submap in submaps[3:]:
        one.process.ask(Add(submap.id, None))
    updates = [one.next(Update) for _ in submaps[3:]]
    last = updates[-1]
    news = [(c.a, c.b) for update in updates for c in update.news]
    assert sorted(news) == sorted((int(a), int(b)) for a, b in last.pairs[last.accepted])
    assert last.newest == submaps[-1].id
    assert list(last.ids) == [submap.id for submap in submaps]
    assert last.accepted.sum() >= 3
    one.process.ask(MakeGlobalMap())
    answer = one.next(GlobalMap)
    assert answer.gpgmap is not None, answer.problem
    assert answer.gpgmap.known.sum() > 1000
    added = answer.gpgmap["pose_variance"]
    assert (added[answer.gpgmap.known] >= 0.0).all()
    assert np.nanmax(added) > 0.0
    a, b = (int(number) for number in last.pairs[last.accepted][0])
    one.process.ask(Reject(b, a, 7))
    after = one.next(Update)
    assert after.accepted.sum() == last.accepted.sum() - 1
    rejected = one.next(Rejected)
    assert (rejected.token, rejected.done) == (7, True)
    one.process.ask(Reject(0, 1, 8))
    rejected = one.next(Rejected)
    assert not rejected.done
    assert "no closure between submaps 0 and 1" in rejected.message


def test_a_submap_without_a_folder_is_sent_whole(listener: Any, submaps: list[Submap]) -> None:
    one = listener(None)
    one.process.ask(Add(submaps[0].id, submaps[0]))
    update = one.next(Update)
    np.testing.assert_allclose(update.poses[0], submaps[0].T_map_submap)
    assert len(update.stamps) == len(submaps[0].track.stamps)
    one.process.ask(MakeGlobalMap())
    assert "set map_folder" in one.next(GlobalMap).problem


def test_a_killed_process_is_said_and_started_again(
    listener: Any, submaps: list[Submap], folder: Path
) -> None:
    one = listener(folder)
    one.process.ask(Add(0, None))
    one.next(Update)
    os.kill(one.process.pid, signal.SIGKILL)
    problem = one.next(Problem)
    assert "ended with code -9" in problem.text
    assert one.process.waiting == 0
    one.process.ask(Add(1, None))
    assert {0, 1} <= set(one.next(Update).ids)  # its file was whole


def test_a_damaged_file_of_closures_is_kept_aside(listener: Any, submaps: list[Submap], folder: Path) -> None:
    (folder / "closures.npz").write_bytes(b"rubbish")
    one = listener(folder, next_id=len(submaps))
    one.process.ask(Add(0, None))
    problem = one.answers.get(timeout=PATIENCE)
    assert "kept as closures.npz.damaged" in problem.text
    assert len(one.next(Update).ids) == len(submaps)
    assert (folder / "closures.npz.damaged").read_bytes() == b"rubbish"


def test_it_ends_at_once_and_with_its_parent(listener: Any, submaps: list[Submap]) -> None:
    one = listener(None)
    one.process.ask(Add(submaps[0].id, submaps[0]))
    one.next(Update)
    pid = one.process.pid
    one.process.close()
    assert not Path(f"/proc/{pid}").exists()
    one.process.ask(MakeGlobalMap())  # too late: not an error
    assert one.process.pid is None


def test_it_stands_back_behind_the_others(listener: Any, submaps: list[Submap]) -> None:
    one = listener(None)
    one.process.ask(Add(submaps[0].id, submaps[0]))
    one.next(Update)
    assert os.getpriority(os.PRIO_PROCESS, one.process.pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 4)


def test_submaps_with_other_cells_are_left_out_and_it_is_said(
    config: Config, submaps: list[Submap], tmp_path: Path
) -> None:
    """The folder has submaps of a run with finer cells: today's are compared with each other all the same."""
    fine = with_settings(
        config,
        {
            "mapping.resolution": 0.2,
            "submap.resolution": 0.2,
            "submap.max_distance": 2.0,
            "map_folder": str(tmp_path),
        },
    )
    pipeline = MappingPipeline(fine)
    for step, _ in zip(ReturningDrive(), range(10), strict=False):
        pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp)
    assert pipeline.submaps is not None
    yesterday = len(pipeline.submaps)
    assert yesterday >= 2
    listener = Listener(config, tmp_path, next_id=yesterday)
    try:
        first = submaps[0]
        listener.process.ask(Add(first.id + yesterday, replace(first, id=first.id + yesterday)))
        problem = listener.answers.get(timeout=PATIENCE)
        assert f"{yesterday} submaps of earlier runs are not compared" in problem.text
        update = listener.next(Update)
        assert update.skipped == 0
        assert list(update.ids) == [yesterday]
    finally:
        listener.process.close()


def test_memory_is_bounded_where_the_child_falls_behind(listener: Any, submaps: list[Submap]) -> None:
    """A child that is stopped, as by a processor that has no time for it, gets a few submaps and no more."""
    one = listener(None)
    one.process.ask(Add(0, submaps[0]))
    one.next(Update)
    deadline = time.monotonic() + PATIENCE
    while (
        one.process.waiting and time.monotonic() < deadline
    ):  # the answer comes before the word that it was the last
        time.sleep(0.01)
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        for number in range(1, MOST_WAITING + 4):
            one.process.ask(Add(number, replace(submaps[0], id=number)))
        assert one.process.waiting == MOST_WAITING
        problem = one.answers.get(timeout=PATIENCE)
        assert isinstance(problem, Problem)
        assert f"submap {MOST_WAITING + 1} is not compared" in problem.text
        assert "map_folder" in problem.text
    finally:
        os.kill(one.process.pid, signal.SIGCONT)


def test_a_path_that_is_thinned_keeps_its_ends() -> None:
    for count in (1, 9, 10, 11, 19, 20, 21, 1234):
        kept = thinned(list(range(count)), 10)
        assert len(kept) == min(count, 10)
        assert (kept[0], kept[-1]) == (0, count - 1)
        assert len(set(kept)) == len(kept)
        steps = np.diff(kept)
        assert len(steps) == 0 or steps.max() - steps.min() <= 1
