"""Children of the demo and the tests: what they say, how they end, and that they do not outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limits import PATIENCE

from gpgmap_ros.processes import Child, ProcessFailed, free_domain_id


def child(tmp_path: Path, code: str, **variables: str) -> Child:
    environment = dict(os.environ, PYTHONUNBUFFERED="1", **variables)
    return Child("it", [sys.executable, "-c", code], environment, tmp_path / "log")


def test_json_lines_are_events_and_the_rest_is_the_log(tmp_path: Path) -> None:
    process = child(tmp_path, "print('hello'); print('{\"a\": 1}')")
    assert process.next_event(PATIENCE) == {"a": 1}
    assert process.wait(PATIENCE) == 0
    assert process.tail() == "  | hello"


def test_a_failure_is_named_with_its_last_words(tmp_path: Path) -> None:
    process = child(tmp_path, "raise SystemExit('no ground in sight')")
    process.wait(PATIENCE)
    with pytest.raises(ProcessFailed, match=r"it ended with code 1:\n  \| no ground in sight"):
        process.check()


def test_silence_is_named(tmp_path: Path) -> None:
    process = child(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(ProcessFailed, match="said nothing for 0 s"):
        process.next_event(0.2)
    process.stop()
    assert not process.running()


def test_one_that_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(2, signal.SIG_IGN); print('{}'); time.sleep(60)"
    process = child(tmp_path, code)
    process.next_event(PATIENCE)
    assert process.stop(timeout=0.5) == -signal.SIGKILL


def test_a_child_ends_with_its_parent_even_if_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", (
            "import os, pathlib, sys, time; from gpgmap_ros.processes import Child;"
            "c = Child('x', [sys.executable, '-c', 'import time; time.sleep(60)'], dict(os.environ),"
            f" pathlib.Path({str(tmp_path / 'log')!r})); print(c.pid, flush=True); time.sleep(60)"
        )],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.05)


def test_a_domain_is_given_once_while_its_owner_lives(tmp_path: Path) -> None:
    code = """
import os, time
os.getpid = lambda: 7  # all begin to look at the same place
from gpgmap_ros.processes import free_domain_id
print('{"domain": %d}' % free_domain_id())
time.sleep(60)
"""
    alone = {"TMPDIR": str(tmp_path)}  # where the locks are: other tests take domains too
    first, second = child(tmp_path, code, **alone), child(tmp_path, code, **alone)
    domains = [process.next_event(PATIENCE)["domain"] for process in (first, second)]
    assert domains[0] != domains[1]
    first.signal(signal.SIGKILL)
    first.wait(PATIENCE)
    third = child(tmp_path, code, **alone)
    assert third.next_event(PATIENCE)["domain"] == domains[0], "the lock went with its owner"
    assert free_domain_id() != free_domain_id()
    for process in (second, third):
        process.stop()
