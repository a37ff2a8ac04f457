"""Segments of Fast DDS's shared memory, by the process that made them."""

from __future__ import annotations

from pathlib import Path

from gpgmap_ros.nodes.abandoned_memory import FOLDER

LOCK = "_el"
"""End of the name of the file that the maker of a segment keeps locked."""


def segments_of(pid: int) -> set[Path]:
    """Segments that a process has made and not removed; it may have mapped those of others as well."""
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    locked = {row[5].split(":")[2] for row in rows if row[1] == "FLOCK" and row[4] == str(pid)}
    found = set()
    for lock in FOLDER.glob(f"fastrtps_{'[0-9a-f]' * 16}{LOCK}"):
        try:
            if str(lock.stat().st_ino) in locked:
                found.add(lock.with_name(lock.name.removesuffix(LOCK)))
        except FileNotFoundError:  # of a process that has just ended
            continue
    return found
