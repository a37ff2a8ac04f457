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
