"""Point clouds in files, a piece at a time: LAS, LAZ, PLY, PCD, XYZ, NPZ. No file is ever in memory as a whole.

source = open_points(path)
for xyz in source.pieces():         # (N, 3) float64, N at most PIECE
    ...
source.sample(1_000_000)            # spread over the whole file
"""

from __future__ import annotations

import io
import re
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
GROUND = 2
"""The class of ground in LAS files."""
SUFFIXES = (".las", ".laz", ".ply", ".pcd", ".xyz", ".txt", ".csv", ".asc", ".npz", ".npy")


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


def open_points(path: Path, epsg: int = 0, classes: tuple[int, ...] | None = None) -> PointSource:
    """epsg: of the coordinates, where the file does not say; classes: of LAS points; None: ground where classified"""
    if not path.exists():
        raise PointFileError(f"{path}: there is no such file")
    suffix = path.suffix.lower()
    openers: dict[str, Callable[[Path], PointSource]] = {
        ".ply": _ply, ".pcd": _pcd, ".npz": _npz, ".npy": _npy,
        ".xyz": _text, ".txt": _text, ".csv": _text, ".asc": _text,
    }  # fmt: skip
    try:
        if suffix in (".las", ".laz"):
            source = _las(path, classes)
        elif suffix in openers:
            source = openers[suffix](path)
        else:
            raise PointFileError(f"{path}: not known as a point cloud: expected one of {', '.join(SUFFIXES)}")
    except PointFileError:
        raise
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise PointFileError(f"{path}: can't be read: {' '.join(str(error).split())}") from error
    if epsg:
        source.crs = Crs(epsg)
    return source


# -- LAS, LAZ --------------------------------------------------------------------------------------------


def _las(path: Path, classes: tuple[int, ...] | None) -> PointSource:
    try:
        import laspy
    except ImportError as error:
        raise PointFileError(f"{path}: LAS files need laspy: pip install laspy lazrs") from error
    try:
        with laspy.open(path) as reader:
            header = reader.header
            count = int(header.point_count)
            crs = _las_crs(header)
            wanted, note = classes, ""
            if classes is None and count:
                first = np.asarray(next(reader.chunk_iterator(min(PIECE, count))).classification)
                if (first == GROUND).any():
                    wanted, note = (GROUND,), "ground points (class 2) only"
    except laspy.errors.LaspyException as error:
        raise PointFileError(f"{path}: can't be read: {error}") from error

    def read(stride: int) -> Iterator[Array]:
        with laspy.open(path) as reader:
            size = PIECE if stride == 1 else PIECE // 16
            for start in range(0, count, size * stride):
                if stride > 1:
                    reader.seek(start)
                points = reader.read_points(min(size, count - start))
                if not len(points):
                    raise ValueError(f"it ends after {start:,} of {count:,} points")
                xyz = np.column_stack([points.x, points.y, points.z])
                if wanted is not None:
                    xyz = xyz[np.isin(np.asarray(points.classification), wanted)]
                yield xyz

    return PointSource(path, count, crs, read, note)


