"""A layer on disk: windows in any order, and an .npy file that holds them all."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io.scratch import ScratchLayer


def test_windows_in_any_order_make_the_whole_layer(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).normal(size=(7, 11))
    out = BytesIO()
    with ScratchLayer(tmp_path / "folder" / "elevation", whole.shape) as layer:
        for rows in (slice(4, 7), slice(0, 4)):
            for columns in (slice(5, 11), slice(0, 5)):
                layer.write(rows, columns, whole[rows, columns])
        layer.write_npy(out)
    out.seek(0)
    read = np.load(out)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, whole.astype(np.float32))


def test_the_file_is_gone_afterwards_even_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "elevation"
    seen = []
    with suppress(RuntimeError), ScratchLayer(path, (2, 2)):
        seen.append(path.exists())
        raise RuntimeError("the disk is full")
    assert seen == [True]
    assert not path.exists()


def test_a_window_of_another_height_is_refused(tmp_path: Path) -> None:
    with ScratchLayer(tmp_path / "elevation", (4, 4)) as layer, pytest.raises(ValueError, match="zip"):
        layer.write(slice(0, 3), slice(0, 4), np.zeros((2, 4)))
