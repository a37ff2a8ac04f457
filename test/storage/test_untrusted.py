"""Archives that others made: what is damaged or declares too much is refused, before memory is taken for it."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.storage.untrusted import NotRegular, array_sizes, check_declared, open_regular, read_array


def archive_of(**members: bytes) -> zipfile.ZipFile:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return zipfile.ZipFile(file)


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


ARRAYS = {
    "doubles": np.arange(12.0).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "empty": np.zeros((0, 4, 4)),
    "text": np.array("EPSG:25832"),
    "number": np.array(7),
}


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **ARRAYS)
    with zipfile.ZipFile(path) as archive:
        assert set(array_sizes(archive)) == set(ARRAYS)
        for name, array in ARRAYS.items():
            read = read_array(archive, name)
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
            "declares 8,000,000,000,000 bytes",
        ),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2), }", bytes(16)),
            "declares 16 bytes",
        ),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", bytes(15)),
            "declares 16 bytes and has 15",
        ),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)), "holds objects"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "version"),
        (b"rubbish", "magic"),
    ],
)
def test_an_array_that_is_none_is_refused(content: bytes, message: str) -> None:
    with archive_of(a=content) as archive, pytest.raises(ValueError, match=message):
        read_array(archive, "a")


def test_what_declares_too_much_is_refused_unread() -> None:
    with archive_of(a=bytes(1 << 20)) as archive:
        check_declared(archive, 1 << 20)
        with pytest.raises(ValueError, match=r"declares 1,048,576 bytes; at most 1,000 are expected"):
            check_declared(archive, 1000)


def test_a_list_of_arrays_that_lies_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with zipfile.ZipFile(file) as archive, pytest.raises(ValueError, match="expected arrays"):
        array_sizes(archive)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", "hello")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", "hello")
    with zipfile.ZipFile(file) as archive, pytest.raises(ValueError, match="'a' twice"):
        array_sizes(archive)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(NotRegular, match="not a regular file"):
            open_regular(Path(name))
    (tmp_path / "file").write_bytes(b"abc")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"abc"
