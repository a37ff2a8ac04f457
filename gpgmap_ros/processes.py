"""Child processes that speak ROS 2 with each other and with nobody else: for the demo and the tests."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gpgmap_ros.share import share_file

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_DOMAIN_LOCKS: list[int] = []
"""Open, and so locked, while this process lives."""


class ProcessFailed(RuntimeError):
    """A child process ended when it should not have: its name, its exit code and the end of what it said."""


def isolated_ros_environment(log_folder: Path, domain_id: int | None = None) -> dict[str, str]:
    """Environment for children that find each other on this machine only, on a domain of their own."""
    log_folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment.update(
        ROS_DOMAIN_ID=str(domain_id if domain_id is not None else free_domain_id()),
        ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST",
        ROS_LOG_DIR=str(log_folder),
        FASTRTPS_DEFAULT_PROFILES_FILE=str(share_file("config", "fastdds_large_messages.xml")),
        PYTHONUNBUFFERED="1",
    )
    # The wheels do not set it; a ROS installation does, and then it is right.
    environment.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    return environment


def free_domain_id() -> int:
    """A domain that no other process has by this function, until this one ends: 1 to 100 are safe on every platform."""
    for offset in range(100):
        domain = 1 + (os.getpid() + offset) % 100
        try:
            path = Path(tempfile.gettempdir()) / f"gpgmap_ros_domain_{domain}.lock"
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        _DOMAIN_LOCKS.append(lock)
        return domain
    raise ProcessFailed("all ROS domains from 1 to 100 are in use by tests and demos: end some of them")


def _end_with_parent() -> None:
    """In the child, before it starts: get SIGTERM when the parent ends, even if that is killed."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A running process: its JSON lines on standard output as events, everything else in a log file."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name, self._log = name, log
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                preexec_fn=_end_with_parent,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._log.open("a", buffering=1) as log:
            for line in self._process.stdout:
                try:
                    self.events.put(json.loads(line))
                except ValueError:
                    log.write(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Raise ProcessFailed if it ended with an error."""
        code = self._process.poll()
        if code:
            raise ProcessFailed(f"{self.name} ended with code {code}:\n{self.tail()}")

    def tail(self, lines: int = 12) -> str:
        text = self._log.read_text(errors="replace").strip().splitlines()
        return "\n".join(f"  | {line}" for line in text[-lines:]) or "  | (it said nothing)"

    def wait(self, timeout: float) -> int:
        code = self._process.wait(timeout)
        self._reader.join(timeout)
        return code

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, timeout: float = 10.0) -> int:
        """Ask it to end as Ctrl-C would; insist after `timeout` seconds. Returns its exit code."""
        if self.running():
            self._process.send_signal(signal.SIGINT)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self.wait(timeout)

    def next_event(self, timeout: float) -> dict[str, Any]:
        """The next event; ProcessFailed if the process ends or stays silent for `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.events.get(timeout=0.1)
            except queue.Empty:
                self.check()
                if time.monotonic() > deadline:
                    raise ProcessFailed(
                        f"{self.name} said nothing for {timeout:.0f} s:\n{self.tail()}"
                    ) from None
