"""ROS 1 bags from front to back, without the index: for recordings that were cut off (`.bag.active` too).

Format: http://wiki.ros.org/Bags/Format/2.0. A record is a header of `name=value` fields and its data, both with their
length before them; messages are in chunks, which may be compressed.
"""

from __future__ import annotations

import bz2
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lz4.frame import decompress as lz4_decompress

from gpgmap_ros.io.mcap_scan import Channel

MAGIC = b"#ROSBAG V2.0\n"
MESSAGE, CHUNK, CONNECTION = 0x02, 0x05, 0x07
DECOMPRESS = {b"none": bytes, b"bz2": bz2.decompress, b"lz4": lz4_decompress}


@dataclass
class Ros1Scan:
    """What has been found so far. lost: chunks that could not be used; end: why the scan ended early, if it did."""

    channels: dict[int, Channel] = field(default_factory=dict)
    lost: int = 0
    end: str = ""

    def messages(self, path: Path) -> Iterator[tuple[Channel, int, bytes]]:
        """(channel, time in nanoseconds, data) as far as the file can be read; ValueError if it is not a ROS 1 bag."""
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is not a ROS 1 bag")
            while True:
                at = file.tell()
                lengths = file.read(4)
                if not lengths:
                    return
                (header_length,) = struct.unpack("<I", lengths) if len(lengths) == 4 else (size,)
                header = file.read(header_length) if header_length <= size - at else b""
                tail = file.read(4)
                (length,) = struct.unpack("<I", tail) if len(tail) == 4 else (size,)
                if len(header) < header_length or file.tell() + length > size:
                    self.end = f"it ends within a record, at byte {at}"
                    return
                yield from self._record(_fields(header), file.read(length))

    def _record(self, fields: dict[str, bytes], data: bytes) -> Iterator[tuple[Channel, int, bytes]]:
        kind = fields.get("op", b"\0")[0]
        try:
            if kind == CHUNK:
                raw = DECOMPRESS[fields["compression"]](data)
                yield from sorted(self._chunk(raw), key=lambda item: item[1])
            elif kind in (MESSAGE, CONNECTION):
                yield from self._plain(kind, fields, data)
        except (
            LookupError,
            ValueError,
            OSError,
            struct.error,
            RuntimeError,
            EOFError,
            ArithmeticError,
            MemoryError,
        ):
            self.lost += 1

    def _chunk(self, raw: bytes) -> list[tuple[Channel, int, bytes]]:
        found: list[tuple[Channel, int, bytes]] = []
        at = 0
        while at + 8 <= len(raw):
            (header_length,) = struct.unpack_from("<I", raw, at)
            header = raw[at + 4 : at + 4 + header_length]
            at += 4 + header_length
            (length,) = struct.unpack_from("<I", raw, at)
            fields = _fields(header)
            found.extend(self._plain(fields["op"][0], fields, raw[at + 4 : at + 4 + length]))
            at += 4 + length
        return found

    def _plain(
        self, kind: int, fields: dict[str, bytes], data: bytes
    ) -> Iterator[tuple[Channel, int, bytes]]:
        if kind == CONNECTION:
            (number,) = struct.unpack("<I", fields["conn"])
            described = _fields(data)
            package, name = described["type"].decode().split("/")
            self.channels[number] = Channel(fields["topic"].decode(), f"{package}/msg/{name}", "ros1")
        elif kind == MESSAGE:
            (number,) = struct.unpack("<I", fields["conn"])
            seconds, nanoseconds = struct.unpack("<II", fields["time"])
            if number in self.channels:
                yield self.channels[number], seconds * 1_000_000_000 + nanoseconds, data


def _fields(header: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    while at + 4 <= len(header):
        (length,) = struct.unpack_from("<I", header, at)
        name, _, value = header[at + 4 : at + 4 + length].partition(b"=")
        found[name.decode(errors="replace")] = value
        at += 4 + length
    return found
