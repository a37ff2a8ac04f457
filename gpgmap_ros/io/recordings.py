"""Recordings of any kind as one stream in order of time: rosbag2 (sqlite3, MCAP), ROS 1 bags, several at once.

rosbags reads what is whole. What is not (no metadata, no index, cut off, a damaged stretch) is read as far as it goes
by the scanners beside this file, and `Recording.losses` says what was lost. Compression by file, message or chunk is
undone on the way.
"""

from __future__ import annotations

import heapq
import sqlite3
import struct
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw
from rosbags.rosbag1 import Reader as Ros1Reader
from rosbags.rosbag1 import ReaderError as Ros1Error
from rosbags.rosbag2 import Reader as Ros2Reader
from rosbags.rosbag2 import ReaderError as Ros2Error
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.mcap_scan import Channel, Scan
from gpgmap_ros.io.ros1_scan import Ros1Scan
from gpgmap_ros.io.sqlite_scan import SqliteScan
from gpgmap_ros.io.unpacking import PACKED, Unpacked
from gpgmap_ros.sensing.livox import CLOUD, LIVOX_TYPES, PACKAGES, POINT, parse_livox

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

AnyScan = Scan | Ros1Scan | SqliteScan

FILES = (".db3", ".mcap", ".bag", ".active")
"""Endings of the files that hold messages; `.active` is what a ROS 1 recorder leaves when it is killed."""
SAME_LAYOUT = {"tf/msg/tfMessage": "tf2_msgs/msg/TFMessage"}
"""Types of old recordings that are written as another one is."""
DAMAGE = (
    Ros1Error, Ros2Error, SerdeError, apsw.Error, sqlite3.Error, zstd.ZstdError, struct.error, AssertionError,
    ValueError, LookupError, ArithmeticError, TypeError, RuntimeError, EOFError, MemoryError, OSError,
)  # fmt: skip
"""What a reader may raise over a damaged file."""


@dataclass(frozen=True)
class Message:
    """One recorded message, still serialised. time: when it was recorded, nanoseconds; encoding: cdr or ros1."""

    topic: str
    type_name: str
    time: int
    data: bytes
    encoding: str = "cdr"


@dataclass(frozen=True)
class Topic:
    """name, type, and the number of messages; None where only reading everything would tell."""

    name: str
    type_name: str
    count: int | None


@dataclass
class _Part:
    """One recording that was opened.

    read: messages of the given topics between two times; close: ends it
    start, end: nanoseconds, None where not known
    """

    path: Path
    topics: list[Topic]
    start: int | None
    end: int | None
    read: Callable[[Collection[str], int, int], Iterator[Message]]
    close: Callable[[], None] = lambda: None


