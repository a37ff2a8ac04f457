"""Files are whole or not there, whoever else writes, links or is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.config import Config
from gpgmap_ros.config.yaml import save_config
from gpgmap_ros.io.geotiff import write_geotiff
from gpgmap_ros.storage import atomic
from gpgmap_ros.storage.archive import write_archive
from gpgmap_ros.storage.atomic import (
    STAGED,
    atomic_folder,
    atomic_path,
    atomic_write,
    remove_abandoned,
    write_text,
)
from gpgmap_ros.storage.exchange import exchange
from gpgmap_ros.viz.rendering import png

WRITERS = {
    "text": lambda path: write_text(path, "new"),
    "archive": lambda path: write_archive(path, "map", {"k": 1}, {"a": np.zeros(3)}),
    "config": lambda path: save_config(Config(), path),
    "geotiff": lambda path: write_geotiff(path, np.zeros((2, 2), np.float32), (0.0, 0.0), 1.0),
    "picture": lambda path: png(np.zeros((2, 2, 3), np.uint8), path),
}


def write_staged(path: Path) -> None:
    with atomic_path(path) as beside:
        beside.write_text("new")


WRITERS["export"] = write_staged


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_writer_leaves_one_file_with_the_rights_of_any_other(tmp_path: Path, write: object) -> None:
    write(tmp_path / "file")  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "file").stat().st_size > 0


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_links_do_not_lead_out_of_the_folder(tmp_path: Path, write: object) -> None:
    """Neither by the final name nor by the staging names of earlier versions."""
    folder, victim = tmp_path / "maps", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    for name in ("file", ".file.new", "file.new"):
        (folder / name).symlink_to(victim)
    write(folder / "file")  # type: ignore[operator]
    assert victim.read_text() == "precious"
    assert not (folder / "file").is_symlink()


def test_a_staging_name_that_is_taken_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    names = iter([".file.taken.new", ".file.linked.new", ".file.free.new"])
    (tmp_path / ".file.taken.new").write_text("another's")
    (tmp_path / ".file.linked.new").symlink_to(victim)
    monkeypatch.setattr(atomic, "_staging_name", lambda name: next(names))
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert victim.read_text() == "precious"
    assert (tmp_path / ".file.taken.new").read_text() == "another's"


def test_many_writers_of_one_file_never_fail(tmp_path: Path) -> None:
    path, failures = tmp_path / "file", []

    def write(number: int) -> None:
        try:
            for _ in range(50):
                write_text(path, f"{number}" * 1000)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(set(path.read_text())) == 1
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_the_content_is_on_the_disk_before_the_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, order = tmp_path / "file", []
    fsync = os.fsync

    def watched(handle: int) -> None:
        order.append("folder" if Path(f"/proc/self/fd/{handle}").is_dir() else "content")
        order.append("named" if path.exists() else "unnamed")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    write_text(path, "new")
    assert order == ["content", "unnamed", "folder", "named"]


def test_what_a_killed_writer_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom gpgmap_ros.storage.atomic import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n    file.write(b'half')\n    file.flush()\n"
        "    print(1, flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    (left,) = tmp_path.iterdir()
    assert STAGED.fullmatch(left.name)
    assert remove_abandoned(tmp_path) == []
    child.kill()
    child.communicate()
    (tmp_path / ".notes.new").write_text("somebody's own")
    assert remove_abandoned(tmp_path) == [left]
    assert [item.name for item in tmp_path.iterdir()] == [".notes.new"]


def test_a_folder_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    bag = tmp_path / "bag"
    bag.mkdir()
    (bag / "old").write_text("old")

    def fail() -> None:
        with atomic_folder(bag) as folder:
            folder.mkdir()
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert [path.name for path in bag.iterdir()] == ["old"]
    with atomic_folder(bag) as folder:
        folder.mkdir()
        (folder / "new").write_text("new")
    assert [path.name for path in bag.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def write_folder(path: Path, text: str) -> None:
    with atomic_folder(path) as folder:
        folder.mkdir()
        (folder / text).write_text(text)


def test_a_folder_is_there_at_every_step_of_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a process that is killed at any of them leaves the old folder or the new one."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    if not exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system cannot exchange names")
    bag, seen = tmp_path / "bag", []

    def watch(name: str, module: object) -> None:
        step = getattr(module, name)

        def watched(*arguments: object, **options: object) -> object:
            seen.append([path.name for path in bag.iterdir()])
            return step(*arguments, **options)

        monkeypatch.setattr(module, name, watched)

    write_folder(bag, "old")
    watch("replace", os)
    watch("rmtree", shutil)
    write_folder(bag, "new")
    assert seen[-1] == ["new"]
    assert all(names in (["old"], ["new"]) for names in seen)


def test_a_folder_that_can_not_be_replaced_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "exchange", lambda one, other: False)
    bag, replace = tmp_path / "bag", os.replace

    def refuse(source: Path, target: Path) -> None:
        if target == bag and source.name == "bag":
            raise PermissionError("refused")
        replace(source, target)

    write_folder(bag, "old")
    write_folder(bag, "new")
    assert [path.name for path in bag.iterdir()] == ["new"]
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write_folder(bag, "newest")
    assert [path.name for path in bag.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def test_long_names_are_written_too(tmp_path: Path) -> None:
    name = "ü" * 120
    write_text(tmp_path / name, "new")
    assert [path.name for path in tmp_path.iterdir()] == [name]
