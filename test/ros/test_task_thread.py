"""The thread behind the sharing of submaps: tasks in order, none after it was closed."""

from __future__ import annotations

import threading
from collections import deque

from gpgmap_ros.nodes.task_thread import Task, TaskThread


def make_thread(waiting: deque[Task]) -> TaskThread:
    thread = TaskThread("tasks", lambda: waiting.popleft() if waiting else None)
    thread.start()
    return thread


def put(thread: TaskThread, waiting: deque[Task], task: Task) -> None:
    with thread.changed:
        waiting.append(task)
        thread.changed.notify_all()


def test_tasks_are_done_in_order_whenever_they_come() -> None:
    waiting: deque[Task] = deque()
    thread, done, all_done = make_thread(waiting), [], threading.Event()
    for number in range(20):
        put(thread, waiting, lambda number=number: done.append(number))
    put(thread, waiting, all_done.set)
    assert all_done.wait(10.0)
    thread.close()
    assert done == list(range(20))


def test_closing_waits_for_the_task_and_leaves_the_rest() -> None:
    waiting: deque[Task] = deque()
    thread, begun, go_on, done = make_thread(waiting), threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        go_on.wait(10.0)
        done.append("slow")

    put(thread, waiting, slow)
    assert begun.wait(10.0)
    put(thread, waiting, lambda: done.append("never"))
    closing = threading.Thread(target=thread.close)
    closing.start()
    with thread.changed:
        assert thread.changed.wait_for(lambda: thread.closing, 10.0)
    go_on.set()
    closing.join(10.0)
    assert not closing.is_alive()
    assert done == ["slow"]
