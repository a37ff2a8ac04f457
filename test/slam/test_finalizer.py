"""Submaps completed beside the mapping: in order, with their errors told, at once after the end."""

from __future__ import annotations

import threading

import pytest
from limits import PATIENCE

from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.finalizer import SubmapFinalizer
from gpgmap_ros.slam.mapping_pipeline import EndedSubmap
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.work_queue import InlineExecutor, ThreadExecutor


class Outcome:
    """What a finalizer handed over."""

    def __init__(self) -> None:
        self.finished: list[str] = []
        self.errors: list[str] = []
        self.metrics = Metrics()
        self.gate = threading.Event()
        self.gate.set()

    def complete(self, ended: EndedSubmap) -> tuple[Submap | None, str]:
        assert self.gate.wait(PATIENCE)
        if ended.ended_by == "broken":
            raise RuntimeError("no memory")
        return None, ended.ended_by

    def finish(self, submap: Submap | None, error: str) -> None:
        self.finished.append(error)

    def fail(self, error: Exception) -> None:
        self.errors.append(str(error))

    def finalizer(self, max_waiting: int = 10) -> SubmapFinalizer:
        executor = ThreadExecutor("test", max_waiting, self.fail)
        return SubmapFinalizer(executor, self.fail, self.complete, self.finish, self.metrics)


def ended(text: str) -> EndedSubmap:
    """A submap that is told apart by what ended it; nothing of its content is used here."""
    return EndedSubmap(builder=None, ended_by=text)  # type: ignore[arg-type]


@pytest.fixture
def outcome() -> Outcome:
    return Outcome()


def test_submaps_are_finished_in_the_order_in_which_they_ended(outcome: Outcome) -> None:
    finalizer = outcome.finalizer()
    for number in range(5):
        finalizer.submit(ended(str(number)))
    finalizer.wait()
    assert outcome.finished == ["0", "1", "2", "3", "4"]
    assert outcome.metrics.seconds.keys() == {"submaps"}
    finalizer.close()


def test_an_error_costs_one_submap_and_is_told(outcome: Outcome) -> None:
    finalizer = outcome.finalizer()
    for text in ("first", "broken", "last"):
        finalizer.submit(ended(text))
    finalizer.close()
    assert outcome.finished == ["first", "last"]
    assert outcome.errors == ["no memory"]


def test_after_close_a_submap_is_completed_at_once(outcome: Outcome) -> None:
    finalizer = outcome.finalizer()
    finalizer.close()
    finalizer.submit(ended("late"))
    assert outcome.finished == ["late"]
    finalizer.submit(ended("broken"))
    assert outcome.errors == ["no memory"]


def test_the_caller_waits_only_while_too_many_submaps_do(outcome: Outcome) -> None:
    finalizer = outcome.finalizer(max_waiting=1)
    finalizer.wait_for_room()
    assert "wait for submaps" not in outcome.metrics.seconds
    outcome.gate.clear()
    for number in range(4):
        finalizer.submit(ended(str(number)))
    threading.Timer(0.05, outcome.gate.set).start()
    finalizer.wait_for_room()
    assert outcome.gate.is_set()
    assert "wait for submaps" in outcome.metrics.seconds
    finalizer.close()


def test_inline_a_submap_is_finished_when_submit_returns(outcome: Outcome) -> None:
    finalizer = SubmapFinalizer(
        InlineExecutor(outcome.fail), outcome.fail, outcome.complete, outcome.finish, outcome.metrics
    )
    finalizer.submit(ended("now"))
    assert outcome.finished == ["now"]