def _las_crs(header: Any) -> Crs:
    """GeoKeys as they are; of a WKT the EPSG code, where it ends with one."""
    keys: tuple[int, ...] = ()
    doubles: tuple[float, ...] = ()
    text = wkt = ""
    for vlr in (*header.vlrs, *(getattr(header, "evlrs", None) or ())):
        number, data = vlr.record_id, bytes(vlr.record_data_bytes())
        if vlr.user_id != "LASF_Projection":
            continue
        if number == 34735:
            keys = tuple(int(value) for value in np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2"))
        elif number == 34736:
            doubles = tuple(float(value) for value in np.frombuffer(data[: len(data) // 8 * 8], dtype="<f8"))
        elif number == 34737:
            text = data.rstrip(b"\0").decode("ascii", errors="replace")
        elif number == 2112:
            wkt = data.rstrip(b"\0").decode(errors="replace")
    if wkt:
        return Crs(epsg_of(wkt), wkt=wkt)
    if len(keys) >= 4:
        return Crs(epsg_of_keys(keys), keys=(keys[: 4 + 4 * keys[3]], doubles, text))
    return Crs()


def epsg_of(wkt: str) -> int:
    """The code of the horizontal part: of PROJCS (or PROJCRS) itself, not of its parts; 0 where it has none."""
    horizontal = re.search(r"PROJ(?:CS|CRS)\[", wkt)
    if not horizontal:
        return 0
    depth, at = 0, horizontal.end() - 1
    for end in range(at, len(wkt)):
        depth += {"[": 1, "]": -1}.get(wkt[end], 0)
        if depth == 0:
            break
    own = wkt[at : end + 1]
    codes = re.findall(r'(?:AUTHORITY|ID)\["EPSG",\s*"?(\d+)"?\]', own)
    ends_with_code = re.search(r'(?:AUTHORITY|ID)\["EPSG",\s*"?(\d+)"?\]\s*\]$', own)
    return int(ends_with_code[1]) if codes and ends_with_code else 0


def epsg_of_keys(keys: tuple[int, ...]) -> int:
    """ProjectedCRSGeoKey, 0 where there is none or it is user-defined."""
    for at in range(4, len(keys) - 3, 4):
        if keys[at] == 3072 and keys[at + 1] == 0 and 0 < keys[at + 3] < 32767:
            return keys[at + 3]
    return 0


# -- NPZ, NPY --------------------------------------------------------------------------------------------


def _npz(path: Path) -> PointSource:
    """`xyz` or `points` (N, 3), or `x`, `y`, `z`; `offset` (3,) is added; `epsg` or `crs` says what they refer to."""
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
    plain = _small_arrays(path, [name for name in ("offset", "epsg", "crs") if name in names])
    offset = np.asarray(plain.get("offset", np.zeros(3)), dtype=np.float64)
    if offset.shape != (3,):
        raise ValueError(f"its offset must be 3 numbers, it has shape {offset.shape}")
    crs = _npz_crs(plain)
    whole = next((name for name in ("xyz", "points") if name in names), None)
    if whole is None and not {"x", "y", "z"} <= names:
        raise ValueError(
            f"it has neither xyz, points, nor x, y, z, but {', '.join(sorted(names)) or 'nothing'}"
        )
    members = [whole] if whole else ["x", "y", "z"]
    count = _npy_shape(path, members[0])[0]

    def read(stride: int) -> Iterator[Array]:
        streams = [_npy_rows(path, member, stride) for member in members]
        for parts in zip(*streams, strict=True):
            yield np.add(parts[0][:, :3] if whole else np.column_stack(parts), offset, dtype=np.float64)

    return PointSource(path, count, crs, read)


def _npz_crs(plain: dict[str, Any]) -> Crs:
    if "epsg" in plain:
        return Crs(int(plain["epsg"]))
    text = str(plain.get("crs", ""))
    match = re.search(r"EPSG:?\s*(\d+)", text, re.IGNORECASE)
    return Crs(int(match[1])) if match else Crs(name=text)


def _small_arrays(path: Path, names: list[str]) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in names}


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"its array has the type {dtype}, expected numbers")
    if fortran and len(shape) > 1:
        raise ValueError("its array is in Fortran order: save it with np.ascontiguousarray")
    return shape, dtype


def _npy_shape(path: Path, member: str) -> tuple[int, ...]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as file:
        shape, _ = _npy_header(file)
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] < 3):
        raise ValueError(f"'{member}' has shape {shape}, expected (N, 3)")
    return shape


def _npy_rows(path: Path, member: str, stride: int) -> Iterator[NDArray[Any]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as file:
        yield from _rows(file, stride, *_npy_header(file))


def _npy(path: Path) -> PointSource:
    with path.open("rb") as file:
        shape, _ = _npy_header(file)
    if len(shape) != 2 or shape[1] < 3:
        raise ValueError(f"its array has shape {shape}, expected (N, 3)")

    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            for rows in _rows(file, stride, *_npy_header(file)):
                yield rows[:, :3].astype(np.float64)

    return PointSource(path, shape[0], Crs(), read)


def _rows(
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


# -- PLY, PCD: records of fixed size, or text ------------------------------------------------------------

PLY_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
    "float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "float32": "f4",
    "float64": "f8",
}  # fmt: skip


def _ply(path: Path) -> PointSource:
    with path.open("rb") as file:
        if file.readline().strip() != b"ply":
            raise ValueError("it does not begin with 'ply'")
        order, count, fields, element = "", 0, [], ""
        while (line := file.readline()).strip() != b"end_header":
            if not line:
                raise ValueError("its header has no end")
            words = line.decode("ascii", errors="replace").split()
            if words[:1] == ["format"]:
                order = {"ascii": "text", "binary_little_endian": "<", "binary_big_endian": ">"}[words[1]]
            elif words[:1] == ["element"]:
                if not element and words[1] != "vertex":
                    raise ValueError("its first element is not 'vertex'")
                element = words[1]
                count = int(words[2]) if element == "vertex" else count
            elif words[:1] == ["property"] and element == "vertex":
                if words[1] == "list":
                    raise ValueError("its vertices have lists")
                fields.append((words[2], words[1]))
        start = file.tell()
    names = [name for name, _ in fields]
    _require_xyz(names)
    if order == "text":
        return _text_records(path, count, names, start)
    dtype = np.dtype([(name, order + PLY_TYPES[kind]) for name, kind in fields])
    return _records(path, count, dtype, start)


def _pcd(path: Path) -> PointSource:
    header: dict[str, list[str]] = {}
    with path.open("rb") as file:
        while "DATA" not in header:
            line = file.readline()
            if not line:
                raise ValueError("its header has no DATA line")
            words = line.decode("ascii", errors="replace").split()
            if words and not words[0].startswith("#"):
                header[words[0].upper()] = words[1:]
        start = file.tell()
    names, sizes, kinds = header["FIELDS"], header["SIZE"], header["TYPE"]
    repeats = [int(value) for value in header.get("COUNT", ["1"] * len(names))]
    count = (
        int(header["POINTS"][0]) if "POINTS" in header else int(header["WIDTH"][0]) * int(header["HEIGHT"][0])
    )
    _require_xyz(names)
    letters = {"F": "f", "I": "i", "U": "u"}
    dtype = np.dtype(
        [
            (f"{name}{number}" if names.index(name) != number else name, f"<{letters[kind]}{size}", (repeat,))
            if repeat != 1
            else (f"{name}{number}" if names.index(name) != number else name, f"<{letters[kind]}{size}")
            for number, (name, size, kind, repeat) in enumerate(
                zip(names, sizes, kinds, repeats, strict=True)
            )
        ]
    )
    storage = header["DATA"][0].lower()
    if storage == "ascii":
        flat = [name for name, repeat in zip(names, repeats, strict=True) for _ in range(repeat)]
        return _text_records(path, count, flat, start)
    if storage == "binary_compressed":
        return _pcd_compressed(path, count, dtype, start)
    return _records(path, count, dtype, start)


def _require_xyz(names: list[str]) -> None:
    missing = [name for name in "xyz" if name not in names]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}; its fields are {', '.join(names)}")


