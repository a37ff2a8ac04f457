"""Submaps that robots send each other: what travels is the archive of a submap, as it is on a disk.

An archive has the map, its statistics, the robot's track in it, its pose by odometry and the drive that it is of: all
that a pose graph needs. It comes from outside, and is read by the same checked reader as a file: a damaged or hostile
one is refused with the reason, and nothing of it is kept.
"""

from __future__ import annotations

import math
import tempfile
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import ArchiveError, SubmapStore
from gpgmap_ros.mapping.submap_store import read_submap, write_submap
from gpgmap_ros.mapping.submaps import Submap, submap_mapping

MAX_BYTES = 64 << 20
"""Of an archive that another robot sends: one of 60 m in cells of 0.3 m has two megabytes."""
OFFSETS = 999_983
"""Nanoseconds among which drives of other robots are told from ours: clocks of two robots may agree exactly."""


class SharedSubmapError(ValueError):
    """What another robot sent cannot be used: why."""


def encode_submap(submap: Submap) -> bytes:
    """The archive of a submap."""
    with tempfile.TemporaryDirectory(prefix="gpgmap_share_") as folder:
        path = Path(folder) / "submap.npz"
        write_submap(path, submap)
        return path.read_bytes()


def decode_submap(data: bytes, config: Config) -> Submap:
    """The submap of an archive that another robot sent. SharedSubmapError where it is none, or does not fit ours."""
    if len(data) > MAX_BYTES:
        raise SharedSubmapError(f"it has {len(data):,} bytes, {MAX_BYTES:,} are allowed")
    with tempfile.TemporaryDirectory(prefix="gpgmap_share_") as folder:
        path = Path(folder) / "submap.npz"
        path.write_bytes(data)
        try:
            submap = read_submap(path, config, MAX_BYTES)
        except ArchiveError as error:
            raise SharedSubmapError(str(error).removeprefix(f"{path}: ")) from error
    theirs, ours = submap.gpgmap.grid.resolution, submap_mapping(config).resolution
    if not math.isclose(theirs, ours, rel_tol=1e-3):
        raise SharedSubmapError(
            f"its cells are {theirs:g} m wide and ours {ours:g} m: give both robots the same submap.resolution"
        )
    if not len(submap.track.stamps) or submap.points is None:
        raise SharedSubmapError("it has no track or no statistics: an earlier version made it")
    return submap


def session_here(source: str, session: int) -> int:
    """What the drive of another robot is called here: the same in every run, and no drive of ours."""
    return session + 1 + zlib.crc32(source.encode()) % OFFSETS


@dataclass(frozen=True)
class Received:
    """A submap of another robot that was taken in. id: its number here; not_written: why it is not on the disk"""

    id: int
    session: int
    submap: Submap
    not_written: str


class SharedSubmaps:
    """Takes in what other robots send, each submap once, in the order of its drive.

    adopt: numbers, stores and compares a submap (`Slam.add_shared`)
    store: what is here already, from earlier runs as well
    """

    def __init__(
        self,
        config: Config,
        adopt: Callable[[Submap, int], tuple[Submap, str]],
        store: SubmapStore | None,
    ) -> None:
        self._config, self._adopt = config, adopt
        self._last: dict[int, int] = {}  # stamp of the newest submap of each drive
        self._lock = threading.Lock()
        for info in store.infos() if store is not None else ():
            self._last[info.session] = max(self._last.get(info.session, 0), info.first_stamp)

    def receive(self, source: str, data: bytes) -> Received | None:
        """Take in an archive; None where it is here already. SharedSubmapError with the reason where it is refused."""
        submap = decode_submap(data, self._config)
        session = session_here(source, submap.session)
        with self._lock:
            # a robot sends all of its submaps again when somebody new listens
            if submap.first_stamp <= self._last.get(session, -1):
                return None
            adopted, not_written = self._adopt(submap, session)
            self._last[session] = submap.first_stamp
        return Received(adopted.id, session, adopted, not_written)
