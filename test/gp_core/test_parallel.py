"""Blocks on threads: in order, with errors passed on, within the limits set."""

import os
import threading

import pytest
import threadpoolctl
from limits import PATIENCE

from gp_core.parallel import WorkerPool, available_threads, map_blocks, single_threaded_blas


def test_results_come_in_order():
    assert map_blocks(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert map_blocks(lambda i: i, []) == []


def test_an_error_in_a_block_is_raised():
    def fail(i):
        if i == 3:
            raise ValueError("block 3")
        return i

    with pytest.raises(ValueError, match="block 3"):
        map_blocks(fail, range(8))


@pytest.mark.parametrize(("limit", "most"), [("1", 1), ("0", None), ("many", None), ("", None)])
def test_the_limit_is_respected(monkeypatch, limit, most):
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert 1 <= available_threads() <= (most or os.cpu_count() or 1)


def blas_threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_blas_gets_its_threads_back_also_when_several_ask():
    before = blas_threads()
    entered, leave = threading.Event(), threading.Event()

    def enter():
        with single_threaded_blas():
            entered.set()
            leave.wait(PATIENCE)

    other = threading.Thread(target=enter)
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
        other.start()
        entered.wait(PATIENCE)
        with single_threaded_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    leave.set()
    other.join(60)
    assert blas_threads() == before
    with pytest.raises(ValueError, match="inside"), single_threaded_blas():
        raise ValueError("inside")
    assert blas_threads() == before


def test_blocks_within_blocks_stay_on_their_thread(monkeypatch):
    monkeypatch.setattr("gp_core.parallel.available_threads", lambda: 2)

    def outer(i):
        own = threading.get_ident()
        return all(map_blocks(lambda j: threading.get_ident() == own, range(8)))

    assert all(map_blocks(outer, range(8)))


def test_the_caller_works_too_and_an_error_ends_only_its_batch():
    own, seen = threading.get_ident(), set()
    meeting = threading.Barrier(2)  # two tasks that wait for each other: only two threads end them

    def meet():
        meeting.wait(PATIENCE)
        seen.add(threading.get_ident())

    def fail():
        raise ValueError("one task")

    with WorkerPool(2) as pool:
        pool.run([])
        pool.run([meet, meet])
        assert len(seen) == 2
        assert own in seen
        with pytest.raises(ValueError, match="one task"):
            pool.run([fail] * 3)
        pool.run([meet, meet])
    assert map_blocks(lambda i: i, range(8)) == list(range(8))
