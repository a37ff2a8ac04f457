"""The threads that map and solve: nothing lost that fits, the oldest shed first, publication when due and on demand."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

pytest.importorskip("rclpy", reason="gpgmap_ros.nodes needs rclpy: run `make setup`")

from limits import PATIENCE

from gpgmap_ros.nodes import worker as worker_module
from gpgmap_ros.nodes.worker import WaitingCloud, Worker


class Recorder:
    """What the worker did, and a gate that holds the fusing up."""

    def __init__(self) -> None:
        self.fused: list[int] = []
        self.shed: list[int] = []
        self.published: list[int] = []
        self.solved: list[int] = []
        self.renewed: list[int] = []
        self.worth_sending = False
        self.hurries = False
        self.published_at: list[float] = []
        self.errors: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.happened = threading.Condition()

    def prepare(self, cloud: WaitingCloud) -> WaitingCloud | None:
        return None if cloud.message < 0 else cloud

    def fuse(self, cloud: WaitingCloud) -> bool:
        self.gate.wait(PATIENCE)
        if cloud.message == 13:
            raise RuntimeError("unlucky")
        self.note(self.fused, cloud.message)
        return True

    def publish(self, due: bool) -> None:
        if not due:
            self.note(self.solved, len(self.fused))
            return
        self.published_at.append(time.monotonic())
        self.note(self.published, len(self.fused))

    def renew(self) -> bool:
        worth_sending, self.worth_sending = self.worth_sending, False  # what was renewed is not renewed again
        self.note(self.renewed, len(self.fused))
        return worth_sending

    def drop(self, cloud: WaitingCloud) -> None:
        self.note(self.shed, cloud.message)

    def fail(self, error: Exception) -> None:
        self.note(self.errors, str(error))

    def note(self, where: list, what: object) -> None:
        with self.happened:
            where.append(what)
            self.happened.notify_all()

    def wait_for(self, condition: object) -> None:
        with self.happened:
            assert self.happened.wait_for(condition, PATIENCE)


@pytest.fixture
def made() -> object:
    workers = []

    def make(queue_size: int = 100, period: float = 0.0) -> tuple[Recorder, Worker]:
        recorder = Recorder()
        steps = (recorder.prepare, recorder.fuse, recorder.publish, recorder.renew, lambda: recorder.hurries)
        worker = Worker(*steps, recorder.drop, recorder.fail, queue_size, period)
        worker.start()
        workers.append((recorder, worker))
        return recorder, worker

    yield make
    for recorder, worker in workers:
        recorder.gate.set()
        worker.stop()


def cloud(number: int) -> WaitingCloud:
    return WaitingCloud(number, "points", time.monotonic())


def test_clouds_are_fused_in_order_and_published(made: object) -> None:
    recorder, worker = made()
    for number in range(10):
        worker.put(cloud(number))
    recorder.wait_for(lambda: recorder.published and recorder.published[-1] == 10)
    assert recorder.fused == list(range(10))
    assert not recorder.shed


def test_a_map_is_renewed_once_after_it_went_out_and_sent_again_if_that_is_worth_it(made: object) -> None:
    recorder, worker = made()
    recorder.worth_sending = True
    worker.put(cloud(0))
    recorder.wait_for(lambda: len(recorder.renewed) == 2)  # the map that is sent again is one like others
    time.sleep(0.05)
    assert recorder.published == [1, 1]
    assert recorder.renewed == [1, 1]


def test_a_map_is_not_renewed_while_clouds_wait(made: object) -> None:
    recorder, worker = made()
    worker.put(cloud(0))
    recorder.wait_for(lambda: recorder.renewed == [1])
    recorder.gate.clear()
    worker.put(cloud(1))
    worker.put(cloud(2))
    worker.ask_for_publication()
    recorder.wait_for(lambda: len(recorder.published) >= 2)
    time.sleep(0.05)
    assert recorder.renewed == [1]
    recorder.gate.set()
    recorder.wait_for(lambda: recorder.renewed[-1] == 3)


def test_a_cloud_that_cannot_be_made_ready_changes_nothing(made: object) -> None:
    recorder, worker = made()
    worker.put(cloud(-1))
    worker.put(cloud(5))
    recorder.wait_for(lambda: recorder.published == [1])
    assert recorder.fused == [5]


def test_an_error_costs_one_cloud_and_is_told(made: object) -> None:
    recorder, worker = made()
    for number in (12, 13, 14):
        worker.put(cloud(number))
    recorder.wait_for(lambda: recorder.fused == [12, 14])
    assert recorder.errors == ["unlucky"]


def test_a_full_queue_sheds_the_oldest_and_says_so(made: object) -> None:
    recorder, worker = made(queue_size=3)
    recorder.gate.clear()
    worker.put(cloud(0))
    deadline = time.monotonic() + PATIENCE
    while worker.waiting and time.monotonic() < deadline:  # the first is being fused now
        time.sleep(0.01)
    for number in range(1, 9):
        worker.put(cloud(number))  # returns at once, although the worker is held up
    recorder.gate.set()
    recorder.wait_for(lambda: len(recorder.fused) == 4)
    assert recorder.fused == [0, 6, 7, 8]
    assert recorder.shed == [1, 2, 3, 4, 5]


def test_the_map_goes_out_no_oftener_than_the_period_but_the_last_change_does(made: object) -> None:
    recorder, worker = made(period=0.3)
    for number in range(5):
        worker.put(cloud(number))
    recorder.wait_for(lambda: recorder.published and recorder.published[-1] == 5)
    elapsed = recorder.published_at[-1] - recorder.published_at[0]
    assert len(recorder.published) <= 2 + elapsed / 0.3


def test_a_costly_map_does_not_starve_the_clouds(made: object) -> None:
    """Publishing takes longer than its period: most of the time must still go to the clouds, if several wait."""
    recorder, worker = made(period=0.01)
    publish, fuse = recorder.publish, recorder.fuse
    spans: list[tuple[float, float, int]] = []

    def publish_slowly(due: bool) -> None:
        begin, waiting = time.monotonic(), worker.waiting
        time.sleep(0.1)
        spans.append((begin, time.monotonic(), waiting))
        publish(due)

    worker._publish = publish_slowly
    worker._fuse = lambda ready: (time.sleep(0.02), fuse(ready))[1]
    for number in range(100, 150):
        worker.put(cloud(number))
    recorder.wait_for(lambda: recorder.published and recorder.published[-1] == 50)
    assert recorder.fused == list(range(100, 150))
    # while several clouds wait, the time from one map to the next is a multiple of what the first took
    assert sum(waiting > 1 for *_, waiting in spans) > 2
    for (begin, end, _), (following, _, waiting) in itertools.pairwise(spans):
        if waiting <= 1:
            continue
        assert following - begin >= worker_module.PATIENCE * (end - begin) - worker.period


def test_nothing_goes_out_without_a_change(made: object) -> None:
    recorder, worker = made()
    worker.put(cloud(0))
    recorder.wait_for(lambda: len(recorder.published) == 1)
    time.sleep(0.1)
    assert len(recorder.published) == 1
    worker.ask_for_publication()
    recorder.wait_for(lambda: len(recorder.published) == 2)


def test_whoever_holds_the_lock_is_alone(made: object) -> None:
    recorder, worker = made()
    with worker.between_steps():
        worker.put(cloud(0))
        time.sleep(0.1)
        assert not recorder.fused
    recorder.wait_for(lambda: recorder.fused == [0])


def test_clouds_are_fused_while_the_map_is_solved(made: object) -> None:
    recorder, worker = made()
    publish, fused = recorder.publish, []

    def wait_for_more(due: bool) -> None:
        recorder.wait_for(lambda: len(recorder.fused) >= 5)
        fused.append(len(recorder.fused))
        publish(due)

    worker._publish = wait_for_more
    for number in range(20, 25):
        worker.put(cloud(number))
    recorder.wait_for(lambda: recorder.published)
    assert fused[0] == 5


def test_the_clouds_may_want_a_map_before_one_is_due(made: object) -> None:
    recorder, worker = made(period=1000.0)
    worker.put(cloud(0))
    recorder.wait_for(lambda: recorder.published == [1])
    recorder.hurries = True
    worker.put(cloud(1))
    recorder.wait_for(lambda: recorder.solved)
    assert recorder.solved == [2], "once for each cloud"
    assert recorder.published == [1]


def test_an_error_of_solving_costs_one_map(made: object) -> None:
    recorder, worker = made()
    publish = recorder.publish

    def fail_first(due: bool) -> None:
        if not recorder.errors:
            raise RuntimeError("no factor")
        publish(due)

    worker._publish = fail_first
    worker.put(cloud(0))
    recorder.wait_for(lambda: recorder.errors == ["no factor"])
    worker.put(cloud(1))
    recorder.wait_for(lambda: recorder.published == [2])
