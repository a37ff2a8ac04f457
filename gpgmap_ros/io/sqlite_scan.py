"""rosbag2's sqlite3 files that were cut off: row by row in the order of recording, as far as the file goes.

SQLite refuses a file that is shorter than its header says. Here it is shown a header with the number of pages that
there are; rows are then read by their number, without the index, until one lies in a page that is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from gpgmap_ros.io.mcap_scan import Channel

PAGES_AT = 28
"""Bytes 28 to 31 of a database hold its number of pages, big-endian; bytes 16 and 17 the size of one."""


class _File(apsw.VFSFile):
    def __init__(self, filename: Any, flags: Any, pages: int) -> None:
        super().__init__("", filename, flags)
        self._pages = pages

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        data = bytearray(super().xRead(amount, offset))
        if offset <= PAGES_AT and len(data) >= PAGES_AT + 4 - offset:
            data[PAGES_AT - offset : PAGES_AT + 4 - offset] = struct.pack(">I", self._pages)
        return bytes(data)


class _Shortened(apsw.VFS):
    """The file system as it is, but for the number of pages in the header."""

    def __init__(self, name: str, pages: int) -> None:
        super().__init__(name, "")
        self._pages = pages

    def xOpen(self, name: Any, flags: Any) -> Any:  # noqa: N802
        return _File(name, flags, self._pages)


@dataclass
class SqliteScan:
    """What has been found so far. lost: not known here; end: why the scan ended early, if it did."""

    channels: dict[int, Channel] = field(default_factory=dict)
    lost: int = 0
    end: str = ""

    def messages(self, path: Path) -> Iterator[tuple[Channel, int, bytes]]:
        """(channel, time in nanoseconds, data) as far as the file goes; ValueError if it is no database."""
        with path.open("rb") as file:
            head = file.read(100)
        if not head.startswith(b"SQLite format 3\0"):
            raise ValueError("it is not an sqlite3 database")
        if len(head) < 100:
            raise ValueError("it is not an sqlite3 database: its header is incomplete")
        (size,) = struct.unpack_from(">H", head, 16)
        if not size:
            raise ValueError("it is not an sqlite3 database: its header is damaged")
        pages = path.stat().st_size // (65536 if size == 1 else size)
        name = f"gpgmap-{id(self)}"
        vfs = _Shortened(name, pages)
        count = 0
        try:
            connection = apsw.Connection(
                f"file:{path.resolve()}?immutable=1",
                apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
                vfs=name,
            )
            for number, topic_name, kind in connection.execute("SELECT id, name, type FROM topics"):
                self.channels[number] = Channel(topic_name, kind, "cdr")
            for topic, time, data in connection.execute(
                "SELECT topic_id, timestamp, data FROM messages NOT INDEXED"
            ):
                if topic in self.channels:
                    count += 1
                    yield self.channels[topic], time, data
        except apsw.Error as error:
            self.end = f"it ends or is damaged after {count} messages ({error})"
        finally:
            vfs.unregister()
