"""Shared memory that Fast DDS participants left behind because their process was killed."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")
_SEGMENT = re.compile(r"fastrtps_[0-9a-f]{16}")
_LOCK = "_el"
_SETTLED = 2.0  # seconds: a younger segment may not be locked yet


def abandoned_segments(folder: Path = FOLDER) -> Iterator[Path]:
    """Segments of this user whose owner is gone: each has a lock file, locked while its process lives."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # no such folder: no shared memory of this kind
        return
    for segment in entries:
        if _SEGMENT.fullmatch(segment.name) and _is_abandoned(segment):
            yield segment


def _is_abandoned(segment: Path) -> bool:
    try:
        status = segment.stat()
        if status.st_uid != os.geteuid() or time.time() - status.st_ctime < _SETTLED:
            return False
        lock = os.open(_lock_of(segment), os.O_RDONLY)
    except OSError:  # ended by itself meanwhile, or is not complete
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def remove_abandoned_segments(folder: Path = FOLDER) -> int:
    """Give the memory back; returns how many bytes it was.

    Fast DDS does not: with fastdds_large_messages.xml each killed process would cost 35 MB until the next boot.
    """
    freed = 0
    for segment in abandoned_segments(folder):
        try:
            size = segment.stat().st_size
            segment.unlink()
        except OSError:  # another node that starts was faster
            continue
        _lock_of(segment).unlink(missing_ok=True)
        freed += size
    return freed


def _lock_of(segment: Path) -> Path:
    return segment.with_name(segment.name + _LOCK)
