"""A file of points, opened as far as its header, and what the readers of all formats share."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.io.geotiff import Crs

Array = NDArray[np.float64]

PIECE = 1_000_000
"""Points at a time."""


class PointFileError(ValueError):
    """A file whose points can't be read: which, why, and what to do."""


@dataclass
class PointSource:
    """One file, opened as far as its header.

    count: points in it, None where only reading tells; crs: what its coordinates refer to
    read: pieces from point number `first` on, every `stride`-th piece; note: for people, such as the class used
    """

    path: Path
    count: int | None
    crs: Crs
    read: Callable[[int], Iterator[Array]] = field(repr=False)
    note: str = ""

    def pieces(self) -> Iterator[Array]:
        """All points, in order, (N, 3) in the file's coordinates; PointFileError where it turns out to be damaged."""
        yield from self._careful(1)

    def sample(self, most: int) -> Array:
        """About `most` points from all over the file. PointFileError where there is none."""
        stride = 1 if self.count is None else max(1, self.count // max(most, 1))
        kept, total = [], 0
        for piece in self._careful(max(1, stride // 4)):
            part = piece[:: min(stride, 4)] if stride > 1 else piece
            kept.append(part)
            total += len(part)
            if self.count is None and total > 2 * most:  # unknown length: keep every other one from here on
                kept, total = [np.concatenate(kept)[::2]], total // 2
        if not total:
            raise PointFileError(f"{self.path}: there are no points in it")
        return np.concatenate(kept)

    def _careful(self, stride: int) -> Iterator[Array]:
        try:
            for piece in self.read(stride):
                # one NaN or infinity makes the sum so: most pieces need no closer look
                yield piece if np.isfinite(piece.sum()) else piece[np.isfinite(piece).all(axis=1)]
        except PointFileError:
            raise
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            raise PointFileError(f"{self.path}: can't be read: {' '.join(str(error).split())}") from error


def require_xyz(names: list[str]) -> None:
    missing = [name for name in "xyz" if name not in names]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}; its fields are {', '.join(names)}")


def rows_of(
    file: IO[bytes], stride: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[NDArray[Any]]:
    """Rows of an array, a piece at a time; of every `stride` pieces the first."""
    per_row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    size = PIECE if stride == 1 else PIECE // 16
    at = 0
    while at < shape[0]:
        count = min(size, shape[0] - at)
        data = file.read(count * per_row)
        if len(data) < count * per_row:
            raise ValueError(f"it ends after {at + len(data) // per_row:,} of {shape[0]:,} points")
        yield np.frombuffer(data, dtype=dtype).reshape(count, *shape[1:])
        skip = min((stride - 1) * size, shape[0] - at - count)
        if skip > 0:
            file.seek(skip * per_row, io.SEEK_CUR)
        at += count + max(skip, 0)