@dataclass
class Recording:
    """Bags opened for reading; use it in a `with` statement.

    topics: by name; start, end: of all bags together, nanoseconds, None where only reading will tell
    """

    paths: list[Path]
    topics: dict[str, Topic] = field(init=False, default_factory=dict)
    start: int | None = field(init=False, default=None)
    end: int | None = field(init=False, default=None)
    _parts: list[_Part] = field(init=False, default_factory=list, repr=False)
    _missing: list[str] = field(init=False, default_factory=list, repr=False)
    _damage: dict[Path, list[str]] = field(init=False, default_factory=dict, repr=False)
    _unpacked_files: list[Unpacked] = field(init=False, default_factory=list, repr=False)

    @property
    def losses(self) -> list[str]:
        """Sentences about what could not be read; complete after `messages` has been read to its end."""
        found = [*self._missing, *(text for texts in self._damage.values() for text in texts)]
        for item in self._unpacked_files:
            found = [text.replace(str(item.file), str(item.path)) for text in found]
        return found

    def __enter__(self) -> Recording:
        try:
            for path in self.paths:
                self._parts.extend(self._open(Path(path)))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        starts = [part.start for part in self._parts if part.start is not None]
        ends = [part.end for part in self._parts]
        self.start = min(starts) if starts else None
        self.end = max((end for end in ends if end is not None), default=None) if None not in ends else None
        for topic in (topic for part in self._parts for topic in part.topics):
            before = self.topics.get(topic.name)
            if before is not None:
                unknown = before.count is None or topic.count is None
                count = None if unknown else before.count + topic.count  # type: ignore[operator]
                topic = Topic(topic.name, before.type_name, count)
            self.topics[topic.name] = topic
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in self._parts:
            with suppress(*DAMAGE):
                part.close()
        self._parts.clear()
        for unpacked in self._unpacked_files:
            unpacked.close()

    def of_type(self, *type_names: str) -> list[Topic]:
        """Topics of these types, as in `sensor_msgs/msg/PointCloud2`, by name."""
        return [topic for _, topic in sorted(self.topics.items()) if topic.type_name in type_names]

    def simultaneous(self, topic: str) -> tuple[Path, Path, float] | None:
        """Two of the bags that both have a topic, at the same time for the most seconds; None where no two do."""
        holding = [
            part
            for part in self._parts
            if part.start is not None and any(item.name == topic and item.count != 0 for item in part.topics)
        ]
        shared = [
            (a.path, b.path, (min(a.end, b.end) - max(a.start, b.start)) / 1e9)
            for a, b in combinations(holding, 2)
            if a.start is not None and b.start is not None and a.end is not None and b.end is not None
        ]
        longest = max(shared, key=lambda item: item[2], default=None)
        return longest if longest is not None and longest[2] > 0.0 else None

    def messages(
        self, topics: Collection[str] = (), start: int | None = None, stop: int | None = None
    ) -> Iterator[Message]:
        """Messages of these topics (of all, if none is named) in order of time, from `start` up to before `stop`."""
        wanted = set(topics) or set(self.topics)
        limits = (0 if start is None else start, 2**63 - 1 if stop is None else stop)
        streams = [self._careful(part, wanted, *limits) for part in self._parts]
        yield from heapq.merge(*streams, key=lambda message: message.time)

    # -- opening -----------------------------------------------------------------------------------------

    def _open(self, path: Path) -> Iterator[_Part]:
        if not path.exists():
            raise BagError(f"{path}: no such file or folder")
        if not path.is_dir():
            yield self._open_file(path)
            return
        if (path / "metadata.yaml").exists():
            try:
                yield _ros2_part(path)
                return
            except DAMAGE as error:
                self._missing.append(f"{path}: its metadata cannot be used ({_one_line(error)})")
        files = sorted(item for item in path.iterdir() if _ending(item) in FILES)
        if not files and (path / "metadata.yaml").exists():
            raise BagError(
                f"{path}: there is only metadata.yaml in it: copy the .mcap or .db3 files that belong to it"
            )
        if not files:
            raise BagError(
                f"{path}: not a bag: there is no metadata.yaml, .mcap, .db3 or .bag file in it; name the folder that"
                " `ros2 bag record` made"
            )
        if not (path / "metadata.yaml").exists():
            self._missing.append(f"{path}: has no metadata.yaml: the recorder was killed; read file by file")
        for file in files:
            yield self._open_file(file)

    def _open_file(self, path: Path) -> _Part:
        ending = _ending(path)
        if ending not in FILES:
            raise BagError(
                f"{path}: not a bag: expected a folder, or a file that ends in {', '.join(FILES[:3])}; point clouds in"
                " files are for `gpgmap map`"
            )
        if path.suffix in PACKED:
            unpacked = self._unpack(path)
            try:
                return self._open_file(unpacked)
            except BagError as error:
                raise BagError(str(error).replace(str(unpacked), str(path))) from error
        if path.stat().st_size == 0:
            raise BagError(
                f"{path}: is empty (0 bytes): the recording or the copy did not get that far; copy it again"
            )
        opener = _ros1_part if ending in (".bag", ".active") else _ros2_part
        try:
            return opener(path)
        except PermissionError:
            raise BagError(f"{path}: may not be read: check its permissions") from None
        except DAMAGE as error:
            self._missing.append(
                f"{path}: has no usable index ({_one_line(error)}): scanned from its beginning"
            )
            return self._scan(path)

    def _unpack(self, path: Path) -> Path:
        """A file that is compressed as a whole, as it is until this recording is closed."""
        unpacked = Unpacked(path)
        self._unpacked_files.append(unpacked)
        if unpacked.damage:
            self._missing.append(f"{path}: could be unpacked only in part ({unpacked.damage})")
        return unpacked.file

    def _scan(self, path: Path) -> _Part:
        """A file without index: one look through it says what is in it, as far as it goes."""
        counts: dict[Channel, int] = {}
        first, last = None, None
        try:
            scan = _scan_of(path)
            for channel, time, _ in scan.messages(path):
                counts[channel] = counts.get(channel, 0) + 1
                first, last = min(time, first or time), max(time, last or time)
        except DAMAGE as error:
            raise BagError(f"{path}: cannot be read: {_one_line(error)}") from error
        if not counts:
            raise BagError(f"{path}: no message in it can be read {scan.end}".rstrip())
        self._missing.extend(self._scan_notes(path, scan))
        topics = [Topic(channel.topic, channel.type_name, count) for channel, count in counts.items()]

        def read(wanted: Collection[str], start: int, stop: int) -> Iterator[Message]:
            return _scan_messages(path, wanted, start, stop)

        return _Part(path, topics, first, last, read)

    @staticmethod
    def _scan_notes(path: Path, scan: AnyScan) -> list[str]:
        notes = [f"{path}: {scan.lost} damaged chunks were left out"] if scan.lost else []
        if isinstance(scan, Scan) and scan.skipped:
            notes.append(
                f"{path}: {scan.skipped:,} damaged bytes were skipped; the chunks after them were used"
            )
        return [*notes, f"{path}: {scan.end}; what is before it was used"] if scan.end else notes

    # -- reading -----------------------------------------------------------------------------------------

    def _careful(self, part: _Part, wanted: set[str], start: int, stop: int) -> Iterator[Message]:
        """The messages of a part; a damaged one ends with a note instead of an error."""
        topics = {topic.name for topic in part.topics} & wanted
        if not topics:
            return
        count, time = 0, start
        try:
            for message in part.read(topics, start, stop):
                count, time = count + 1, message.time
                yield message
        except DAMAGE as error:
            expected = sum(topic.count or 0 for topic in part.topics if topic.name in topics)
            note = f"{part.path}: damaged after {count} of {expected} messages ({_one_line(error)})"
            files = _files_of(part.path)
            # of several readings the last one counts: the first ones only look at the beginning
            if files and all(_ending(file) == ".mcap" for file in files):
                notes = self._damage[part.path] = [f"{note}; the chunks that are whole were used"]
                for file in files:
                    scan = _scan_of(file)
                    yield from _scan_messages(file, topics, time + 1 if count else start, stop, scan)
                    notes.extend(self._scan_notes(file, scan))
            else:
                self._damage[part.path] = [f"{note}; what is before it was used"]


