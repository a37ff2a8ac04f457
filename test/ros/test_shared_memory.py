"""Fast DDS keeps messages in shared memory, which outlives its process: a node must leave none behind."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from child_text import wait_for_text
from limits import PATIENCE
from shared_segments import segments_of

from gpgmap_ros.nodes.abandoned_memory import FOLDER, remove_abandoned_segments
from gpgmap_ros.processes import Child

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no shared memory in the file system")
SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")
STARTED = "mapping '/points'"


def wait_for_segments(node: Child, seconds: float = PATIENCE) -> set[Path]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and node.running():
        if found := segments_of(node.pid):
            return found
        time.sleep(0.002)
    raise AssertionError(f"no shared memory: {node.tail()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_node_that_ends_leaves_none(start_node: Any, number: signal.Signals) -> None:
    node = start_node(*SMALL)
    wait_for_text(node, STARTED)
    segments = segments_of(node.pid)
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


TELLING = f"""
import os, pathlib, rclpy, sys
from gpgmap_ros.nodes import mapping_node

sys.path.append({str(Path(__file__).parent)!r})
from shared_segments import segments_of

end, target = rclpy.try_shutdown, pathlib.Path(sys.argv.pop(1))

def tell_and_end():
    target.write_text("\\n".join(map(str, segments_of(os.getpid()))))
    end()

rclpy.try_shutdown = tell_and_end
sys.exit(mapping_node.main())
"""
"""The node, which tells what shared memory it has before it ends: it ends too soon for others to look."""


def test_nor_one_that_refuses_its_settings(start: Any, tmp_path: Path) -> None:
    told = tmp_path / "maps"
    arguments = ("--ros-args", "-p", "mapping.resolution:=-1.0")
    node = start("mapping_node", sys.executable, "-c", TELLING, str(told), *arguments)
    assert node.wait(PATIENCE) == 2
    segments = [Path(line) for line in told.read_text().splitlines()]
    assert segments
    assert not [segment for segment in segments if segment.exists()]


def test_the_next_node_frees_what_a_killed_one_left(start_node: Any) -> None:
    killed = start_node(*SMALL)
    wait_for_text(killed, STARTED)
    lost = segments_of(killed.pid)
    living = start_node(*SMALL, "-r", "__node:=living")
    wait_for_text(living, STARTED)
    kept = segments_of(living.pid) - lost
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
