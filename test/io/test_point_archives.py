"""NPZ point files whose archive is damaged: refused with a message, never read as other points."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io.points import open_points


def test_a_member_whose_declared_size_is_wrong_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "survey.npz"
    np.savez(path, xyz=np.arange(1200.0).reshape(400, 3).astype(np.float32))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 65535)  # size of the member, in the archive's list
    data[1500] ^= 0xFF  # which only the checksum at the member's end would notice
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="'xyz' declares 4,800 bytes and has"):
        list(open_points(path).pieces())


def test_an_entry_that_hides_the_next_one_is_refused(tmp_path: Path) -> None:
    """The coordinate system would be lost without a word: the comment of the entry before has its length."""
    path = tmp_path / "survey.npz"
    np.savez(path, xyz=np.arange(1200.0).reshape(400, 3), crs="EPSG:25832")
    assert open_points(path).crs.epsg == 25832
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    length = data.index(b"PK\x05\x06") - second
    data[first + 32 : first + 34] = struct.pack("<H", length)
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="lists 1 arrays and declares 2: it is damaged"):
        open_points(path)


def by_columns(points: np.ndarray) -> np.ndarray:
    """As `np.array([x, y, z]).T` is in memory, and np.save writes it."""
    return np.asfortranarray(points)


@pytest.mark.parametrize("columns", [3, 5])
@pytest.mark.parametrize("form", ["npz", "compressed", "npy"])
def test_arrays_by_columns_are_read(form: str, columns: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("gpgmap_ros.io.points.source.PIECE", 64)  # several pieces
    points = np.random.default_rng(0).normal(size=(1000, columns)).astype(np.float32)
    path = tmp_path / ("survey.npy" if form == "npy" else "survey.npz")
    if form == "npy":
        np.save(path, by_columns(points))
    else:
        (np.savez if form == "npz" else np.savez_compressed)(
            path, xyz=by_columns(points), offset=[5.0, 6.0, 7.0]
        )
    offset = 0.0 if form == "npy" else np.array([5.0, 6.0, 7.0])
    source = open_points(path)
    assert source.count == 1000
    np.testing.assert_array_equal(np.concatenate(list(source.pieces())), points[:, :3].astype(float) + offset)
    sample = source.sample(100)  # skips pieces
    assert 50 <= len(sample) <= 200
    whole = {tuple(row) for row in points[:, :3].astype(float) + offset}
    assert all(tuple(row) in whole for row in sample)


@pytest.mark.parametrize("columns", [3, 5])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.95])
def test_damage_in_an_array_by_columns_is_found(at: float, columns: int, tmp_path: Path) -> None:
    path = tmp_path / "survey.npz"
    points = np.random.default_rng(0).normal(size=(1000, columns))
    np.savez(path, xyz=by_columns(points))
    data = bytearray(path.read_bytes())
    start = data.index(by_columns(points).tobytes("F")[:64])
    data[start + int(at * points.nbytes)] ^= 0x01  # of a mantissa: only the checksum notices
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="CRC"):
        list(open_points(path).pieces())


def test_an_array_by_columns_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "survey.npy"
    np.save(path, by_columns(np.random.default_rng(0).normal(size=(1000, 3))))
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(ValueError, match="ends after 500 of 1,000 points: it was cut off"):
        list(open_points(path).pieces())


def test_an_array_of_three_rows_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "survey.npy"
    np.save(path, np.zeros((3, 1000)))
    with pytest.raises(ValueError, match="save its transpose"):
        open_points(path)
