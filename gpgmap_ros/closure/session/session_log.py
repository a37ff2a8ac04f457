"""What came since a session was written, appended record by record: a submap costs the same however many there are.

`closures.npz` holds a session (session_file.py), `closures.log` beside it what came after. Once the log would be larger
than the file, the session is written anew and the log begins anew, so that at most three times what is kept is ever
written. A record is

    4 bytes length, 4 bytes CRC-32 of the content, content: 4 bytes length of the JSON text, the text, the arrays

and is on the disk before `append` returns. Should the program be killed, the last record may be incomplete: it is
dropped when the log is read, and overwritten by the next one. A log whose records the file has already (killed between
writing the file and beginning the log anew) repeats what is known, which is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.session.session_check import check_session
from gpgmap_ros.closure.session.session_file import (
    SavedSession,
    decode_closures,
    decode_names,
    decode_nodes,
    encode_content,
)
from gpgmap_ros.closure.types import LoopClosure, Pair
from gpgmap_ros.storage.archive import MAX_BYTES, ArchiveError, shorten
from gpgmap_ros.storage.atomic import sync_folder
from gpgmap_ros.storage.untrusted import open_regular

MAGIC = b"gpgmap closures log 1\n"
BEGIN = struct.Struct("<Q")
"""After the magic: how many submaps the file had when the log began."""
RECORD = struct.Struct("<II")
TEXT = struct.Struct("<I")
KINDS = {"f": "<f8", "i": "<i8"}
MIN_MERGE_SIZE = 1 << 14
"""Bytes up to which a log is not merged."""


def log_path(path: Path) -> Path:
    """The log beside a session's file."""
    return path.with_suffix(".log")


@dataclass
class SessionLog:
    """The log beside the file at `path`.

    nodes, rejections: how many of the session are in the file and the log
    after: how many submaps were in the file when the log began
    end: bytes of the log that are whole, 0 where there is none
    """

    path: Path
    nodes: int
    rejections: int
    after: int
    end: int = 0

    @classmethod
    def begin(cls, path: Path, nodes: int, rejections: int) -> SessionLog:
        """After the file was written with everything: the old log goes."""
        with contextlib.suppress(FileNotFoundError):
            log_path(path).unlink()
        return cls(path, nodes, rejections, nodes)

    @classmethod
    def read(cls, path: Path, saved: SavedSession) -> tuple[SavedSession, SessionLog]:
        """The session with what the log adds to it. ArchiveError where the log is damaged before its last record, or is
        that of another file. Nothing is changed on the disk."""
        log = cls(path, len(saved.nodes), len(saved.rejected), len(saved.nodes))
        try:
            with open_regular(log_path(path)) as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return saved, log
        except OSError as error:
            raise ArchiveError(f"{log_path(path)}: cannot be read: {error.strerror or error}") from error
        if len(data) > MAX_BYTES:
            raise ArchiveError(f"{log_path(path)}: has more than {MAX_BYTES:,} bytes: no log of closures")
        start = len(MAGIC) + BEGIN.size
        if len(data) < start:
            if MAGIC.startswith(data[: len(MAGIC)]):
                return saved, log  # killed while it began
            raise ArchiveError(f"{log_path(path)}: no log of closures")
        if not data.startswith(MAGIC):
            raise ArchiveError(f"{log_path(path)}: no log of closures, or of another version")
        (log.after,) = BEGIN.unpack_from(data, len(MAGIC))
        if log.after > len(saved.nodes):
            raise ArchiveError(
                f"{log_path(path)}: it continues a file of {log.after} submaps, {path.name} has {len(saved.nodes)}"
            )
        try:
            return log._apply(saved, data, start), log
        except ArchiveError:
            raise
        except Exception as error:  # damaged content makes the readers raise anything
            raise ArchiveError(
                f"{log_path(path)}: its content makes no sense: {shorten(error) or type(error).__name__}"
            ) from error

    def _apply(self, saved: SavedSession, data: bytes, start: int) -> SavedSession:
        """The session with the records of the log from byte `start` on."""
        nodes, closures, rejected = list(saved.nodes), dict(saved.closures), list(saved.rejected)
        names = dict(saved.names)
        self.end = start
        for end, values, arrays in read_records(data, start):
            given_names = decode_names(values["stations"])
            for node in decode_nodes(values["stations"], arrays):
                if node.id not in names:
                    names[node.id] = given_names[node.id]
                    nodes.append(node)
            closures |= decode_closures(values["found"], arrays)
            given = [(int(a), int(b)) for a, b in values["rejected"]]
            rejected += [pair for pair in given if pair not in rejected]
            self.end = end
        check_session(nodes, closures, rejected, names)
        self.nodes, self.rejections = len(nodes), len(rejected)
        return replace(saved, nodes=nodes, closures=closures, rejected=rejected, names=names)

    def append(
        self, submaps: Sequence[tuple[SubmapNode, Mapping[Pair, LoopClosure]]], rejected: Sequence[Pair]
    ) -> bool:
        """Add submaps with what they were compared with, and rejections. False where the file is to be written anew
        instead: it is gone, or the log has become as large as it. OSError where the disk refuses."""
        new = [encode_record(*encode_content([node], closures), ()) for node, closures in submaps]
        if rejected:
            new.append(encode_record(*encode_content([], {}), rejected))
        if not new:
            return True
        head = b"" if self.end else MAGIC + BEGIN.pack(self.after)
        data = head + b"".join(new)
        try:
            size = self.path.stat().st_size
        except OSError:
            return False
        if self.end + len(data) > max(size, MIN_MERGE_SIZE):
            return False
        handle = os.open(log_path(self.path), os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            os.ftruncate(handle, self.end)  # what a killed program left unfinished
            os.lseek(handle, self.end, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, self.end)
            raise
        finally:
            os.close(handle)
        if not self.end:
            sync_folder(self.path.parent)  # the log's name as well
        self.end += len(data)
        self.nodes += len(submaps)
        self.rejections += len(rejected)
        return True


def encode_record(
    values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], rejected: Sequence[Pair]
) -> bytes:
    """One record."""
    shapes = {name: [array.dtype.kind, *array.shape] for name, array in arrays.items()}
    header = {**values, "rejected": [list(pair) for pair in rejected], "arrays": shapes}
    text = json.dumps(header).encode()
    parts = [array.astype(KINDS[array.dtype.kind]).tobytes() for array in arrays.values()]
    content = b"".join([TEXT.pack(len(text)), text, *parts])
    return RECORD.pack(len(content), zlib.crc32(content)) + content


def read_records(data: bytes, start: int) -> Iterator[tuple[int, dict[str, Any], dict[str, NDArray[Any]]]]:
    """Where each whole record ends, its values and arrays. An incomplete one at the end is left out; ArchiveError for
    a damaged one that others follow."""
    while len(data) - start >= RECORD.size:
        length, checksum = RECORD.unpack_from(data, start)
        content = data[start + RECORD.size : start + RECORD.size + length]
        end = start + RECORD.size + length
        if len(content) < length:
            return
        if zlib.crc32(content) != checksum:
            if end >= len(data):
                return  # its blocks did not all reach the disk
            raise ArchiveError("the log of closures is damaged: the checksum of a record does not match")
        (size,) = TEXT.unpack_from(content)
        header = json.loads(content[TEXT.size : TEXT.size + size])
        arrays, at = {}, TEXT.size + size
        for name, (kind, *shape) in header["arrays"].items():
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(content, KINDS[kind], count, at).reshape(shape).copy()
            at += 8 * count
        yield end, header, arrays
        start = end
