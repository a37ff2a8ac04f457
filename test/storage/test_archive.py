"""Files are whole or refused: every kind of damage has its reason."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.storage import archive
from gpgmap_ros.storage.archive import ArchiveError, archive_path, read_archive, read_values, write_archive

VALUES = {"stamp": 1_700_000_000_123_456_789, "frame": "odom", "list": [1.5, 2.0], "none": None}
ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "empty": np.zeros((0, 5), dtype=np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_archive(tmp_path / "m.npz", "map", VALUES, ARRAYS)
    return tmp_path / "m.npz"


def test_there_and_back(path: Path) -> None:
    values, arrays = read_archive(path, "map")
    assert values == VALUES
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert read_values(path, "map") == VALUES
    assert [file.name for file in path.parent.iterdir()] == ["m.npz"]


def test_another_kind_or_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveError, match=r"m.npz: is a map, not a submap"):
        read_archive(path, "submap")
    monkeypatch.setattr(archive, "VERSION", 2)
    with pytest.raises(ArchiveError, match="format version 1; this program reads version 2"):
        read_archive(path, "map")


def test_no_byte_can_be_changed_unnoticed(path: Path) -> None:
    """Every byte flipped in turn: the content comes out as it went in, or the file is refused. Never anything else."""
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            values, arrays = read_archive(path, "map")
        except ArchiveError:
            refused += 1
            continue
        assert values == VALUES
        np.testing.assert_array_equal(arrays["a"], ARRAYS["a"])
    assert refused > 50


def test_a_truncated_file_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 1, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError, match=r"m\.npz: "):
            read_archive(path, "map")


def test_a_file_repacked_with_other_numbers_is_refused(path: Path) -> None:
    with np.load(path) as file:
        content = dict(file)
    content["a"] = content["a"] + 1e-9
    np.savez(path, **content)
    with pytest.raises(ArchiveError, match="its checksum does not match"):
        read_archive(path, "map")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with pytest.raises(ArchiveError, match="no such file"):
        read_archive(path, "map")
    path.mkdir()
    with pytest.raises(ArchiveError, match="cannot be read"):
        read_archive(path, "map")
    path.rmdir()
    np.savez(path, a=np.zeros(3))
    with pytest.raises(ArchiveError, match="it has no header"):
        read_archive(path, "map")
    np.savez(path, header=np.frombuffer(b"[1, 2]", dtype=np.uint8))
    with pytest.raises(ArchiveError, match="its header is of another format"):
        read_archive(path, "map")
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ArchiveError, match="damaged, or not a map file"):
        read_archive(path, "map")
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ArchiveError, match="it is a single array"):
        read_archive(path, "map")
    with zipfile.ZipFile(path, "w") as archive_file:
        archive_file.writestr("header.npy", "rubbish")
    with pytest.raises(ArchiveError, match=r"other\.npz: "):
        read_archive(path, "map")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_archive(path, "map", {"stamp": 2}, ARRAYS)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["m.npz"]


WRITER = """
import sys, itertools, numpy as np
from pathlib import Path
from gpgmap_ros.storage.archive import write_archive
for k in itertools.count():
    write_archive(Path(sys.argv[1]), "map", {"k": k}, {"a": np.full(200_000, float(k))})
    print(k, flush=True)
"""


def test_kill_9_while_writing_leaves_a_whole_file(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "m.npz"
    for delay in (0.0, 0.003, 0.011):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=root, text=True
        )
        assert child.stdout is not None
        for _ in range(3):
            last = int(child.stdout.readline())
        time.sleep(delay)
        child.kill()
        child.wait()
        last = int(([str(last), *child.stdout.read().split()])[-1])
        child.stdout.close()
        values, arrays = read_archive(path, "map")
        assert values["k"] in (last, last + 1)
        assert (arrays["a"] == values["k"]).all()


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    assert archive_path(tmp_path, "yard-2.b") == tmp_path / "yard-2.b.npz"
    assert archive_path(tmp_path, "yard.npz") == tmp_path / "yard.npz"
    for name in (
        "",
        ".",
        "..",
        "../yard",
        "/etc/passwd",
        "a/b",
        ".hidden",
        "a\n",
        "a b",
        "-rf",
        "x" * 300,
        "ä",
    ):
        with pytest.raises(ArchiveError, match="is not a valid map name"):
            archive_path(tmp_path, name)
