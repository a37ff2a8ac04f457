"""Fields of many maps in a temporary file, so that memory does not grow with the drive.

A map of 200 x 200 cells has a megabyte of fields, and a query reads few of them. They are views of a mapped file: what
was read can be dropped from memory afterwards (`release`), and comes back, bit for bit, when it is next read.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import BinaryIO

import numpy as np

from gpgmap_ros.closure.registration.registration_map import FIELDS, RegistrationMap

FIRST_SEGMENT, LARGEST_SEGMENT = 4 << 20, 64 << 20
"""Bytes by which the file grows: doubled from segment to segment."""


class FieldFile:
    """The file is made with the first map, in the folder for temporary files, and ends with the process.

    Where the disk refuses, or the system cannot map files, maps stay in memory.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._segments: list[mmap.mmap] = []
        self._used = self._size = 0
        self._refused = not hasattr(mmap.mmap, "madvise") or not hasattr(os, "posix_fallocate")

    def take(self, map_: RegistrationMap) -> RegistrationMap:
        """Move the fields of a map to the file; returns the map."""
        count = map_.fields.nbytes
        if self._refused or not self._make_room(count):
            return map_
        start = self._used
        fields = np.frombuffer(
            self._segments[-1], dtype=np.float32, count=map_.fields.size, offset=start
        ).reshape(map_.fields.shape)
        fields[...] = map_.fields
        self._used = start + -(-count // mmap.PAGESIZE) * mmap.PAGESIZE
        # as the map itself does when it is made: it is frozen for all others
        object.__setattr__(map_, "fields", fields)
        for name, values in zip(FIELDS, fields, strict=True):
            object.__setattr__(map_, name, values)
        return map_

    def release(self) -> None:
        """Drop from memory what was read or written."""
        for segment in self._segments:
            segment.madvise(mmap.MADV_DONTNEED)

    def _make_room(self, count: int) -> bool:
        """Room for so many bytes in the last segment; whether there is."""
        if self._segments and self._used + count <= len(self._segments[-1]):
            return True
        last = len(self._segments[-1]) if self._segments else FIRST_SEGMENT // 2
        size = max(min(2 * last, LARGEST_SEGMENT), -(-count // mmap.PAGESIZE) * mmap.PAGESIZE)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="gpgmap_fields_")  # noqa: SIM115
            # with blocks of its own: writing to a mapped hole of a full disk would end the process
            os.posix_fallocate(self._file.fileno(), self._size, size)
            self._segments.append(mmap.mmap(self._file.fileno(), size, offset=self._size))
        except OSError:
            self._refused = True
            return False
        self._used, self._size = 0, self._size + size
        return True
