"""Recordings of every kind, whole and damaged, message by message."""

from __future__ import annotations

import contextlib
import shutil
import struct
import sys
from pathlib import Path

import drives
import numpy as np
import pytest

from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.recordings import Decoder, Recording

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TOTAL = 2 * drives.CLOUDS + 1


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> drives.Bags:
    return drives.record(tmp_path_factory.mktemp("recordings"))


KINDS = ["sqlite", "mcap", "compressed", "ros1"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_messages_come_in_order(bags: drives.Bags, kind: str) -> None:
    with Recording([getattr(bags, kind)]) as recording:
        assert {name: topic.count for name, topic in recording.topics.items()} == {
            "/lidar/points": drives.CLOUDS, "/tf": drives.CLOUDS, "/tf_static": 1,
        }  # fmt: skip
        messages = list(recording.messages())
        assert recording.losses == []
    assert len(messages) == TOTAL
    times = [message.time for message in messages]
    assert times == sorted(times)
    decode = Decoder()
    cloud = decode(next(message for message in messages if message.topic == "/lidar/points"))
    assert cloud.width == len(bags.frames[0].points)
    transforms = decode(next(message for message in messages if message.topic == "/tf")).transforms
    assert transforms[0].child_frame_id == "base_link"


def test_topics_and_times_are_chosen(bags: drives.Bags) -> None:
    with Recording([bags.mcap]) as recording:
        start, stop = drives.START + 1_000_000_000, drives.START + 2_000_000_000
        messages = list(recording.messages(["/tf"], start, stop))
    assert {message.topic for message in messages} == {"/tf"}
    assert len(messages) == 4, "from the beginning up to before the end"


@pytest.mark.parametrize("kind", ["sqlite", "mcap", "ros1"])
@pytest.mark.parametrize("share", [0.3, 0.8, 0.999])
def test_a_recording_without_its_end(bags: drives.Bags, tmp_path: Path, kind: str, share: float) -> None:
    whole = getattr(bags, kind)
    bag = drives.cut(whole, tmp_path / f"cut{whole.suffix}", share)
    with Recording([bag]) as recording:
        messages = list(recording.messages())
        losses = recording.losses
    with Recording([whole]) as recording:
        expected = list(recording.messages())
    assert 0.5 * share * TOTAL < len(messages) <= TOTAL
    key = lambda item: (item.time, item.topic, bytes(item.data))  # noqa: E731
    assert {key(item) for item in messages} <= {key(item) for item in expected}, (
        "what is read is what was recorded"
    )
    assert losses
    assert len(losses) == len(set(losses))


def test_an_unclosed_recording_of_ros_1(bags: drives.Bags, tmp_path: Path) -> None:
    active = tmp_path / "drive.bag.active"
    shutil.copy(bags.ros1, active)
    with Recording([active]) as recording:
        assert len(list(recording.messages())) == TOTAL


@pytest.mark.parametrize("name", ["a.mcap", "a.db3", "a.bag"])
@pytest.mark.parametrize(
    "content", [b"", b"no bag at all " * 50, b"SQLite format 3\0" + bytes(50), b"\x89MCAP0\r\n\x01"]
)
def test_rubbish_is_refused_with_the_reason(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BagError, match=name), Recording([tmp_path / name]):
        pass


def test_many_damaged_bytes_never_break_it(bags: drives.Bags, tmp_path: Path) -> None:
    """Whatever is damaged: messages, or a BagError; nothing else."""
    rng = np.random.default_rng(0)
    for kind in ("sqlite", "mcap", "ros1"):
        whole = getattr(bags, kind)
        file = whole if whole.is_file() else next(p for p in whole.iterdir() if p.suffix in (".db3", ".mcap"))
        data = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        for number in range(12):
            broken = data.copy()
            where = rng.integers(0, len(data) if number % 2 else 4096, 20)
            broken[where] = rng.integers(0, 256, 20)
            bag = tmp_path / f"{kind}_{number}{file.suffix}"
            bag.write_bytes(broken.tobytes())
            with contextlib.suppress(BagError), Recording([bag]) as recording:
                decode = Decoder()
                for message in recording.messages():
                    with contextlib.suppress(BagError):
                        decode(message)


def zstd_of(path: Path, to: Path, share: float = 1.0) -> Path:
    data = zstd.compress(path.read_bytes())
    to.write_bytes(data[: round(share * len(data))])
    return to


@pytest.mark.parametrize("kind", ["sqlite", "mcap", "ros1"])
def test_a_file_compressed_as_a_whole(bags: drives.Bags, tmp_path: Path, kind: str) -> None:
    whole = getattr(bags, kind)
    file = whole if whole.is_file() else next(p for p in whole.iterdir() if p.suffix in (".db3", ".mcap"))
    packed = zstd_of(file, tmp_path / f"{file.name}.zstd")
    with Recording([packed]) as recording:
        assert len(list(recording.messages())) == TOTAL
        assert recording.losses == []
    assert list(tmp_path.iterdir()) == [packed], "what was unpacked is gone again"


def test_of_a_file_compressed_as_a_whole_and_cut_off_the_beginning_is_used(
    bags: drives.Bags, tmp_path: Path
) -> None:
    packed = zstd_of(bags.ros1, tmp_path / "drive.bag.zst", 0.6)
    with Recording([packed]) as recording:
        assert 5 < len(list(recording.messages())) < TOTAL
        losses = recording.losses
    assert "could be unpacked only in part" in losses[0]
    assert all(str(packed) in text for text in losses), "the user's file is named, not the unpacked one"
    (tmp_path / "rubbish.db3.zstd").write_bytes(b"no zstd at all")
    with pytest.raises(BagError, match=r"rubbish\.db3\.zstd"), Recording([tmp_path / "rubbish.db3.zstd"]):
        pass
    assert sorted(item.name for item in tmp_path.iterdir()) == ["drive.bag.zst", "rubbish.db3.zstd"]


def chunks_of(data: bytes) -> list[tuple[int, int]]:
    """(begin, end) of every chunk of an MCAP file, by its records."""
    found, at = [], 8
    while data[at] != 0x0F:
        (length,) = struct.unpack_from("<Q", data, at + 1)
        if data[at] == 0x06:
            found.append((at, at + 9 + length))
        at += 9 + length
    return found


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("indexed", [True, False])
def test_after_a_chunk_whose_head_is_damaged_the_next_one_is_used(
    bags: drives.Bags, tmp_path: Path, compressed: bool, number: int, indexed: bool
) -> None:
    messages = list(drives.drive_messages(bags.frames))
    mode = drives.CompressionMode.STORAGE if compressed else None
    drives.write_ros2(tmp_path / "bag", messages, drives.StoragePlugin.MCAP, mode)
    file = next((tmp_path / "bag").glob("*.mcap"))
    data = bytearray(file.read_bytes())
    chunks = chunks_of(data)
    assert len(chunks) > 3
    begin, end = chunks[number]
    data[begin : begin + 60] = b"\xff" * 60
    if not indexed:  # without the index at its end, but with the summary's topics
        data[-37:-8] = struct.pack(
            "<BQQQI", 0x02, 20, struct.unpack_from("<Q", data, len(data) - 28)[0], 0, 0
        )
    damaged = tmp_path / "damaged.mcap"
    damaged.write_bytes(data)
    with Recording([damaged]) as recording:
        read = list(recording.messages())
        losses = recording.losses
    share = (end - begin) / (chunks[-1][1] - chunks[0][0])
    assert len(read) >= (1.0 - share) * TOTAL - 3, losses
    assert len(read) < TOTAL
    assert {item.topic for item in read} >= {"/lidar/points", "/tf"}
    assert any("damaged" in text for text in losses), "the loss is stated"
