"""Fast DDS keeps messages in shared memory, which outlives its process: a node must leave none behind."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from limits import PATIENCE
from scene import wait_for_text

from gpgmap_ros.nodes.abandoned_memory import FOLDER, remove_abandoned_segments
from gpgmap_ros.processes import Child

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no shared memory in the file system")
SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")
STARTED = "mapping '/points'"


def segments_of(node: Child) -> set[Path]:
    """What a lone node has mapped: alone on its domain, it maps nobody else's."""
    maps = Path(f"/proc/{node.pid}/maps").read_text()
    return {Path(found) for found in re.findall(r"/dev/shm/fastrtps_[0-9a-f]{16}(?= |$)", maps, re.MULTILINE)}


def wait_for_segments(node: Child, seconds: float = PATIENCE) -> set[Path]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and node.running():
        if found := segments_of(node):
            return found
        time.sleep(0.002)
    raise AssertionError(f"no shared memory: {node.tail()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_node_that_ends_leaves_none(start_node: Any, number: signal.Signals) -> None:
    node = start_node(*SMALL)
    wait_for_text(node, STARTED)
    segments = segments_of(node)
    assert segments
    assert all(segment.exists() for segment in segments)
    node.signal(number)
    assert node.wait(PATIENCE) == 0, node.tail()
    assert not [segment for segment in segments if segment.exists()]


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_nor_does_one_that_is_ended_while_it_starts(start_node: Any, delay: float) -> None:
    node = start_node(*SMALL)
    segments = wait_for_segments(node)
    time.sleep(delay)
    node.signal(signal.SIGINT)
    assert node.wait(PATIENCE) == 0, node.tail()
    assert not [segment for segment in segments if segment.exists()]


def test_nor_one_that_refuses_its_settings(start_node: Any) -> None:
    node = start_node("-p", "mapping.resolution:=-1.0")
    segments = wait_for_segments(node)
    assert node.wait(PATIENCE) == 2
    assert not [segment for segment in segments if segment.exists()]


def test_the_next_node_frees_what_a_killed_one_left(start_node: Any) -> None:
    killed = start_node(*SMALL)
    wait_for_text(killed, STARTED)
    lost = segments_of(killed)
    living = start_node(*SMALL, "-r", "__node:=living")
    wait_for_text(living, STARTED)
    kept = segments_of(living) - lost
    assert kept
    time.sleep(2.1)  # what is younger is left alone
    killed.signal(signal.SIGKILL)
    assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert all(segment.exists() for segment in lost), (
        "Fast DDS frees them: abandoned_memory has no purpose any more"
    )

    next_one = start_node(*SMALL, "-r", "__node:=next_one")
    wait_for_text(next_one, STARTED)
    assert not [segment for segment in lost if segment.exists()]
    assert all(segment.exists() for segment in kept)


def test_only_what_is_certainly_abandoned_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def segment(number: int, lock: bool = True) -> Path:
        path = tmp_path / f"fastrtps_{number:016x}"
        path.write_bytes(b"x" * 1000)
        if lock:
            path.with_name(path.name + "_el").touch()
        return path

    abandoned, locked, without_lock = segment(1), segment(2), segment(3, lock=False)
    others = [
        tmp_path / name for name in ("fastrtps_port7000", "fastrtps_port7000_el", "sem.fastrtps_0", "mine")
    ]
    for path in others:
        path.touch()
    assert remove_abandoned_segments(tmp_path) == 0  # all too young

    monkeypatch.setattr("gpgmap_ros.nodes.abandoned_memory._SETTLED", 0.0)
    with Path(f"{locked}_el").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
            assert remove_abandoned_segments(tmp_path) == 0  # another user's
        assert remove_abandoned_segments(tmp_path) == 1000
    assert not abandoned.exists()
    assert not Path(f"{abandoned}_el").exists()
    assert all(path.exists() for path in (locked, without_lock, *others))
    assert remove_abandoned_segments(tmp_path / "absent") == 0

    # a node that starts at the same time takes it away first
    segment(4)
    monkeypatch.setattr("gpgmap_ros.nodes.abandoned_memory._is_abandoned", lambda path: path.unlink() is None)
    assert remove_abandoned_segments(tmp_path) == 0
