"""sqlite3 bags row by row: whole, and cut off in the middle of a page."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.io.sqlite_scan import SqliteScan

COUNT = 40
SIZE = 5000


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """A file as rosbag2 makes it, each message on pages of its own; the messages of topic 9 have no topic."""
    path = tmp_path / "drive.db3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT, type TEXT)")
        connection.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)"
        )
        connection.execute("INSERT INTO topics VALUES (1, '/points', 'sensor_msgs/msg/PointCloud2')")
        rows = [(1 if k != 3 else 9, 1000 + k, bytes([k]) * SIZE) for k in range(COUNT)]
        connection.executemany("INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def test_a_whole_file_gives_all_messages_of_known_topics(bag: Path) -> None:
    scan = SqliteScan()
    messages = list(scan.messages(bag))
    assert [time for _, time, _ in messages] == [1000 + k for k in range(COUNT) if k != 3]
    assert all(data == bytes([time - 1000]) * SIZE for _, time, data in messages)
    assert messages[0][0].topic == "/points"
    assert scan.end == ""


def test_a_file_that_was_cut_off_is_read_up_to_the_missing_page(bag: Path) -> None:
    content = bag.read_bytes()
    bag.write_bytes(content[: len(content) // 2])
    with pytest.raises(sqlite3.DatabaseError), sqlite3.connect(bag) as connection:
        connection.execute("SELECT count(data) FROM messages").fetchall()
    scan = SqliteScan()
    times = [time for _, time, _ in scan.messages(bag)]
    assert len(times) > COUNT // 3
    assert times == [1000 + k for k in range(COUNT) if k != 3][: len(times)]
    assert f"after {len(times)} messages" in scan.end


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#ROSBAG V2.0\n", "it is not an sqlite3 database"),
        (b"SQLite format 3\0", "its header is incomplete"),
        (b"SQLite format 3\0" + b"\0" * 84, "its header is damaged"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "drive.db3"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        list(SqliteScan().messages(path))
