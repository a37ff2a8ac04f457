"""Tasks that run on several threads lead to what running them one by one would."""

import threading
import time
from functools import partial

import numpy as np
import pytest
from limits import PATIENCE

from gp_core.task_graph import TaskGraph


def random_program(rng, n_tasks, n_cells):
    """(reads, changed cell) per task: what it reads is chosen among all cells, so that all kinds of conflict occur."""
    return [
        (rng.choice(n_cells, size=rng.integers(0, 4)).tolist(), int(rng.integers(n_cells)))
        for _ in range(n_tasks)
    ]


def mix(cells, number, reads, changed, wait):
    """A result that depends on the order: no two tasks can be exchanged."""
    seen = [cells[r] for r in reads]
    before = cells[changed]
    time.sleep(wait)
    cells[changed] = hash((number, before, *seen))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_the_result_is_that_of_one_task_after_the_other(threads, seed):
    rng = np.random.default_rng(seed)
    program, waits = random_program(rng, 80, 6), rng.uniform(0.0, 1e-3, 80)
    expected, cells, graph = list(range(6)), list(range(6)), TaskGraph()
    for number, (reads, changed) in enumerate(program):
        mix(expected, number, reads, changed, 0.0)
        graph.add(partial(mix, cells, number, reads, changed, waits[number]), reads, changed)
    graph.run(threads)
    assert cells == expected


def test_tasks_on_other_blocks_do_not_wait():
    """Each waits for the other to have begun, which only two threads at once can bring about."""
    meeting = threading.Barrier(2, timeout=PATIENCE)
    graph = TaskGraph()
    graph.add(meeting.wait, [], "a")
    graph.add(meeting.wait, [], "b")
    graph.run(2)


def test_readers_of_one_block_do_not_wait_for_each_other():
    meeting = threading.Barrier(2, timeout=PATIENCE)
    graph = TaskGraph()
    graph.add(lambda: None, [], "a")
    graph.add(meeting.wait, ["a"], "b")
    graph.add(meeting.wait, ["a"], "c")
    graph.run(2)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_ends_the_rest_and_is_raised(threads):
    done, graph = [], TaskGraph()

    def fail():
        raise ArithmeticError("no result")

    graph.add(partial(done.append, 0), [], "a")
    graph.add(fail, [], "a")
    graph.add(partial(done.append, 1), ["a"], "b")
    with pytest.raises(ArithmeticError, match="no result"):
        graph.run(threads)
    assert done == [0]


def test_no_task_at_all():
    TaskGraph().run(2)


def test_the_longest_chain_goes_first():
    """On one thread: of what can start, first that which most others wait for, one after another."""
    order, graph = [], TaskGraph()
    graph.add(partial(order.append, "alone"), [], "x")
    for name in ("first", "second", "third"):
        graph.add(partial(order.append, name), [], "chain")
    graph.run(1)
    assert order[:2] == ["first", "second"]
