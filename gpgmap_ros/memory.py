"""The C library's memory, set so that a node that runs for days stays as large as it is.

By itself glibc keeps freed arrays of up to 32 MB for the thread that had them, in as many heaps as there are threads:
a node with a dozen of them grows for an hour before that levels off, and the process of its loop closures takes 400 MB
instead of 260.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h
MADV_DONTNEED = 4  # mman.h
HEAPS = 2
KEPT, LARGE = 16 << 20, 1 << 20
"""Bytes: free memory at the end of a heap that is kept, and size from which an array is given back when it is freed."""

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ [1-9]\d* +/.*\.so")
"""A line of /proc/self/smaps that begins a mapping of a library: first byte, end, and what may be done with it."""


def limit_malloc_arenas(large: int = LARGE, kept: int = KEPT) -> bool:
    """Call it before threads start; False where the C library is another, which then does as it likes.

    large, kept: see LARGE and KEPT; with more of both, less time goes into asking the system for memory again and again
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((M_ARENA_MAX, HEAPS), (M_TRIM_THRESHOLD, kept), (M_MMAP_THRESHOLD, large))
    return all(mallopt(name, value) == 1 for name, value in settings)


def give_back() -> None:
    """Return freed memory to the system, where the C library can: it keeps what lies between arrays in use."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def release_libraries() -> int:
    """Drop the pages of libraries that this process has read so far; returns the bytes.

    What is used again comes back from the system's cache of files, page by page. Most of what a start reads is not: of
    LLVM, which compiles and loads the inner loops, 105 MB are read and none are used while a map is made.
    """
    if not sys.platform.startswith("linux"):
        return 0
    released = 0
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, size, resident in _pages_of_libraries():
            if madvise(start, size, MADV_DONTNEED) == 0:
                released += resident
    return released


def _pages_of_libraries() -> Iterator[tuple[int, int, int]]:
    """First byte, size and resident bytes of what is mapped from files and is as it is in them."""
    start, size, resident, of_file = 0, 0, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := _MAPPING.match(line):
            start, end = int(found[1], 16), int(found[2], 16)
            # pages that can be written, or that relocation has written, would be lost
            size, of_file = end - start, found[3].startswith("r-") and found[3].endswith("p")
        elif line.startswith("Rss:"):
            resident = int(line.split()[1]) * 1024
        elif line.startswith("Anonymous:") and of_file and resident and int(line.split()[1]) == 0:
            yield start, size, resident


def resident_bytes() -> int:
    """What this process holds in memory now; 0 where the system does not say."""
    return int(_status("VmRSS"))


def largest_bytes() -> int:
    """What this process has held at most."""
    # of getrusage, Linux lets a child begin with its parent's
    return int(_status("VmHWM")) or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(name: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(lines[name].split()[0]) * 1024
