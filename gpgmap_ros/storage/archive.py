"""The archive format of maps, submaps and sessions: an NPZ with a header and a checksum, written atomically.

The header says what the file is (kind), in which version of the format, and carries plain values as JSON. The checksum
(SHA-256) covers header and arrays. A file that fails any check is refused with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.storage.npz import write_arrays
from gpgmap_ros.storage.untrusted import array_sizes, check_declared, open_regular, read_array

VERSION = 1
HEADER, CHECKSUM = "header", "checksum"
SUFFIX = ".npz"
MAX_BYTES = 1 << 30
"""Bytes that an archive may declare: a submap has some megabytes, the graph of 5,000 submaps some tens."""
NPY_MAGIC = b"\x93NUMPY"


class ArchiveError(ValueError):
    """A file that cannot be used: which, and why."""


def write_archive(
    path: Path, kind: str, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Replace the file at `path` atomically.

    values: plain numbers, texts, lists; arrays: by name. OSError where the disk refuses.
    """
    text = json.dumps({"kind": kind, "version": VERSION, "values": dict(values)}, sort_keys=True)
    header = np.frombuffer(text.encode(), dtype=np.uint8)
    content = {HEADER: header, **{name: np.ascontiguousarray(array) for name, array in arrays.items()}}
    write_arrays(path, {**content, CHECKSUM: _checksum(content)})


def read_archive(
    path: Path, kind: str, max_bytes: int = MAX_BYTES
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The values and arrays of a file that `write_archive` made; ArchiveError where it is another, or damaged.

    max_bytes: that its content may declare; a file that declares more is refused before it is read
    """
    with _open(path, max_bytes) as file:
        values = _read_header(path, file, kind)
        content = {name: read_array(file, name) for name in array_sizes(file)}
        checksum = content.pop(CHECKSUM, None)
        if checksum is None or not np.array_equal(checksum, _checksum(content)):
            raise ArchiveError(f"{path}: damaged: its checksum does not match its content")
        del content[HEADER]
        return values, content


def read_values(path: Path, kind: str) -> dict[str, Any]:
    """Only the values, without reading the arrays: the checksum is not verified."""
    with _open(path, MAX_BYTES) as file:
        return _read_header(path, file, kind)


def archive_path(folder: Path, name: str) -> Path:
    """The file called `name` in `folder`; ArchiveError for a name that might mean a file elsewhere."""
    stem = name.removesuffix(SUFFIX)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", stem):
        raise ArchiveError(
            f"'{name}' is not a valid map name: use letters, digits, '_', '-' and '.', without folders"
        )
    return folder / f"{stem}{SUFFIX}"


@contextlib.contextmanager
def _open(path: Path, max_bytes: int) -> Iterator[zipfile.ZipFile]:
    """The file, with everything that reading a damaged one may raise turned into an ArchiveError."""
    try:
        with open_regular(path) as raw:
            if raw.read(len(NPY_MAGIC)) == NPY_MAGIC:
                raise ArchiveError(f"{path}: not a map file: it is a single array")
            with zipfile.ZipFile(raw) as file:
                check_declared(file, max_bytes)
                yield file
    except ArchiveError:
        raise
    except FileNotFoundError:
        raise ArchiveError(f"{path}: no such file") from None
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # no list of what parsers raise on foreign bytes is ever complete
        reason = f"{error}" or type(error).__name__
        raise ArchiveError(f"{path}: damaged, or not a map file: {shorten(reason)}") from error


def _read_header(path: Path, file: zipfile.ZipFile, kind: str) -> dict[str, Any]:
    if f"{HEADER}.npy" not in file.namelist():
        raise ArchiveError(f"{path}: not a map file: it has no header")
    header = json.loads(bytes(read_array(file, HEADER)))
    if not isinstance(header, dict) or not isinstance(header.get("values"), dict):
        raise ArchiveError(f"{path}: not a map file: its header is of another format")
    if header.get("version") != VERSION:
        raise ArchiveError(
            f"{path}: format version {shorten(header.get('version'))}; this program reads version {VERSION}"
        )
    if header.get("kind") != kind:
        raise ArchiveError(f"{path}: is a {shorten(header.get('kind'))}, not a {kind}")
    return dict(header["values"])


def shorten(value: object, max_length: int = 200) -> str:
    """A value of a file as text for a message: a foreign file may hold a megabyte there."""
    text = str(value)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _checksum(content: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name in sorted(content):
        array = content[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
