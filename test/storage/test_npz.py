"""NPZ files: what is written is what NumPy reads, replaced atomically, also from arrays that write themselves."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
import pytest

from gpgmap_ros.storage.npz import array_sizes, open_array, read_arrays, write_arrays

ARRAYS = {"heights": np.arange(12.0).reshape(3, 4), "name": np.array("yard"), "count": np.array(7)}


class Stream:
    """An array that is never in memory as a whole."""

    def write_npy(self, out: IO[bytes]) -> None:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (2, 3)})
        for value in range(6):
            out.write(np.float32(value).tobytes())


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_written_is_what_numpy_reads(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {**ARRAYS, "stream": Stream()}, compressed)
    with np.load(path) as found:
        assert set(found) == {*ARRAYS, "stream"}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
        np.testing.assert_array_equal(found["stream"], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **ARRAYS)
    assert set(array_sizes(path)) == set(ARRAYS)
    np.testing.assert_array_equal(read_arrays(path, ["heights"])["heights"], ARRAYS["heights"])
    with open_array(path, "heights") as (file, size):
        np.testing.assert_array_equal(np.lib.format.read_array(file), ARRAYS["heights"])
        assert file.tell() == size


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, ARRAYS)
    before = path.read_bytes()

    class Broken:
        def write_npy(self, out: IO[bytes]) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_arrays(path, {"heights": ARRAYS["heights"], "broken": Broken()})
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["a.npz"]
