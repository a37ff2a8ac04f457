"""The process of the loop closures: answers to every request, survives its own end, ends with its parent."""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_mapping import fast_config
from limits import PATIENCE

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.closure.session.session_file import read_session, write_session
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.closure_messages import (
    Add,
    CatchingUp,
    GlobalMap,
    MakeGlobalMap,
    Problem,
    Reject,
    Rejected,
    Restored,
    Start,
    Update,
)
from gpgmap_ros.slam.closure_process import MAX_WAITING, ClosureProcess
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ros"))
from returning_drive import PARAMETERS, ReturningDrive


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return fast_config({**PARAMETERS, "map_folder": str(tmp_path_factory.mktemp("maps"))})


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

    def next(self, kind: type, earlier: bool = False) -> Any:
        """The next answer of a kind; others are passed over, but not problems.

        earlier: of updates, the one about earlier runs
        """
        while True:
            answer = self.answers.get(timeout=PATIENCE)
            if isinstance(answer, kind) and (kind is not Update or answer.earlier == earlier):
                return answer
            assert kind is Problem or not isinstance(answer, Problem), answer


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
    problem = one.next(Problem)
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
        problem = listener.next(Problem)
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
        for number in range(1, MAX_WAITING + 4):
            one.process.ask(Add(number, replace(submaps[0], id=number)))
        assert one.process.waiting == MAX_WAITING
        problem = one.answers.get(timeout=PATIENCE)
        assert isinstance(problem, Problem)
        assert f"submap {MAX_WAITING + 1} is not compared" in problem.text
        assert "map_folder" in problem.text
    finally:
        os.kill(one.process.pid, signal.SIGCONT)


def test_a_restart_says_what_it_found_and_corrects(
    listener: Any, submaps: list[Submap], folder: Path
) -> None:
    """Nothing is asked for: the folder alone is enough."""
    count = len(submaps)
    one = listener(folder, next_id=count)
    one.process.start()
    found = one.next(Restored)
    assert (found.submaps, found.drives, found.waiting) == (count, 1, count)
    assert one.next(CatchingUp).waiting == count - 1
    assert 0 < one.process.backlog < count
    update = one.next(Update, earlier=True)
    assert list(update.ids) == [submap.id for submap in submaps]
    assert update.accepted.sum() >= 3
    assert not update.news, "closures of earlier runs are not announced again"
    assert len(update.stamps) == len(update.track) > 0
    assert one.process.backlog == 0
    one.process.close()
    # what was found out is there at once the next time
    two = listener(folder, next_id=count)
    two.process.start()
    found = two.next(Restored)
    assert (found.closures, found.waiting) == (update.accepted.sum(), 0)
    again = two.next(Update, earlier=True)
    np.testing.assert_allclose(again.poses, update.poses, atol=1e-9)


def test_what_the_updates_add_up_to_is_the_whole_graph(
    listener: Any, submaps: list[Submap], folder: Path
) -> None:
    """One by one, with and without closures, against what a new process says of the same folder."""
    one = listener(folder)
    for submap in submaps:
        one.process.ask(Add(submap.id, None))
    last = [one.next(Update) for _ in submaps][-1]
    one.process.close()
    two = listener(folder, next_id=len(submaps))
    two.process.start()
    whole = two.next(Update, earlier=True)
    for name in ("ids", "pairs", "accepted", "stamps"):
        np.testing.assert_array_equal(getattr(last, name), getattr(whole, name))
    for name in ("poses", "track"):
        np.testing.assert_allclose(getattr(last, name), getattr(whole, name), atol=1e-9)


PARENT = """
import sys, time
from pathlib import Path
from gpgmap_ros.slam.closure_process import ClosureProcess
from gpgmap_ros.config import Config, with_settings
from returning_drive import PARAMETERS
process = ClosureProcess(with_settings(Config(), PARAMETERS), Path(sys.argv[1]), lambda answer: None, 1000)
process.start()
print(process.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("moment", ["at once", "while it catches up"])
def test_it_ends_with_a_parent_that_is_killed(
    submaps: list[Submap], folder: Path, tmp_path: Path, moment: str
) -> None:
    """kill -9 of the parent, while the child reads what earlier runs left: no orphan goes on writing."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "ros")}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if moment == "while it catches up":
            wait_until(lambda: (folder / "closures.npz").exists())
        parent.kill()
        parent.wait()
        wait_until(lambda: not running(child))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    if (folder / "closures.npz").exists():
        LoopCloser.load(folder / "closures.npz")  # whole


def test_it_ends_with_its_input_even_while_it_catches_up(
    config: Config, submaps: list[Submap], folder: Path
) -> None:
    """Where the kernel does not end it, the end of its standard input does."""
    command = [sys.executable, "-m", "gpgmap_ros.slam.closure_child", str(os.getpid())]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        pickle.dump(Start(config, folder, 1000), child.stdin)
        child.stdin.flush()
        assert isinstance(pickle.load(child.stdout), Restored)
        child.stdin.close()
        assert child.wait(PATIENCE) == 0
    finally:
        child.kill()
        child.wait()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Zombies do not count: nobody may be there to bury them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_file_that_means_nothing_is_set_aside_and_made_again(
    listener: Any, submaps: list[Submap], folder: Path
) -> None:
    """The bytes are whole, the covariance of a closure is not one: the process must not end at every start."""
    first = listener(folder, next_id=len(submaps))
    first.process.start()
    before = first.next(Update, earlier=True)
    first.process.close()
    path = folder / "closures.npz"
    saved = read_session(path)
    assert saved.closures, "the file has comparisons"
    found = {
        pair: replace(item, registered=True, covariance=-np.eye(6)) for pair, item in saved.closures.items()
    }
    write_session(path, saved.nodes, found, saved.rejected, False)
    one = listener(folder, next_id=len(submaps))
    one.process.start()
    assert "positive definite" in one.next(Problem).text
    after = one.next(Update, earlier=True)
    np.testing.assert_allclose(after.poses, before.poses, atol=1e-9)
    np.testing.assert_array_equal(after.accepted, before.accepted)
    assert (folder / "closures.npz.damaged").exists()


def test_a_file_about_other_submaps_is_set_aside(listener: Any, submaps: list[Submap], folder: Path) -> None:
    first = listener(folder, next_id=len(submaps))
    first.process.start()
    first.next(Update, earlier=True)
    first.process.close()
    path = folder / "closures.npz"
    saved = read_session(path)
    other = [replace(station, first_stamp=station.first_stamp + 1) for station in saved.nodes]
    write_session(path, other, saved.closures, saved.rejected, False)
    one = listener(folder, next_id=len(submaps))
    one.process.start()
    assert "about another submap" in one.next(Problem).text
    assert len(one.next(Update, earlier=True).ids) == len(submaps)
