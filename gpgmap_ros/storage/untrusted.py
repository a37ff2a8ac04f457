"""Files that may hold anything: opened without waiting, arrays read without trusting what they say of themselves.

Every reader of NPZ archives in this package is built on these functions. NumPy's own reader takes memory for the shape
that a header declares, and raises errors of a dozen kinds over a damaged one.
"""

from __future__ import annotations

import math
import os
import stat
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

NPY_SUFFIX = ".npy"
END_BYTES = 22
"""Of the record at the end of a ZIP archive, before its comment (APPNOTE.TXT, 4.3.16)."""
IN_ZIP64 = 0xFFFF
"""As a count: more than these sixteen bits hold, another record has it."""
NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class NotRegular(OSError):
    """Not a regular file: reading it might never end."""

    def __init__(self) -> None:
        super().__init__("it is not a regular file")


def open_regular(path: Path) -> IO[bytes]:
    """The file at `path`, for reading. NotRegular for a FIFO or a device, which would keep the reader waiting."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotRegular
    return file


def check_declared(archive: zipfile.ZipFile, max_bytes: int) -> None:
    """ValueError where the content of an archive declares more than `max_bytes`: it is not unpacked then."""
    declared = sum(info.file_size for info in archive.infolist())
    if declared > max_bytes:
        raise ValueError(f"declares {declared:,} bytes; at most {max_bytes:,} are expected here")


def array_sizes(archive: zipfile.ZipFile) -> dict[str, int]:
    """Names of the arrays in an NPZ, and the bytes that each declares; ValueError or BadZipFile where it is damaged.

    Every entry is compared with what is at its place: damage to the list must not make an array disappear unnoticed.
    """
    sizes: dict[str, int] = {}
    for info in archive.infolist():
        if not info.filename.endswith(NPY_SUFFIX):
            raise ValueError(
                f"it holds {info.filename!r}, expected arrays (.npy): it is damaged, or not an NPZ"
            )
        archive.open(info).close()
        name = info.filename.removesuffix(NPY_SUFFIX)
        if name in sizes:
            raise ValueError(f"it holds '{name}' twice: it is damaged")
        sizes[name] = info.file_size
    declared = _declared_entries(archive)
    if declared is not None and declared != len(sizes):
        raise ValueError(
            f"it lists {len(sizes)} arrays and declares {declared}: it is damaged; copy it again"
        )
    return sizes


def _declared_entries(archive: zipfile.ZipFile) -> int | None:
    """Entries that the end of the archive counts, which zipfile does not compare; None where another record has them.

    An entry whose declared comment is as long as the next entry hides that.
    """
    assert archive.fp is not None
    archive.fp.seek(-(END_BYTES + len(archive.comment)), os.SEEK_END)
    count = int.from_bytes(archive.fp.read(END_BYTES)[10:12], "little")
    return None if count == IN_ZIP64 else count


def read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array whose shape declares exactly the bytes that are there: memory is taken for no more than that.

    Errors of many kinds where it is damaged: callers name the file and turn them into their own.
    """
    info = archive.getinfo(name + NPY_SUFFIX)
    with archive.open(info) as member:
        version = npy.read_magic(member)
        if version not in NPY_HEADERS:
            raise ValueError(f"{name} is in version {version} of the array format")
        shape, fortran, dtype = NPY_HEADERS[version](member)
        if dtype.hasobject:
            raise ValueError(f"{name} holds objects, not numbers")
        size, there = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
        if size != there or min(shape, default=0) < 0:
            raise ValueError(f"damaged: {name} declares {size:,} bytes and has {there:,}")
        data = bytearray(size)
        if member.readinto(data) != size or member.read(1):  # type: ignore[attr-defined]
            raise EOFError(f"{name} ends too early")
        return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
