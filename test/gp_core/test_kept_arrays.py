"""Arrays on disk: found again by their key, and as if they were not there whenever anything is wrong with the file."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

from gp_core import kept_arrays
from gp_core.kept_arrays import keep_arrays, load_arrays

ARRAYS = {"a": np.arange(5000.0), "b": np.eye(3, dtype=np.float32)}


def npy_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    keep_arrays(tmp_path / "new", "one", ARRAYS)
    found = load_arrays(tmp_path / "new", "one")
    assert found is not None
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert load_arrays(tmp_path / "new", "another") is None


def test_a_file_of_another_key_is_not_taken(tmp_path: Path) -> None:
    keep_arrays(tmp_path, "one", ARRAYS)
    path = only_file(tmp_path)
    keep_arrays(tmp_path, "another", ARRAYS)
    (other,) = set(tmp_path.iterdir()) - {path}
    os.replace(other, path)
    assert load_arrays(tmp_path, "one") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-10],
        lambda content: b"no archive at all",
        lambda content: npy_file(),
        lambda content: bytes(len(content)),
        lambda content: content[:20_000] + bytes([content[20_000] ^ 1]) + content[20_001:],
    ],
)
def test_a_damaged_file_is_as_none_and_is_replaced(tmp_path: Path, damage) -> None:
    keep_arrays(tmp_path, "one", ARRAYS)
    path = only_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert load_arrays(tmp_path, "one") is None
    keep_arrays(tmp_path, "one", ARRAYS)
    assert load_arrays(tmp_path, "one") is not None


def test_no_flipped_bit_changes_what_is_read(tmp_path: Path) -> None:
    arrays = {"a": np.arange(20.0), "b": np.eye(2, dtype=np.float32)}
    keep_arrays(tmp_path, "one", arrays)
    path = only_file(tmp_path)
    intact = path.read_bytes()
    refused = 0
    for at in range(len(intact)):
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 1 << at % 8]) + intact[at + 1 :])
        found = load_arrays(tmp_path, "one")
        refused += found is None
        for name in arrays if found is not None else ():
            np.testing.assert_array_equal(found[name], arrays[name])
    assert refused > 0.5 * len(intact)  # the rest are dates and the like


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    keep_arrays(tmp_path, "one", ARRAYS)
    path = only_file(tmp_path)
    with open(path, "wb") as file:
        np.savez(file, label=np.frombuffer(b"one\na", dtype=np.uint8), a=np.array([object()]))
    assert load_arrays(tmp_path, "one") is None


def test_without_a_folder_to_write_to_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keep_arrays(tmp_path / "file", "one", ARRAYS)
    assert load_arrays(tmp_path / "file", "one") is None


def test_the_oldest_files_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_arrays, "MOST_BYTES", 100_000)
    names = ["one", "two", "three", "four"]
    for age, name in enumerate(names):
        before = set(tmp_path.iterdir())
        keep_arrays(tmp_path, name, ARRAYS)  # 40 kB
        (path,) = set(tmp_path.iterdir()) - before
        os.utime(path, (age, age))
    assert [load_arrays(tmp_path, name) is not None for name in names] == [False, False, True, True]
    assert len(list(tmp_path.iterdir())) == 2


def test_large_arrays_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_arrays, "LARGEST", 40_000)
    keep_arrays(tmp_path, "one", ARRAYS)
    assert not list(tmp_path.iterdir())


def test_the_digest_of_sources_changes_with_them(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, text in zip(folders, ("x = 1", "x = 1", "x = 2"), strict=True):
        folder.mkdir()
        (folder / "module.py").write_text(text)
    first, same, changed = (kept_arrays.describe_sources(folder) for folder in folders)
    assert first == same != changed
    (tmp_path / "empty").mkdir()
    assert kept_arrays.describe_sources(tmp_path / "empty") is None
