"""Work that is done in a thread ahead of who asks for it: its order, how far ahead, and errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from limits import PATIENCE

from gpgmap_ros.slam.run_ahead import run_ahead


def test_results_come_in_order_and_items_are_taken_in_the_thread_of_the_caller() -> None:
    takers, workers = set(), set()

    def items() -> Iterator[int]:
        for k in range(20):
            takers.add(threading.current_thread())
            yield k

    def square(k: int) -> int:
        workers.add(threading.current_thread())
        return k * k

    assert list(run_ahead(square, items(), 3, "test")) == [k * k for k in range(20)]
    assert takers == {threading.current_thread()}
    assert len(workers) == 1
    assert not workers & takers


def test_the_thread_works_while_the_caller_has_not_asked_and_not_too_far_ahead() -> None:
    taken: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for k in range(100):
            taken.append(k)
            yield k

    def work(k: int) -> int:
        if k == 2:
            third.set()
        return k

    results = run_ahead(work, items(), 3, "test")
    assert next(results) == 0
    assert third.wait(PATIENCE), "nobody has asked for the third result"
    assert taken == [0, 1, 2, 3]
    results.close()
    assert taken == [0, 1, 2, 3]


def test_an_error_is_raised_in_place_of_its_result() -> None:
    def work(k: int) -> int:
        if k == 5:
            raise ValueError("the sixth")
        return k

    results = run_ahead(work, range(100), 4, "test")
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the sixth"):
        next(results)