def _ros2_part(path: Path) -> _Part:
    reader = Ros2Reader(path)
    reader.open()
    connections = reader.connections
    counts: dict[str, int] = {}
    for item in connections:
        counts[item.topic] = counts.get(item.topic, 0) + item.msgcount
    types = {item.topic: item.msgtype for item in connections}

    def read(wanted: Collection[str], start: int, stop: int) -> Iterator[Message]:
        chosen = [item for item in connections if item.topic in wanted]
        for item, time, data in reader.messages(chosen, start, stop):
            yield Message(item.topic, item.msgtype, time, data)

    topics = [Topic(name, kind, counts[name]) for name, kind in types.items()]
    first, last = (reader.start_time, reader.end_time) if reader.message_count else (None, 0)
    return _Part(path, topics, first, last, read, reader.close)


def _ros1_part(path: Path) -> _Part:
    if path.suffix == ".active":
        raise Ros1Error("it was not closed")
    reader = Ros1Reader(path)
    reader.open()
    connections = reader.connections
    topics = {item.topic: Topic(item.topic, item.msgtype, 0) for item in connections}
    for item in connections:
        count = (topics[item.topic].count or 0) + item.msgcount
        topics[item.topic] = Topic(item.topic, item.msgtype, count)

    def read(wanted: Collection[str], start: int, stop: int) -> Iterator[Message]:
        chosen = [item for item in connections if item.topic in wanted]
        for item, time, data in reader.messages(chosen, start, stop):
            yield Message(item.topic, item.msgtype, time, data, "ros1")

    return _Part(path, list(topics.values()), reader.start_time, reader.end_time, read, reader.close)


def _scan_of(path: Path) -> AnyScan:
    scan: AnyScan = {".mcap": Scan, ".db3": SqliteScan}.get(_ending(path), Ros1Scan)()
    return scan


def _scan_messages(
    path: Path, wanted: Collection[str], start: int, stop: int, scan: AnyScan | None = None
) -> Iterator[Message]:
    for channel, time, data in (scan or _scan_of(path)).messages(path):
        if channel.topic in wanted and start <= time < stop:
            yield Message(channel.topic, channel.type_name, time, data, channel.encoding)


def _files_of(path: Path) -> list[Path]:
    return sorted(item for item in path.iterdir() if _ending(item) in FILES) if path.is_dir() else [path]


def _ending(path: Path) -> str:
    """The file's own ending, that of a compression left away."""
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def register_livox(store: Any) -> None:
    """Make the clouds of Livox sensors known to a store of types."""
    for package in PACKAGES:
        store.register(get_types_from_msg(POINT, f"{package}/msg/CustomPoint"))
        store.register(get_types_from_msg(CLOUD, f"{package}/msg/CustomMsg"))


@lru_cache(maxsize=1)
def ros1_types() -> Any:
    """The types of ROS 1, with the one of /tf, which rosbags leaves out."""
    store = get_typestore(Stores.ROS1_NOETIC)
    store.register(
        get_types_from_msg("geometry_msgs/TransformStamped[] transforms", "tf2_msgs/msg/TFMessage")
    )
    register_livox(store)
    return store


class Decoder:
    """Messages as objects with the fields of their ROS type."""

    def __init__(self) -> None:
        self._ros2 = get_typestore(Stores.ROS2_JAZZY)
        register_livox(self._ros2)

    def __call__(self, message: Message) -> Any:
        """BagError for a message that is damaged or of a type that is not known here."""
        kind = SAME_LAYOUT.get(message.type_name, message.type_name)
        try:
            if message.encoding == "ros1":
                return ros1_types().deserialize_ros1(message.data, kind)
            if kind in LIVOX_TYPES:
                return parse_livox(bytes(message.data))
            return self._ros2.deserialize_cdr(message.data, kind)
        except DAMAGE as error:
            raise BagError(f"{message.topic}: a message cannot be decoded: {_one_line(error)}") from error
