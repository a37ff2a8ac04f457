"""A file of points, opened as far as its header, and what the readers of all formats share."""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs

PIECE = 1_000_000
"""Points at a time."""


MAX_COORDINATE = 1e9
"""Metres. A coordinate beyond it is none: no system has such, and cells could not be counted there."""
READING_ERRORS = (
    OSError, ValueError, LookupError, TypeError, EOFError, SyntaxError, RuntimeError, MemoryError, ArithmeticError,
    struct.error, tokenize.TokenError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""What libraries raise over a damaged file."""


class PointFileError(ValueError):
    """A file whose points can't be read: which, why, and what to do."""


class NoPointsError(PointFileError):
    """A file that is sound, but has no points, or none of the classes that are asked for."""


@dataclass
class PointSource:
    """One file, opened as far as its header.

    count: points in it, None where only reading tells; crs: what its coordinates refer to
    read: all pieces, or of every `stride` the first; note: for people, such as the class used
    left_out: points without usable coordinates in the pieces read last
    decoder_bytes: memory of the process that decodes the file, where there is one
    """

    path: Path
    count: int | None
    crs: Crs
    read: Callable[[int], Iterator[Array]] = field(repr=False)
    note: str = ""
    left_out: int = 0
    decoder_bytes: int = 0

    def pieces(self) -> Iterator[Array]:
        """All points, in order, (N, 3) in the file's coordinates; PointFileError where it turns out to be damaged."""
        yield from self._careful(1)

    def sample(self, max_points: int) -> Array:
        """About `max_points` points from all over the file. PointFileError where there is none."""
        stride = 1 if self.count is None else max(1, self.count // max(max_points, 1))
        sample = self._read_sample(max_points, stride)
        if not len(sample) and stride >= 4:  # the few points of a rare class may lie between the pieces
            sample = self._read_sample(max_points, 1)
        if not len(sample):
            raise NoPointsError(f"{self.path}: the file has no points")
        return sample

    def _read_sample(self, max_points: int, stride: int) -> Array:
        kept, total = [np.empty((0, 3))], 0
        for piece in self._careful(max(1, stride // 4)):
            part = piece[:: min(stride, 4)]
            kept.append(part)
            total += len(part)
            if (
                total > 2 * max_points
            ):  # more than expected, or of unknown length: keep every other one from here on
                kept, total = [np.concatenate(kept)[::2]], -(-total // 2)
        return np.concatenate(kept)

    def _careful(self, stride: int) -> Iterator[Array]:
        self.left_out = 0
        try:
            for piece in self.read(stride):
                # most pieces need no closer look; NaN makes both comparisons false
                if len(piece) and not (piece.min() >= -MAX_COORDINATE and piece.max() <= MAX_COORDINATE):
                    good = (np.abs(piece) <= MAX_COORDINATE).all(axis=1)
                    self.left_out += int(len(piece) - good.sum())
                    piece = piece[good]
                yield piece
        except PointFileError:
            raise
        except READING_ERRORS as error:
            raise unreadable(self.path, error) from error


def unreadable(path: Path, error: BaseException) -> PointFileError:
    """One line: which file, and what was wrong with it."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        said = f"it asks for more memory than there is ({said}): it is damaged, or too large for this machine"
    elif isinstance(
        error, LookupError | TypeError | SyntaxError | ArithmeticError | struct.error | tokenize.TokenError
    ):
        said = f"its header is damaged ({type(error).__name__}: {said})"
    elif isinstance(error, OSError) and error.strerror:
        said = error.strerror
    return PointFileError(f"{path}: cannot be read: {said}")


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
            raise ValueError(
                f"it ends after {at + len(data) // per_row:,} of {shape[0]:,} points: it was cut off; copy it again"
            )
        yield np.frombuffer(data, dtype=dtype).reshape(count, *shape[1:])
        skip = min((stride - 1) * size, shape[0] - at - count)
        if skip > 0:
            file.seek(skip * per_row, io.SEEK_CUR)
        at += count + max(skip, 0)
