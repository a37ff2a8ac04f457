"""The file of a ClosureDatabase: a header with version, length and checksum, then an uncompressed archive of arrays."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from gpgmap_ros.closure.registration.map_check import check_fields, check_map
from gpgmap_ros.closure.registration.registration_map import FIELDS, RegistrationMap
from gpgmap_ros.closure.types import SubmapKey
from gpgmap_ros.storage.archive import shorten
from gpgmap_ros.storage.atomic import atomic_write
from gpgmap_ros.storage.untrusted import array_sizes, check_declared, open_regular, read_array

MAGIC: Final = b"GPGMAP-CLOSURE\n"
VERSION: Final = 3
"""1 had no ways: such maps count as made by anything. 2 had no drift_rates: their odometry counts as usual."""
HEADER: Final = struct.Struct("<IQ32s")  # version, length of the content, its SHA-256
ARRAYS = (*FIELDS, "origin", "centre", "way", "drift_rates")
LATER = ("way", "drift_rates")
"""Arrays that earlier versions did not have."""
NAMES = "names"
NUMBERS = ("resolution", "base", "radius", "area")


class DatabaseError(RuntimeError):
    """A database can't be read, written or merged: why, and what to do."""


def write_database(path: Path, maps: Mapping[SubmapKey, RegistrationMap]) -> None:
    """Write the maps atomically; keys become texts. DatabaseError where the disk refuses."""
    arrays: dict[str, Any] = {}
    for k, map_ in enumerate(maps.values()):
        arrays |= {f"{k}/{name}": getattr(map_, name) for name in ARRAYS}
        arrays[f"{k}/numbers"] = np.array([getattr(map_, name) for name in NUMBERS])
    arrays[NAMES] = np.frombuffer(json.dumps([str(key) for key in maps]).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getbuffer()
    header = HEADER.pack(VERSION, len(content), hashlib.sha256(content).digest())
    try:
        with atomic_write(path) as file:
            for part in (MAGIC, header, content):
                file.write(part)
    except OSError as error:
        raise DatabaseError(f"{path}: can't be written: {error.strerror}") from error


def read_database(path: Path) -> dict[str, RegistrationMap]:
    """The maps of a file by name; DatabaseError where it is damaged or of another version."""
    content = read_content(path)
    try:
        return decode_maps(content)
    except Exception as error:  # a content made by others can make the readers raise anything
        raise meaningless(path, error) from error


def meaningless(path: Path, error: Exception) -> DatabaseError:
    """For a file that is whole, with a content that cannot be."""
    reason = shorten(error) or type(error).__name__
    return DatabaseError(f"{path}: its content makes no sense: {reason}. Restore it from a copy")


def read_content(path: Path) -> bytes:
    """The content of a database file, after its checks."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise DatabaseError(f"{path}: can't be read: {error.strerror or error}") from error
    if not data.startswith(MAGIC):
        raise DatabaseError(f"{path}: not a database of submaps")
    start = len(MAGIC) + HEADER.size
    if len(data) < start:
        raise DatabaseError(f"{path}: damaged: it ends within its header. Restore it from a copy")
    version, length, digest = HEADER.unpack(data[len(MAGIC) : start])
    if not 1 <= version <= VERSION:
        raise DatabaseError(
            f"{path}: written in version {version} of the format, this program reads versions up to {VERSION}"
        )
    content = data[start:]
    if len(content) != length or hashlib.sha256(content).digest() != digest:
        raise DatabaseError(
            f"{path}: damaged: {len(content)} of {length} bytes, the checksum does not match. Restore it from a copy"
        )
    return bytes(content)


def decode_maps(content: bytes) -> dict[str, RegistrationMap]:
    """The maps of a database by name; any error where they are none."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # nothing in it is compressed
        check_declared(archive, len(content))
        sizes = array_sizes(archive)
        names = json.loads(read_array(archive, NAMES).tobytes())
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("its names are no list of texts")
        if len(set(names)) != len(names):
            raise ValueError("two of its submaps have the same name")
        there = [name for name in ARRAYS if name not in LATER or f"0/{name}" in sizes]
        if len(sizes) != 1 + len(names) * (len(there) + 1):
            raise ValueError(f"it has {len(sizes)} arrays for {len(names)} submaps")
        maps = {}
        for k, name in enumerate(names):
            try:
                maps[name] = decode_map(archive, k, there)
            except ValueError as error:
                raise ValueError(f"submap '{shorten(name)}': {error}") from error
    return maps


def decode_map(archive: zipfile.ZipFile, k: int, names: Sequence[str]) -> RegistrationMap:
    """Map number k with the arrays of these names; ValueError where its numbers cannot be those of a map."""
    values = read_array(archive, f"{k}/numbers")
    if values.shape != (len(NUMBERS),) or values.dtype != np.float64:
        raise ValueError(f"its numbers are {values.dtype} {values.shape}")
    arrays: dict[str, Any] = {key: read_array(archive, f"{k}/{key}") for key in names}
    check_fields(arrays)
    map_ = RegistrationMap(**arrays, **dict(zip(NUMBERS, values.tolist(), strict=True)))
    check_map(map_)
    return map_
