"""Work beside the mapping: in order, bounded, and an error of one piece costs that piece only."""

from __future__ import annotations

import threading

import pytest
from limits import PATIENCE

from gpgmap_ros.slam.work_queue import InlineExecutor, ThreadExecutor


@pytest.fixture
def errors() -> list[Exception]:
    return []


def test_the_order_is_kept_and_an_error_costs_one_piece(errors: list[Exception]) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 3:
            raise RuntimeError("three")
        done.append(number)

    executor = ThreadExecutor("test", 100, errors.append)
    for number in range(10):
        executor.submit(lambda number=number: work(number))
    executor.close()
    assert done == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [str(error) for error in errors] == ["three"]
    executor.submit(lambda: done.append(99))
    assert 99 not in done, "after close nothing is done any more"


def test_it_has_no_room_while_too_much_waits(errors: list[Exception]) -> None:
    gate, begun = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        gate.wait(PATIENCE)

    executor = ThreadExecutor("test", 1, errors.append)
    executor.submit(held)
    assert begun.wait(PATIENCE)
    executor.submit(lambda: None)
    assert executor.has_room, "one may wait"
    executor.submit(lambda: None)
    assert not executor.has_room
    assert executor.unfinished == 3
    threading.Timer(0.1, gate.set).start()
    executor.wait_for_room()
    assert gate.is_set()
    executor.wait()
    assert executor.has_room
    executor.close()
    assert not errors


def test_inline_work_is_done_at_once_and_its_error_is_handed_over(errors: list[Exception]) -> None:
    done: list[int] = []
    executor = InlineExecutor(errors.append)
    executor.submit(lambda: done.append(1))
    assert done == [1]
    executor.submit(lambda: done.append(1 // 0))
    assert [type(error) for error in errors] == [ZeroDivisionError]
