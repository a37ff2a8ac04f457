"""MCAP from front to back, without the index at its end: for recordings that were cut off or damaged on the way.

Format: https://mcap.dev/spec. A record is an opcode (1 byte), a length (8) and its content; messages are in chunks,
most often compressed, each with a checksum of its own. A chunk that fails it is left out and counted. Where not even
a record's length is right, the scan goes on with the next bytes that can only be the head of a chunk. Topics that were
named in a lost chunk are looked up in the summary at the end of the file, if that is there. A file whose messages are
not in chunks is read up to its first damaged length: a message has nothing in it to be known by.
"""

from __future__ import annotations

import re
import struct
import sys
from binascii import crc32
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lz4.frame import decompress as lz4_decompress

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, DATA_END = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0F
MAX_RECORD = 1 << 32
"""Bytes: a record that says it is longer is damaged."""
CHUNK_HEAD = re.compile(rb"(?=\x06.{36}(?:\x04\0\0\0zstd|\x03\0\0\0lz4|\0\0\0\0))", re.DOTALL)
"""Opcode, length, two times, size, checksum, and the name of a compression: what a chunk begins with."""
WINDOW = 1 << 24
"""Bytes that are searched at once for the head of a chunk."""
HEAD_BYTES = 64
"""More than the head of a chunk has."""


@dataclass(frozen=True)
class Channel:
    """topic, type as in `sensor_msgs/msg/PointCloud2`, and how its messages are written: cdr or ros1."""

    topic: str
    type_name: str
    encoding: str


@dataclass
class Scan:
    """What has been found so far.

    lost: chunks that could not be used; skipped: bytes that were no records; end: why the scan ended early, if it did
    """

    channels: dict[int, Channel] = field(default_factory=dict)
    schemas: dict[int, str] = field(default_factory=dict)
    lost: int = 0
    skipped: int = 0
    end: str = ""
    _summary_read: bool = field(default=False, repr=False)

    def messages(self, path: Path) -> Iterator[tuple[Channel, int, bytes]]:
        """(channel, time in nanoseconds, data) as far as the file can be read; ValueError if it is not an MCAP file."""
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(8) != MAGIC:
                raise ValueError("it is not an MCAP file")
            while True:
                at = file.tell()
                head = file.read(9)
                if len(head) < 9:
                    self.end = "" if not head else f"it ends within a record, at byte {at}"
                    self.end = self.end or f"it has no end mark: the recording was cut off at byte {at}"
                    return
                opcode, length = head[0], struct.unpack_from("<Q", head, 1)[0]
                if opcode == DATA_END:
                    return
                if length > MAX_RECORD or at + 9 + length > size or not HEADER <= opcode <= DATA_END:
                    chunk = _next_chunk(file, at + 1, size)
                    if chunk is None:
                        self.end = f"it ends within a record, at byte {at}"
                        return
                    self.skipped += chunk - at
                    self._read_summary(file, size)
                    file.seek(chunk)
                    continue
                lost = self.lost
                yield from self._record(opcode, length, file)
                if self.lost > lost:
                    self._read_summary(file, size)
                    file.seek(at + 9 + length)

    def _read_summary(self, file: BinaryIO, size: int) -> None:
        """Topics and types from the end of the file, once, in case they were named where it is damaged."""
        if self._summary_read:
            return
        self._summary_read = True
        file.seek(max(size - 37, 0))
        tail = file.read(37)
        if len(tail) < 37 or tail[29:] != MAGIC or tail[0] != FOOTER:
            return
        at = struct.unpack_from("<Q", tail, 9)[0]
        while 0 < at < size - 37:
            file.seek(at)
            head = file.read(9)
            opcode, length = head[0], struct.unpack_from("<Q", head, 1)[0]
            if length > size - at:
                return
            if opcode in (SCHEMA, CHANNEL):
                with suppress(ValueError, struct.error):
                    list(self._plain(opcode, file.read(length)))
            at += 9 + length

    def _record(self, opcode: int, length: int, file: BinaryIO) -> Iterator[tuple[Channel, int, bytes]]:
        if opcode not in (SCHEMA, CHANNEL, MESSAGE, CHUNK):
            file.seek(length, 1)
            return
        content = file.read(length)
        try:
            if opcode == CHUNK:
                yield from sorted(self._chunk(content), key=lambda item: item[1])
            else:
                yield from self._plain(opcode, content)
        except (
            ValueError,
            struct.error,
            RuntimeError,
            zstd.ZstdError,
            EOFError,
            LookupError,
            ArithmeticError,
            MemoryError,
        ):
            self.lost += 1

    def _chunk(self, content: bytes) -> list[tuple[Channel, int, bytes]]:
        size, crc = struct.unpack_from("<QI", content, 16)
        compression, at = _text(content, 28)
        raw = content[at + 8 :]
        if compression == "lz4":
            raw = lz4_decompress(raw)
        elif compression == "zstd":
            raw = zstd.decompress(raw)
        elif compression:
            raise ValueError(f"unknown compression '{compression}'")
        if len(raw) != size or (crc and crc32(raw) != crc):
            raise ValueError("a chunk does not match its checksum")
        found: list[tuple[Channel, int, bytes]] = []
        at = 0
        while at + 9 <= len(raw):
            opcode, length = raw[at], struct.unpack_from("<Q", raw, at + 1)[0]
            found.extend(self._plain(opcode, raw[at + 9 : at + 9 + length]))
            at += 9 + length
        return found

    def _plain(self, opcode: int, content: bytes) -> Iterator[tuple[Channel, int, bytes]]:
        if opcode == SCHEMA:
            name, _ = _text(content, 2)
            self.schemas[struct.unpack_from("<H", content)[0]] = _type_name(name)
        elif opcode == CHANNEL:
            number, schema = struct.unpack_from("<HH", content)
            topic, at = _text(content, 4)
            encoding, _ = _text(content, at)
            self.channels[number] = Channel(topic, self.schemas.get(schema, ""), encoding)
        elif opcode == MESSAGE:
            number, _, time = struct.unpack_from("<HIQ", content)
            if number in self.channels:
                yield self.channels[number], time, content[22:]


def _next_chunk(file: BinaryIO, at: int, size: int) -> int | None:
    """Where the next chunk begins, from byte `at` on; None where there is none.

    Its lengths must agree with each other and with the file: by chance that is as good as impossible.
    """
    while at < size:
        file.seek(at)
        window = file.read(WINDOW + HEAD_BYTES)
        for match in CHUNK_HEAD.finditer(window):
            head = window[match.start() : match.start() + HEAD_BYTES]
            with suppress(ValueError, struct.error):
                length, first, last, unpacked = struct.unpack_from("<QQQQ", head, 1)
                compression, end = _text(head[9:], 28)
                packed = struct.unpack_from("<Q", head, 9 + end)[0]
                fits = length == end + 8 + packed and at + match.start() + 9 + length <= size
                if fits and first <= last and (compression or packed == unpacked):
                    return at + match.start()
        at += WINDOW
    return None


def _text(content: bytes, at: int) -> tuple[str, int]:
    """A length-prefixed text, and where what follows it begins."""
    (length,) = struct.unpack_from("<I", content, at)
    return content[at + 4 : at + 4 + length].decode(), at + 4 + length


def _type_name(name: str) -> str:
    """`sensor_msgs/PointCloud2`, as ROS 1 has it, becomes `sensor_msgs/msg/PointCloud2`."""
    package, *middle, kind = name.split("/")
    return name if middle else f"{package}/msg/{kind}"
