"""A layer in a file while it is made: written window by window in any order, then read from front to back."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

READ_BYTES = 1 << 22


class ScratchLayer:
    """A float32 layer `[iy, ix]` whose cells are not in memory; use it in a `with` statement: the file goes with it.

    Every cell must be written once before the layer is read.
    """

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        self._path, self._shape = path, shape

    def __enter__(self) -> ScratchLayer:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w+b", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, rows: slice, columns: slice, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, dtype="<f4")
        for row, line in zip(range(rows.start, rows.stop), data, strict=True):
            at = 4 * (row * self._shape[1] + columns.start)
            written = os.pwrite(self._file.fileno(), line.data, at)
            if written < line.nbytes:  # a disk that is just full takes a part; the next write says so
                os.pwrite(self._file.fileno(), line.data.cast("B")[written:], at + written)

    def write_npy(self, out: IO[bytes]) -> None:
        """The layer as an .npy file, a part at a time."""
        np.lib.format.write_array_header_1_0(
            out, {"descr": "<f4", "fortran_order": False, "shape": self._shape}
        )
        self._file.seek(0)
        while data := self._file.read(READ_BYTES):
            out.write(data)
