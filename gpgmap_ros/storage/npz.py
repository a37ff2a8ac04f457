"""NPZ files: written atomically, and read without trusting what they say of themselves.

Every NPZ of the project goes through here. An archive (archive.py) is one with a header and a checksum; the others are
plain arrays, which NumPy and foreign programs read and write as well.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.storage import untrusted
from gpgmap_ros.storage.atomic import atomic_write

LEVEL = 1
"""Of Deflate: higher ones take half as long again for one per cent of an array of floats."""


class ArrayStream(Protocol):
    """An array that is too large for the memory and writes itself as an .npy file."""

    def write_npy(self, out: IO[bytes]) -> None: ...


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any] | ArrayStream], compressed: bool = False
) -> None:
    """Replace the file at `path` atomically. OSError where the disk refuses."""
    with atomic_write(path) as file:
        write_arrays_to(file, arrays, compressed)


def write_arrays_to(
    file: IO[bytes], arrays: Mapping[str, NDArray[Any] | ArrayStream], compressed: bool = False
) -> None:
    """Write an NPZ. np.savez leaves the archive open where the disk refuses, which complains when it is collected."""
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind, compresslevel=LEVEL) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{untrusted.NPY_SUFFIX}", "w", force_zip64=True) as member:
                if isinstance(array, np.ndarray):
                    np.lib.format.write_array(member, array, allow_pickle=False)
                else:
                    array.write_npy(member)


def array_sizes(path: Path) -> dict[str, int]:
    """Names of the arrays, and the bytes each says it has; ValueError or BadZipFile where the file is damaged."""
    with zipfile.ZipFile(path) as archive:
        return untrusted.array_sizes(archive)


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Some arrays of a file; errors of many kinds where one is damaged, which callers turn into their own."""
    with zipfile.ZipFile(path) as archive:
        return {name: untrusted.read_array(archive, name) for name in names}


@contextlib.contextmanager
def open_array(path: Path, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """One array as a stream of .npy bytes, for arrays that are read piece by piece, and the size that it declares."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}{untrusted.NPY_SUFFIX}")
        with archive.open(info) as file:
            yield file, info.file_size
