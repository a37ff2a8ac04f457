"""ROS 1 bags without their index: whole, cut off and damaged, written here record by record."""

from __future__ import annotations

import bz2
import struct
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.io.ros1_scan import CHUNK, CONNECTION, MAGIC, MESSAGE, Ros1Scan


def fields(**values: bytes) -> bytes:
    pairs = [name.encode() + b"=" + value for name, value in values.items()]
    return b"".join(struct.pack("<I", len(pair)) + pair for pair in pairs)


def record(header: bytes, data: bytes) -> bytes:
    return struct.pack("<I", len(header)) + header + struct.pack("<I", len(data)) + data


def connection(number: int, topic: bytes, kind: bytes) -> bytes:
    header = fields(op=bytes([CONNECTION]), conn=struct.pack("<I", number), topic=topic)
    return record(header, fields(topic=topic, type=kind))


def message(number: int, seconds: int, nanoseconds: int, data: bytes) -> bytes:
    time = struct.pack("<II", seconds, nanoseconds)
    return record(fields(op=bytes([MESSAGE]), conn=struct.pack("<I", number), time=time), data)


def chunk(records: bytes, compression: bytes = b"none") -> bytes:
    packed = bz2.compress(records) if compression == b"bz2" else records
    return record(fields(op=bytes([CHUNK]), compression=compression), packed)


CLOUDS = connection(3, b"/points", b"sensor_msgs/PointCloud2")
FIRST = chunk(CLOUDS + message(3, 2, 5, b"late") + message(3, 1, 0, b"early"))
SECOND = chunk(message(3, 3, 0, b"next"), b"bz2")


def read(path: Path, content: bytes) -> tuple[Ros1Scan, list[tuple[int, bytes]]]:
    path.write_bytes(content)
    scan = Ros1Scan()
    return scan, [(time, data) for _, time, data in scan.messages(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "drive.bag.active"


def test_messages_come_in_the_order_of_time_in_nanoseconds(path: Path) -> None:
    scan, messages = read(path, MAGIC + FIRST + SECOND)
    assert messages == [(1_000_000_000, b"early"), (2_000_000_005, b"late"), (3_000_000_000, b"next")]
    assert (scan.lost, scan.end) == (0, "")


def test_the_type_is_named_as_in_ros2(path: Path) -> None:
    scan, _ = read(path, MAGIC + FIRST)
    assert scan.channels[3].topic == "/points"
    assert scan.channels[3].type_name == "sensor_msgs/msg/PointCloud2"
    assert scan.channels[3].encoding == "ros1"


def test_a_bag_that_was_cut_off_is_read_up_to_the_cut(path: Path) -> None:
    scan, messages = read(path, MAGIC + FIRST + SECOND[:-1])
    assert [data for _, data in messages] == [b"early", b"late"]
    assert scan.end == f"it ends within a record, at byte {len(MAGIC + FIRST)}"


@pytest.mark.parametrize(
    "damaged",
    [chunk(b"no bz2 data at all").replace(b"none", b"bz2!"), chunk(message(3, 9, 0, b"x"), b"bz2")[:-9] + b"\0" * 9],
    ids=["unknown compression", "damaged data"],
)  # fmt: skip
def test_a_damaged_chunk_is_left_out_and_counted(path: Path, damaged: bytes) -> None:
    scan, messages = read(path, MAGIC + FIRST + damaged + SECOND)
    assert [data for _, data in messages] == [b"early", b"late", b"next"]
    assert scan.lost == 1


def test_messages_without_a_connection_are_left_out(path: Path) -> None:
    _, messages = read(path, MAGIC + SECOND)
    assert messages == []


def test_another_file_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="not a ROS 1 bag"):
        read(path, b"\x89MCAP0\r\n")
