"""Nodes without the three seconds of CPU that each start takes: forked from a process that has imported nearly all.

What runs is the module itself in a process of its own, with its own environment, streams and signals. Tests of the
installed command, and of anything that is decided while Python starts, take `start_default_node`.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from fast_mapping import FAST
from limits import PATIENCE

from gpgmap_ros.processes import Child

# What the node reads when it starts to work, not when Python starts or its modules are imported.
AT_RUN_TIME = ("ROS_", "FASTRTPS_", "AMENT_PREFIX_PATH", "PYTHONUNBUFFERED", "PYTEST_CURRENT_TEST")

LONGEST_ANSWER = 64


class NodeTemplate:
    """The process that is forked, started at the first request."""

    def __init__(self) -> None:
        self._process: Child | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._environment = dict(os.environ)

    def suits(self, environment: dict[str, str]) -> bool:
        """Whether a node with this environment would have started as the template did."""
        return fixed(environment) == fixed(self._environment)

    def fork(
        self, module: str, arguments: list[str], environment: dict[str, str], stdout: int, stderr: int
    ) -> ForkedProcess:
        address = self._address()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(PATIENCE)
        connection.connect(address)
        request = json.dumps({"module": module, "arguments": arguments, "environment": environment}).encode()
        assert socket.send_fds(connection, [request], [stdout, stderr]) == len(request)
        return ForkedProcess(connection)

    def _address(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="node")
        folder = Path(self._folder.name)
        address = folder / "socket"
        if self._process is None or not self._process.running():
            address.unlink(missing_ok=True)
            (folder / "socket.new").unlink(missing_ok=True)
            program = Path(__file__).with_name("node_template.py")
            command = [sys.executable, str(program), str(address), json.dumps(dict(FAST))]
            own = {**self._environment, "OPENBLAS_NUM_THREADS": "1"}  # others would not survive the fork
            self._process = Child("node_template", command, own, folder / "log")
        deadline = time.monotonic() + PATIENCE
        while not address.exists():
            self._process.check()
            assert time.monotonic() < deadline, f"the template is not ready:\n{self._process.tail()}"
            time.sleep(0.05)
        return str(address)

    def close(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
        if self._folder is not None:
            self._folder.cleanup()


def fixed(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(AT_RUN_TIME)}


class ForkedProcess:
    """What `Child` uses of a subprocess.Popen."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._code: int | None = None
        self.stdout: IO[str] | None = None
        self.pid = int(connection.recv(LONGEST_ANSWER))
        self._ended = threading.Event()
        threading.Thread(target=self._wait_for_status, name=f"node {self.pid}", daemon=True).start()

    def _wait_for_status(self) -> None:
        self._connection.settimeout(None)
        text = self._connection.recv(
            LONGEST_ANSWER
        )  # nothing if the template was killed, and the node with it
        self._code = os.waitstatus_to_exitcode(int(text)) if text else -signal.SIGTERM
        self._connection.close()
        self._ended.set()

    def poll(self) -> int | None:
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self._code is not None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedNode(Child):
    """A module of gpgmap_ros.nodes, run by a process that the template forks."""

    def __init__(
        self, template: NodeTemplate, name: str, arguments: list[str], environment: dict[str, str], log: Path
    ) -> None:
        self.name, self._log = name, log
        self.events = queue.Queue()
        reading, writing = os.pipe()
        with log.open("wb") as file, os.fdopen(writing, "wb") as out:
            self._process = template.fork(
                f"gpgmap_ros.nodes.{name}", arguments, environment, out.fileno(), file.fileno()
            )
        self._process.stdout = os.fdopen(reading, "r")
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()