def _records(path: Path, count: int, dtype: np.dtype[Any], start: int) -> PointSource:
    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            file.seek(start)
            for rows in _rows(file, stride, (count,), dtype):
                yield np.column_stack([rows["x"], rows["y"], rows["z"]]).astype(np.float64)

    return PointSource(path, count, Crs(), read)


def _pcd_compressed(path: Path, count: int, dtype: np.dtype[Any], start: int) -> PointSource:
    """PCL compresses a whole cloud at once, field after field: only here is one in memory as a whole."""

    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            file.seek(start)
            packed, size = np.frombuffer(file.read(8), dtype="<u4")
            data = _lzf(file.read(int(packed)), int(size))
        columns, at = {}, 0
        for name in dtype.names or ():
            kind = dtype[name]
            columns[name] = np.frombuffer(
                data, dtype=kind.base, count=count * int(np.prod(kind.shape, dtype=int)), offset=at
            )
            at += count * kind.itemsize
        xyz = np.column_stack([columns["x"], columns["y"], columns["z"]]).astype(np.float64)
        for first in range(0, count, PIECE):
            yield xyz[first : first + PIECE]

    return PointSource(path, count, Crs(), read)


def _lzf(data: bytes, size: int) -> bytes:
    """LibLZF: runs of literals (up to 32 bytes) and references back (length, distance)."""
    out = bytearray()
    at = 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[at]
            at += 1
        begin = len(out) - ((control & 0x1F) << 8) - data[at] - 1
        at += 1
        if begin < 0:
            raise ValueError("its compressed data are damaged")
        for k in range(length + 2):
            out.append(out[begin + k])
    if len(out) != size:
        raise ValueError("its compressed data are damaged")
    return bytes(out)


# -- text ------------------------------------------------------------------------------------------------


def _text(path: Path) -> PointSource:
    """x y z in the first three columns, or in those that a first line names; blanks, commas or semicolons between."""
    with path.open("rb") as file:
        first = b"#"
        while first.startswith((b"#", b"//")) or first == b"\n":
            start, first = file.tell(), file.readline()
        if not first:
            raise ValueError("there are no points in it")
    words = re.split(rb"[\s,;]+", first.strip())
    names = [word.decode(errors="replace").strip('"').lower() for word in words]
    try:
        [float(word) for word in words[:3]]
        names = ["x", "y", "z", *(f"column{k}" for k in range(3, len(words)))]
    except ValueError:
        start += len(first)
    if len(words) < 3:
        raise ValueError(f"its first line has {len(words)} columns, expected x y z")
    _require_xyz(names)
    return _text_records(path, None, names, start)


def _text_records(path: Path, count: int | None, names: list[str], start: int) -> PointSource:
    columns = [names.index(name) for name in "xyz"]

    def read(stride: int) -> Iterator[Array]:
        left = count
        with path.open("rb") as file:
            file.seek(start)
            while left is None or left > 0:
                lines = file.readlines(PIECE * 8 * len(names))
                if not lines:
                    break
                if left is not None:
                    lines, left = lines[:left], left - len(lines[:left])
                text = b"".join(lines).replace(b",", b" ").replace(b";", b" ")
                yield np.loadtxt(io.BytesIO(text), usecols=columns, ndmin=2, comments="#")

    return PointSource(path, count, Crs(), read)
