"""The loop closer in a process of its own, at low priority: mapping never waits for it.

A process and not a thread: a registration is a second of Python, numba and FFTs per submap, and GTSAM holds the
interpreter's lock while it solves. In a thread of the node the robot's clouds would wait for that lock, and a thread of
low priority that holds it would make them wait longer still. A process can be told to take only what mapping leaves of
the processor, its memory is its own, and a crash in it costs closures, not the map.

Requests and answers are pickled dataclasses on the child's standard input and output. The child ends when its input
does, and on Linux the kernel kills it when the node ends (end_with_parent.py), so that it never outlives the node.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpgmap_ros.config import Config
from gpgmap_ros.interpreter import module_command
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.closure_messages import (
    Add,
    Answer,
    CatchingUp,
    Done,
    Problem,
    Request,
    Restored,
    Start,
    Update,
)
from gpgmap_ros.slam.graph_view import GraphView

MAX_WAITING = 8
"""Submaps, of some 10 MB each, that may wait in memory for a child that gets too little of the processor."""


class ClosureProcess:
    """Starts the child with the first request and hands its answers to `receive`, in a thread of its own.

    config, folder: see `Start`; receive: called with each answer, and with a Problem should the child end by itself
    next_id: number of the first submap that will be added
    """

    def __init__(
        self, config: Config, folder: Path | None, receive: Callable[[Answer], None], next_id: int = 0
    ) -> None:
        self._config, self._folder, self._receive = config, folder, receive
        self._next_id = next_id
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closing = False
        self._unanswered: deque[Request] = deque()
        self._answered = threading.Condition()
        self._catching_up = 0

    @classmethod
    def for_store(
        cls, config: Config, store: SubmapStore | None, receive: Callable[[Answer], None]
    ) -> ClosureProcess:
        """For the submaps of a store; None: submaps are not kept."""
        if store is None:
            return cls(config, None, receive)
        return cls(config, store.folder.parent, receive, store.next_id)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """Requests that have not been answered."""
        return len(self._unanswered)

    @property
    def backlog(self) -> int:
        """Submaps that have not been compared yet, those of earlier runs among them."""
        return self._catching_up + sum(isinstance(request, Add) for request in list(self._unanswered))

    def start(self) -> None:
        """Start the child before there is a request, so that it can read what earlier runs left."""
        with self._lock:
            if not self._closing and self._process is None:
                self._spawn()

    def add(self, submap: Submap, stored: bool, own: bool = True) -> None:
        """Have a finished submap compared with the earlier ones. stored: it is in the folder; own: of this robot"""
        self.ask(Add(submap.id, None if stored and self._folder is not None else submap, own))

    def ask(self, request: Request) -> None:
        """Never waits: a thread writes to the child. A submap that is on no disk is left out where too many wait."""
        if isinstance(request, Add) and request.submap is not None and self.waiting >= MAX_WAITING:
            self._receive(
                Problem(
                    f"submap {request.id} is not compared: {self.waiting} wait already, and there is no folder "
                    "for more. Set map_folder, or closure.enabled to false where the processor has no time for it"
                )
            )
            return
        with self._lock:
            if self._closing:
                return
            if self._process is None:
                self._spawn()
            if self._process is None:  # it did not start, which has been said
                return
            if isinstance(request, Add):
                self._next_id = max(self._next_id, request.id + 1)
            self._unanswered.append(request)
            self._requests.put(request)

    def wait(self) -> None:
        """Wait until all requests are answered."""
        with self._answered:
            self._answered.wait_for(lambda: not self._unanswered or self._closing)

    def close(self) -> None:
        """End the child now. Its files are whole whenever that happens; what it was doing is done in the next run."""
        with self._lock:
            self._closing = True
            process, self._process = self._process, None
            self._requests.put(None)
        if process is not None:
            process.terminate()
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self) -> None:
        """Start the child from a thread that lives as long as it does: the kernel ends it with the thread."""
        self._requests = queue.SimpleQueue()
        self._requests.put(Start(self._config, self._folder, self._next_id))
        started = threading.Event()
        arguments = (self._requests, started)
        threading.Thread(target=self._live, args=arguments, name="closures", daemon=True).start()
        started.wait()

    def _live(self, requests: queue.SimpleQueue[Any], started: threading.Event) -> None:
        command = module_command("gpgmap_ros.slam.closure_child", str(os.getpid()))
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            started.set()  # first: who waits for it may hold what `receive` needs
            self._receive(Problem(f"the process of the loop closures does not start: {error}"))
            return
        self._process = process
        started.set()
        threading.Thread(target=self._write, args=(process, requests), name="closures", daemon=True).start()
        self._read(process, requests)

    def _write(self, process: subprocess.Popen[bytes], requests: queue.SimpleQueue[Any]) -> None:
        assert process.stdin is not None
        while True:
            request = requests.get()
            if request is None:
                return
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
            except OSError:  # it has ended: the reader says so
                return

    def _read(self, process: subprocess.Popen[bytes], requests: queue.SimpleQueue[Any]) -> None:
        assert process.stdout is not None
        view = GraphView()
        while True:
            try:
                answer = pickle.load(process.stdout)
            except Exception:  # its end, or half an answer at its end
                break
            if isinstance(answer, Done):
                with self._answered:
                    self._unanswered.popleft()
                    self._answered.notify_all()
                continue
            if isinstance(answer, Restored | CatchingUp):
                self._catching_up = answer.waiting
            self._receive(view.whole(answer) if isinstance(answer, Update) else answer)
        code = process.wait()
        with self._lock:
            if self._closing or self._process is not process:
                return
            self._process, self._catching_up = None, 0
            with self._answered:
                self._unanswered.clear()
                self._answered.notify_all()
            requests.put(None)
        self._receive(
            Problem(
                f"the process of the loop closures ended with code {code}; the next submap starts it again"
            )
        )
