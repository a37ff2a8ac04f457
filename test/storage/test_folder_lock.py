"""One owner per folder, until its process ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpgmap_ros.storage.folder_lock import LOCK_FILE, FolderInUse, FolderLock

OWNER = (
    "import sys\nfrom pathlib import Path\nfrom gpgmap_ros.storage.folder_lock import FolderLock\n"
    "lock = FolderLock(Path(sys.argv[1]), \"mapping_node '/first'\")\nprint(1, flush=True)\nsys.stdin.read()\n"
)


def test_the_second_hears_who_has_it_and_what_to_do(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(FolderInUse) as caught:
        FolderLock(tmp_path, "second", "set map_folder to another folder")
    text = str(caught.value)
    assert f"mapping_node '/first' (process {child.pid} on {socket.gethostname()}" in text
    assert "set map_folder to another folder, or end that process" in text
    child.kill()  # it cannot tidy up
    child.communicate()
    FolderLock(tmp_path, "second").release()


def test_a_released_folder_is_free(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "new" / "folder", "first")
    with pytest.raises(FolderInUse, match="in use by first"):
        FolderLock(lock.folder, "second")
    lock.release()
    FolderLock(lock.folder, "second").release()


def test_children_do_not_keep_the_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "first")
    child = subprocess.Popen(["sleep", "60"])
    try:
        lock.release()
        FolderLock(tmp_path, "second").release()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff" * 9000, b"[" * 4000, b'{"since": 1e999}'])
def test_a_strange_lock_file_is_no_obstacle_and_no_crash(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / LOCK_FILE
    path.write_bytes(content)
    with FolderLock(tmp_path, "first"):
        path.write_bytes(content)
        with pytest.raises(FolderInUse):
            FolderLock(tmp_path, "second")


def test_a_link_or_a_fifo_in_its_place_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / LOCK_FILE).symlink_to(victim)
    with pytest.raises(OSError, match=LOCK_FILE):
        FolderLock(tmp_path, "first")
    assert victim.read_text() == "precious"
    (tmp_path / LOCK_FILE).unlink()
    os.mkfifo(tmp_path / LOCK_FILE)
    with pytest.raises(OSError, match="not a regular file"):
        FolderLock(tmp_path, "first")
