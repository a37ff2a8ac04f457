"""Run as a program: has imported all that the node needs but for rclpy, and forks a node, or another of the
package's modules, for whoever asks.

    python node_template.py SOCKET SETTINGS

SETTINGS, a JSON object, are those that most nodes are to have; their tables are prepared.
A connection brings one request: a JSON object with `module`, `arguments` and `environment`, and with it the
descriptors of standard output and standard error. The answers are the process id, and the status (as of `os.waitpid`)
when it has ended. The program ends with its parent, what it has forked ends with the program. rclpy, and with it DDS,
is left to the nodes: it starts threads when it is imported, and reads the environment.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import gpgmap_ros.sensing.sources
import gpgmap_ros.slam.metrics  # noqa: F401 (for the nodes)
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.processes import _end_with_parent
from gpgmap_ros.slam import MappingPipeline

LONGEST_REQUEST = 1 << 20


def prepare(settings: dict[str, Any]) -> None:
    """Load the machine code and the tables of the maps that most tests make, on one core: without threads."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    for more in ({}, {"mapping.size_x": 2.0, "mapping.size_y": 2.0, "mapping.resolution": 0.2}):
        MappingPipeline(with_settings(Config(), {**settings, **more})).warm_up()
    os.sched_setaffinity(0, cores)
    gc.collect()
    gc.freeze()  # pages that a collection does not write stay shared
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: a fork would leave some of them behind"


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork at each request. Returns in the new process, with what it is to do."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is not None:  # a node has ended
                pid, connection = key.data
                selector.unregister(key.fileobj)
                os.close(key.fd)
                answer(connection, os.waitpid(pid, 0)[1])
                connection.close()
                continue
            connection, _ = listener.accept()
            message, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 2)
            pid = os.fork()
            if pid == 0:
                selector.close()
                listener.close()
                connection.close()
                return {**json.loads(message), "descriptors": descriptors}
            for descriptor in descriptors:
                os.close(descriptor)
            answer(connection, pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))


def answer(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.send(str(number).encode())


def run(request: dict[str, Any]) -> None:
    """What a fresh process would do, with its environment, arguments and streams."""
    _end_with_parent()
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    del sys.path[0]  # the folder of this file
    for descriptor, target in zip(request["descriptors"], (1, 2), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(sys.argv[1] + ".new")
        listening.listen(16)
        prepare(json.loads(sys.argv[2]))
        Path(sys.argv[1] + ".new").rename(sys.argv[1])  # from now on it can be found
        task = serve(listening)
    run(task)
