"""A child ends with its parent, also with one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limits import PATIENCE

import gpgmap_ros

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can end a child")

# by its path: the package around it takes seconds to import
MODULE = str(Path(gpgmap_ros.__file__).parent / "slam" / "end_with_parent.py")
CHILD = f"""
import os, runpy, sys, time
end_with_parent = runpy.run_path({MODULE!r})["end_with_parent"]
end_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid())
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}])
time.sleep(60)
"""


def running(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for counts as ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_child_of_a_killed_parent_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert running(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + PATIENCE
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running(child)


def test_a_child_whose_parent_has_ended_before_ends_at_once() -> None:
    gone = str(os.getppid())  # any process but the one that starts it
    ended = subprocess.run([sys.executable, "-c", CHILD, gone], capture_output=True, timeout=PATIENCE)
    assert ended.returncode == 0
    assert ended.stdout == b""
