"""MCAP files without their index: whole, cut off and damaged, written here record by record."""

from __future__ import annotations

import struct
from binascii import crc32
from pathlib import Path

import pytest

pytest.importorskip("lz4", reason="lz4 is not installed: it comes with rosbags")

import lz4.frame

from gpgmap_ros.io.mcap_scan import CHANNEL, CHUNK, DATA_END, FOOTER, MAGIC, MESSAGE, SCHEMA, Scan


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def record(opcode: int, content: bytes) -> bytes:
    return struct.pack("<BQ", opcode, len(content)) + content


def schema(number: int, name: str) -> bytes:
    return record(SCHEMA, struct.pack("<H", number) + text(name) + text("ros2msg") + text(""))


def channel(number: int, schema_number: int, topic: str) -> bytes:
    return record(CHANNEL, struct.pack("<HH", number, schema_number) + text(topic) + text("cdr") + text(""))


def message(number: int, time: int, data: bytes) -> bytes:
    return record(MESSAGE, struct.pack("<HIQQ", number, 0, time, time) + data)


def chunk(records: bytes, compression: str = "") -> bytes:
    packed = lz4.frame.compress(records) if compression == "lz4" else records
    head = struct.pack("<QQQI", 0, 100, len(records), crc32(records))
    return record(CHUNK, head + text(compression) + struct.pack("<Q", len(packed)) + packed)


NAMES = schema(1, "sensor_msgs/PointCloud2") + channel(7, 1, "/points")
FIRST = chunk(NAMES + message(7, 20, b"late") + message(7, 10, b"early"))
SECOND = chunk(message(7, 30, b"next"), "lz4")
END = record(DATA_END, b"\0" * 4)


def read(path: Path, content: bytes) -> tuple[Scan, list[tuple[str, int, bytes]]]:
    path.write_bytes(content)
    scan = Scan()
    return scan, [(found.topic, time, data) for found, time, data in scan.messages(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "drive.mcap"


def test_messages_of_a_chunk_come_in_the_order_of_time(path: Path) -> None:
    scan, messages = read(path, MAGIC + FIRST + SECOND + END)
    assert messages == [("/points", 10, b"early"), ("/points", 20, b"late"), ("/points", 30, b"next")]
    assert (scan.lost, scan.skipped, scan.end) == (0, 0, "")


def test_type_names_of_ros1_become_those_of_ros2(path: Path) -> None:
    scan, _ = read(path, MAGIC + FIRST + END)
    assert scan.channels[7].type_name == "sensor_msgs/msg/PointCloud2"
    assert scan.channels[7].encoding == "cdr"


def test_a_file_that_was_cut_off_is_read_up_to_the_cut(path: Path) -> None:
    scan, messages = read(path, MAGIC + FIRST + SECOND[:-3])
    assert [data for _, _, data in messages] == [b"early", b"late"]
    assert scan.end == f"it ends within a record, at byte {len(MAGIC + FIRST)}"


def test_a_missing_end_mark_is_told(path: Path) -> None:
    scan, messages = read(path, MAGIC + FIRST)
    assert len(messages) == 2
    assert "cut off" in scan.end


def test_a_chunk_that_fails_its_checksum_is_left_out_and_counted(path: Path) -> None:
    damaged = FIRST.replace(b"early", b"eaRly")
    scan, messages = read(path, MAGIC + FIRST + damaged + SECOND + END)
    assert [data for _, _, data in messages] == [b"early", b"late", b"next"]
    assert scan.lost == 1


def test_after_a_damaged_length_the_scan_goes_on_with_the_next_chunk(path: Path) -> None:
    damaged = FIRST[:1] + b"\xff" * 8 + FIRST[9:]
    scan, messages = read(path, MAGIC + FIRST + damaged + SECOND + END)
    assert [data for _, _, data in messages] == [b"early", b"late", b"next"]
    assert scan.skipped == len(damaged)


def test_topics_named_in_a_lost_chunk_are_found_in_the_summary(path: Path) -> None:
    before = MAGIC + FIRST.replace(b"early", b"eaRly") + SECOND + END
    footer = record(FOOTER, struct.pack("<QQI", len(before), 0, 0))
    _, messages = read(path, before + NAMES + footer + MAGIC)
    assert messages == [("/points", 30, b"next")]


def test_another_file_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="not an MCAP file"):
        read(path, b"#ROSBAG V2.0\n")
