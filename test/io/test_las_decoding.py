"""LAS and LAZ are decoded in a process of its own: its death is an error message, and the next file works."""

from __future__ import annotations

import os
import resource
import signal
import struct
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io.points import NoPointsError, PointFileError, open_points
from gpgmap_ros.io.points.decoder import LasDecoder, decoder

laspy = pytest.importorskip("laspy")


def write_las(path: Path, count: int = 5000, point_format: int = 6) -> np.ndarray:
    rng = np.random.default_rng(0)
    xyz = rng.uniform(0.0, 50.0, (count, 3)).round(3)
    header = laspy.LasHeader(point_format=point_format, version="1.4" if point_format > 5 else "1.2")
    header.offsets, header.scales = [0.0, 0.0, 0.0], [0.001] * 3
    las = laspy.LasData(header)
    las.x, las.y, las.z = xyz.T
    las.classification = np.where(np.arange(count) % 5 == 0, 6, 5).astype(np.uint8)
    las.write(path)
    return xyz


@pytest.mark.parametrize("point_format", [1, 3, 6, 7])
@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_points_come_through_the_process(tmp_path: Path, suffix: str, point_format: int) -> None:
    xyz = write_las(tmp_path / f"a{suffix}", point_format=point_format)
    source = open_points(tmp_path / f"a{suffix}")
    assert np.concatenate(list(source.pieces())) == pytest.approx(xyz, abs=1e-9)
    assert len(source.sample(1000)) >= 900


def test_a_decoder_that_dies_is_an_error_and_the_next_file_works(tmp_path: Path) -> None:
    xyz = write_las(tmp_path / "a.laz", 600_000)
    source = open_points(tmp_path / "a.laz")
    pieces = source.pieces()
    next(pieces)
    assert decoder._process is not None
    os.kill(decoder._process.pid, signal.SIGABRT)
    with pytest.raises(PointFileError, match=r"a\.laz: cannot be read: its decoder was ended by SIGABRT"):
        list(pieces)
    assert sum(len(piece) for piece in source.pieces()) == len(xyz)


def test_a_decoder_that_is_stuck_is_ended(tmp_path: Path) -> None:
    """The limit on processor time is the system's: it holds inside native code, too."""
    write_las(tmp_path / "a.laz", 600_000)
    source = open_points(tmp_path / "a.laz")
    pieces = source.pieces()
    next(pieces)
    assert decoder._process is not None
    limit, _ = resource.prlimit(decoder._process.pid, resource.RLIMIT_CPU)
    assert 0 < limit < 300, "seconds in all, whatever the file says"
    os.kill(decoder._process.pid, signal.SIGXCPU)  # what the system sends then
    with pytest.raises(PointFileError, match="took far longer than its points can"):
        list(pieces)


def test_a_reader_that_stops_early_leaves_no_process_behind(tmp_path: Path) -> None:
    write_las(tmp_path / "a.laz", 600_000)
    own = LasDecoder()
    pieces = own.points(tmp_path / "a.laz", None)
    next(pieces)
    process = own._process
    assert process is not None
    pieces.close()
    assert process.poll() is not None


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_more_points_than_bytes_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    """A few kilobytes that say they hold 4 billion points were decoded for a minute."""
    path = tmp_path / f"a{suffix}"
    write_las(path, 300, point_format=1)
    data = bytearray(path.read_bytes())
    data[107:111] = struct.pack("<I", 4_000_000_000)
    path.write_bytes(data)
    with pytest.raises(
        PointFileError, match=r"its header says 4,000,000,000 points, but its [\d,]+ bytes can"
    ):
        open_points(path)


@pytest.mark.parametrize("left", [3, 100, 250, 0.5, 0.999], ids=lambda left: f"left={left}")
@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_a_truncated_file_says_so(tmp_path: Path, suffix: str, left: float) -> None:
    """left: bytes, or a share of them; the header has 227."""
    path = tmp_path / f"a{suffix}"
    write_las(path, 200_000)
    data = path.read_bytes()
    path.write_bytes(data[: left if left >= 1 else int(left * len(data))])
    with pytest.raises(PointFileError, match=r"copy it again$"):
        list(open_points(path).pieces())


def test_missing_classes_are_answered_with_those_there_are(tmp_path: Path) -> None:
    write_las(tmp_path / "a.laz")
    source = open_points(tmp_path / "a.laz", classes=(2, 9))
    reason = r"no points of class 2, 9; its classes are 5 \(4,000 points\), 6 \(1,000 points\)"
    for read in (lambda: source.sample(100), lambda: list(source.pieces())):
        with pytest.raises(NoPointsError, match=reason):
            read()
    assert sum(len(piece) for piece in open_points(tmp_path / "a.laz", classes=(6,)).pieces()) == 1000
