"""A file of points, opened as far as its header, and what the readers of all formats share."""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs

PIECE = 1_000_000
"""Points at a time."""


MOST_PLACES, LEAST_EACH = 512, 500
"""Of a sample: places all over a file, and points at each."""
SPARED, LEAST_SAMPLE = 20, 100_000
"""Of a file that is decoded one point in so many is enough, but no fewer than the other number."""
Bounds = tuple[float, float, float, float, float, float]
"""Smallest x, y, z, then largest."""
Box = tuple[float, float, float, float]
"""Smallest x and y, then largest."""
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


@dataclass(frozen=True)
class Window:
    """Which points of files are asked for, False where all are.

    bounds: those in a box, borders included; spacing: of files with levels of detail (COPC), those down to the level
        with this distance between points, metres
    """

    bounds: Box | None = None
    spacing: float | None = None

    def __bool__(self) -> bool:
        return self.bounds is not None or self.spacing is not None


@dataclass(frozen=True, eq=False)
class LevelSample:
    """Points of a file with levels of detail, in pieces (N, 3).

    coarse: of the coarse levels, spread as all points are; share: of all points that these are
    dense: most of the other points of a few places
    """

    share: float
    coarse: list[Array]
    dense: list[Array]


def clipped(source: PointSource, box: Box) -> PointSource:
    """The source with the points in a box only; how many, only reading tells."""
    low, high = np.array(box[:2]), np.array(box[2:])

    def inside(pieces: Iterator[Array]) -> Iterator[Array]:
        for piece in pieces:
            keep = ((piece[:, :2] >= low) & (piece[:, :2] <= high)).all(axis=1)
            yield piece if keep.all() else piece[keep]

    def levels_inside(found: LevelSample) -> LevelSample:
        return replace(found, coarse=list(inside(iter(found.coarse))), dense=list(inside(iter(found.dense))))

    read, read_group, read_levels = source.read, source.read_group, source.read_levels
    return replace(
        source,
        count=None,
        read=lambda stride: inside(read(stride)),
        read_range=None,
        read_places=None,
        read_group=None if read_group is None else lambda group: inside(read_group(group)),
        read_levels=None if read_levels is None else lambda points: levels_inside(read_levels(points)),
    )


@dataclass
class PointSource:
    """One file, opened as far as its header.

    count: points in it, None where only reading tells; crs: what its coordinates refer to
    read: all pieces, or of every `stride` the first; note: for people, such as the class used
    left_out: points without usable coordinates in the pieces read last
    decoder_bytes: memory of the process that decodes the file, where there is one
    read_range: the pieces of a range of points (first, count), where the format allows it
    read_places: so many points each at so many places all over the file, where decoding is worth sparing
    bounds: what the header says of the extent, None where it does not
    groups: parts by place that it consists of, where the format has such; read_group: the pieces of one of them
    read_levels: about so many points by levels of detail, where the format has such and a window was asked for
    seen: points that there are, as far as the last sample tells
    """

    path: Path
    count: int | None
    crs: Crs
    read: Callable[[int], Iterator[Array]] = field(repr=False)
    note: str = ""
    left_out: int = 0
    decoder_bytes: int = 0
    read_range: Callable[[int, int], Iterator[Array]] | None = field(default=None, repr=False)
    read_places: Callable[[int, int], Iterator[Array]] | None = field(default=None, repr=False)
    bounds: Bounds | None = None
    groups: int = 0
    read_group: Callable[[int], Iterator[Array]] | None = field(default=None, repr=False)
    read_levels: Callable[[int], LevelSample] | None = field(default=None, repr=False)
    seen: int = 0

    def pieces(self, first: int = 0, count: int | None = None, group: int | None = None) -> Iterator[Array]:
        """All points, in order, (N, 3) in the file's coordinates; PointFileError where it turns out to be damaged.

        first, count: a range of the points, where the source has `read_range`; group: one of its `groups`
        """
        if group is not None and self.read_group is not None:
            yield from self._careful(self.read_group(group))
        elif count is None:
            yield from self._careful(self.read(1))
        elif self.read_range is None:
            raise ValueError(f"{self.path}: can only be read from its beginning to its end")
        else:
            yield from self._careful(self.read_range(first, count))

    def sample(self, max_points: int) -> Array:
        """About `max_points` points from all over the file. PointFileError where there is none."""
        stride = 1 if self.count is None else max(1, self.count // max(max_points, 1))
        sample = self._read_sample(max_points, stride)
        if not len(sample) and stride >= 4:  # the few points of a rare class may lie between the pieces
            sample = self._read_sample(max_points, 1)
        return self._require(sample)

    def sample_places(self, max_points: int) -> tuple[Array, Array]:
        """As `sample`, for less decoding where the format allows it: successive points at places all over the file.

        Also one point (P, 3) from each place: the sample is denser than the file, these are not.
        """
        if self.read_levels is not None:
            return self._sample_levels(self.read_levels, max_points)
        if self.read_places is None or self.count is None or self.count <= max_points:
            sample = self.sample(max_points)
            return sample, sample
        max_points = min(max_points, max(self.count // SPARED, LEAST_SAMPLE))
        each = max(max_points // MOST_PLACES, LEAST_EACH)
        places = [
            place for place in self._careful(self.read_places(max(max_points // each, 1), each)) if len(place)
        ]
        if not places:  # a rare class
            sample = self.sample(max_points)
            return sample, sample
        return self._require(np.concatenate(places)), np.stack([place[0] for place in places])

    def _sample_levels(
        self, read_levels: Callable[[int], LevelSample], max_points: int
    ) -> tuple[Array, Array]:
        """As `sample_places`; the places are the points of the coarse levels."""
        try:
            found = read_levels(max_points)
        except READING_ERRORS as error:
            raise unreadable(self.path, error) from error
        spread = np.concatenate([np.empty((0, 3)), *self._careful(iter(found.coarse))])
        if not len(spread):  # a rare class, or a box between the points of these levels
            sample = self.sample(max_points)
            return sample, sample
        self.seen = round(len(spread) / found.share)
        dense = list(self._careful(iter(found.dense)))
        return (np.concatenate([spread, *dense]) if dense else spread), spread

    def _require(self, sample: Array) -> Array:
        if not len(sample):
            raise NoPointsError(f"{self.path}: the file has no points")
        return sample

    def _read_sample(self, max_points: int, stride: int) -> Array:
        kept, total, every, self.seen = [np.empty((0, 3))], 0, min(stride, 4), 0
        for piece in self._careful(self.read(max(1, stride // 4))):
            self.seen += len(piece)
            kept.append(piece[::every])
            total += len(kept[-1])
            if total > 2 * max_points:  # more than expected, or of unknown length: of those to come as few
                kept, total, every = [np.concatenate(kept)[::2]], -(-total // 2), 2 * every
        return np.concatenate(kept)

    def _careful(self, pieces: Iterator[Array]) -> Iterator[Array]:
        self.left_out = 0
        try:
            for piece in pieces:
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
