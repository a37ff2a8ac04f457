"""rosbag2 files without ROS, by the rosbags library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import Reader, Writer
from rosbags.typesys import Stores, get_typestore

from gpgmap_ros.storage.atomic import atomic_folder

STORE = Stores.ROS2_JAZZY


class BagError(ValueError):
    """A bag that cannot be read or written: which, and why."""


@dataclass(frozen=True)
class RawMessage:
    """One recorded message, still serialised. time: when it was recorded, nanoseconds."""

    topic: str
    type_name: str
    time: int
    data: bytes


@dataclass(frozen=True)
class Stamped:
    """One message to record. time: nanoseconds."""

    topic: str
    time: int
    message: Any


def read_raw(path: Path) -> Iterator[RawMessage]:
    """All messages of a bag, in order of time."""
    if not path.exists():
        raise BagError(f"{path}: no such bag")
    with Reader(path) as reader:
        for connection, stamp, data in reader.messages():
            yield RawMessage(connection.topic, connection.msgtype, stamp, data)


def count_messages(path: Path, topic: str) -> int:
    with Reader(path) as reader:
        return sum(connection.msgcount for connection in reader.connections if connection.topic == topic)


def write_bag(path: Path, messages: Iterable[Stamped], store: Any = None) -> None:
    """Record messages in a new bag, written atomically.

    store: of the messages' types, where some are not ROS 2's own
    """
    store = store or get_typestore(STORE)
    if path.exists() and not (path / "metadata.yaml").is_file():
        raise BagError(f"{path}: is there already and no bag: name another, or move it away")
    with atomic_folder(path) as staged, Writer(staged, version=9) as writer:
        connections: dict[str, Any] = {}
        for item in messages:
            kind = item.message.__msgtype__
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, kind, typestore=store)
            writer.write(connections[item.topic], item.time, store.serialize_cdr(item.message, kind))
