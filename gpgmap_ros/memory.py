"""The C library's memory, set so that a node that runs for days stays as large as it is.

By itself glibc keeps freed arrays of up to 32 MB for the thread that had them, in as many heaps as there are threads:
a node with a dozen of them grows for an hour before that levels off, and the process of its loop closures takes 400 MB
instead of 260.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h
HEAPS = 2
KEPT, LARGE = 16 << 20, 1 << 20
"""Bytes: free memory at the end of a heap that is kept, and size from which an array is given back when it is freed."""


def keep_flat() -> bool:
    """Call it before threads start; False where the C library is another, which then does as it likes."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((M_ARENA_MAX, HEAPS), (M_TRIM_THRESHOLD, KEPT), (M_MMAP_THRESHOLD, LARGE))
    return all(mallopt(name, value) == 1 for name, value in settings)
