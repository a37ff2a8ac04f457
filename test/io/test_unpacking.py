"""Recordings compressed as a whole: unpacked beside them, as far as they go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.unpacking import Unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CONTENT = os.urandom(300_000)


def write(folder: Path, packed: bytes) -> Path:
    path = folder / "drive.mcap.zstd"
    path.write_bytes(packed)
    return path


def test_the_content_is_there_until_it_is_closed(tmp_path: Path) -> None:
    path = write(tmp_path, zstd.compress(CONTENT))
    unpacked = Unpacked(path)
    assert unpacked.file.name == "drive.mcap"
    assert unpacked.file.read_bytes() == CONTENT
    assert unpacked.damage == ""
    unpacked.close()
    assert list(tmp_path.iterdir()) == [path]


def test_frames_that_follow_each_other_are_one_content(tmp_path: Path) -> None:
    unpacked = Unpacked(write(tmp_path, zstd.compress(CONTENT) + zstd.compress(b"more")))
    assert unpacked.file.read_bytes() == CONTENT + b"more"
    unpacked.close()


def test_a_file_that_was_cut_off_is_unpacked_up_to_the_cut_and_says_so(tmp_path: Path) -> None:
    packed = zstd.compress(CONTENT)
    unpacked = Unpacked(write(tmp_path, packed[: len(packed) * 2 // 3]))
    found = unpacked.file.read_bytes()
    assert len(found) > len(CONTENT) // 4
    assert CONTENT.startswith(found)
    assert unpacked.damage == "its compressed data end early"
    unpacked.close()


def test_data_after_a_good_frame_that_are_not_zstd_are_told(tmp_path: Path) -> None:
    unpacked = Unpacked(write(tmp_path, zstd.compress(CONTENT) + b"no frame at all"))
    assert unpacked.file.read_bytes() == CONTENT
    assert unpacked.damage
    unpacked.close()


def test_a_missing_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BagError, match=r"drive\.mcap\.zstd"):
        Unpacked(tmp_path / "drive.mcap.zstd")
    assert not list(tmp_path.iterdir())
