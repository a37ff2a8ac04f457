"""Work shared by threads: in order, and errors reach the caller."""

from __future__ import annotations

import threading

import pytest
from limits import PATIENCE

from gpgmap_ros.closure.parallel import in_parallel


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_the_order_of_the_items(threads: int) -> None:
    assert in_parallel(lambda n: n * n, iter(range(50)), threads) == [n * n for n in range(50)]
    assert in_parallel(lambda n: n, [], threads) == []


def test_several_items_are_worked_on_at_once() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)
    assert len(in_parallel(lambda _: both.wait(), range(2), 2)) == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_reaches_the_caller(threads: int) -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda n: 1 // n, [2, 1, 0], threads)
