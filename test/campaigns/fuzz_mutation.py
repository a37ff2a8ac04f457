"""Damage for files: bytes, numbers in text, members of archives, values in headers, with checksums made right again."""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gpgmap_ros.closure.session.session_log import BEGIN, RECORD, TEXT
from gpgmap_ros.closure.session.session_log import MAGIC as LOG_MAGIC
from gpgmap_ros.storage.archive import CHECKSUM, HEADER

INTEGERS = (0, 1, -1, 127, 255, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
NUMBERS = (
    b"0",
    b"-1",
    b"1e300",
    b"-1e300",
    b"nan",
    b"Infinity",
    b"1" * 40,
    b"99999999999",
    b"4294967296",
    b"",
    b"x",
)
VALUES = (
    None,
    True,
    0,
    -1,
    1e300,
    float("nan"),
    float("inf"),
    10**40,
    "",
    "x" * 3000,
    [],
    {},
    [[]],
    [0.0] * 40,
)
FLOATS = (np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 0.0, 1e-320)
MEMBER_LIMIT = 1 << 24
"""Bytes of a member of an archive that is taken apart."""

UNREADABLE = (
    ValueError, TypeError, LookupError, EOFError, OSError, SyntaxError, MemoryError, ArithmeticError,
    tokenize.TokenError,
)  # fmt: skip
"""What NumPy raises over an array that is damaged already."""

Random = np.random.Generator


def damaged(data: bytes, rng: Random) -> bytes:
    """The bytes after one to four changes."""
    for _ in range(int(rng.integers(1, 5))):
        data = BYTE_CHANGES[int(rng.integers(len(BYTE_CHANGES)))](data, rng)
    return data


def _place(data: bytes, rng: Random) -> int:
    """Anywhere; half of the time near the beginning or the end, where headers are."""
    near = min(len(data), 200)
    choice = rng.random()
    if choice < 0.35:
        return int(rng.integers(0, max(near, 1)))
    if choice < 0.5:
        return max(len(data) - 1 - int(rng.integers(0, max(near, 1))), 0)
    return int(rng.integers(0, max(len(data), 1)))


def flip(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :] if data else data


def overwrite(data: bytes, rng: Random) -> bytes:
    at, count = _place(data, rng), int(rng.integers(1, 9))
    return data[:at] + rng.bytes(count) + data[at + count :]


def put_integer(data: bytes, rng: Random) -> bytes:
    at, value = _place(data, rng), INTEGERS[int(rng.integers(len(INTEGERS)))]
    size = int(rng.choice([1, 2, 4, 8]))
    order = "little" if rng.random() < 0.8 else "big"
    return data[:at] + (value % 2 ** (8 * size)).to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


def put_float(data: bytes, rng: Random) -> bytes:
    at, value = _place(data, rng), FLOATS[int(rng.integers(len(FLOATS)))]
    packed = struct.pack("<d", value)
    return data[:at] + packed + data[at + 8 :]


def cut(data: bytes, rng: Random) -> bytes:
    return data[: _place(data, rng)]


def remove(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + int(rng.integers(1, 64)) :]


def repeat(data: bytes, rng: Random) -> bytes:
    at, size = _place(data, rng), int(rng.integers(1, 256))
    return data[: at + size] + data[at : at + size] * int(rng.integers(1, 8)) + data[at + size :]


def change_number(data: bytes, rng: Random) -> bytes:
    """A number in text, if there is any in the first or last part."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data[:4096]))
    if not found:
        return flip(data, rng)
    match = found[int(rng.integers(len(found)))]
    return data[: match.start()] + NUMBERS[int(rng.integers(len(NUMBERS)))] + data[match.end() :]


BYTE_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    flip, overwrite, put_integer, put_float, cut, remove, repeat, change_number,
)  # fmt: skip


# -- archives: damage inside, whole outside --------------------------------------------------------------


def damaged_inside(data: bytes, rng: Random) -> bytes:
    """An NPZ with one member changed, or a log of closures with one record; lengths, CRC and (where it has one) SHA-256
    are right again.

    Bytes that are neither are damaged as they are.
    """
    if data.startswith(LOG_MAGIC):
        return _damaged_record(data, rng)
    prefix, content = _split_database(data)
    try:
        members = _members(content)
    except (zipfile.BadZipFile, ValueError, KeyError):
        return damaged(data, rng)
    name = sorted(members)[int(rng.integers(len(members)))]
    if name == f"{HEADER}.npy" and rng.random() < 0.8:
        members[name] = _changed_header(members[name], rng)
    elif rng.random() < 0.5:
        members[name] = _changed_array(members[name], rng)
    else:
        members[name] = damaged(members[name], rng)
    if rng.random() < 0.05:
        del members[name]
    _repair_checksum(members)
    return _with_database_header(prefix, _zipped(members))


def _damaged_record(data: bytes, rng: Random) -> bytes:
    """A log of closures with one record changed: its JSON text, its arrays, or any bytes of it."""
    start = len(LOG_MAGIC) + BEGIN.size
    head, contents = data[:start], []
    while start < len(data):
        length, _ = RECORD.unpack_from(data, start)
        contents.append(data[start + RECORD.size : start + RECORD.size + length])
        start += RECORD.size + length
    which = int(rng.integers(len(contents)))
    (size,) = TEXT.unpack_from(contents[which])
    text, arrays = contents[which][TEXT.size : TEXT.size + size], contents[which][TEXT.size + size :]
    match int(rng.integers(4)):
        case 0:
            contents[which] = damaged(contents[which], rng)
        case 1:
            at = 8 * int(rng.integers(len(arrays) // 8))
            value = struct.pack("<d", FLOATS[int(rng.integers(len(FLOATS)))])
            contents[which] = TEXT.pack(size) + text + arrays[:at] + value + arrays[at + 8 :]
        case _:
            text = _changed_json(text, rng)
            contents[which] = TEXT.pack(len(text)) + text + arrays
    if rng.random() < 0.05:
        del contents[which]
    return head + b"".join(RECORD.pack(len(item), zlib.crc32(item)) + item for item in contents)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(info.file_size for info in archive.infolist()) > MEMBER_LIMIT:
            raise ValueError("too large")
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def _changed_array(member: bytes, rng: Random) -> bytes:
    """Other values, another type or another shape in an .npy file."""
    try:
        array = np.load(io.BytesIO(member), allow_pickle=False)
    except UNREADABLE:
        return damaged(member, rng)
    what = int(rng.integers(4))
    if what == 0 and array.size and array.dtype.kind in "fiu":
        flat = array.reshape(-1).copy()
        with np.errstate(all="ignore"):
            value = np.array(FLOATS[int(rng.integers(len(FLOATS)))]).astype(array.dtype)
        flat[int(rng.integers(flat.size))] = value
        array = flat.reshape(array.shape)
    elif what == 1:
        array = array[..., :-1] if array.ndim else array.reshape(1)
    elif what == 2:
        with np.errstate(all="ignore"):
            array = (
                array.astype(rng.choice(["f4", "i4", "u1", "c16", "?"]))
                if array.dtype.kind in "fiu"
                else array
            )
    else:
        array = array[:0] if array.ndim else array.reshape(1, 1)
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _changed_header(member: bytes, rng: Random) -> bytes:
    """Another value somewhere in the header of an archive."""
    text = _changed_json(bytes(np.load(io.BytesIO(member))), rng)
    out = io.BytesIO()
    np.save(out, np.frombuffer(text, dtype=np.uint8))
    return out.getvalue()


def _changed_json(text: bytes, rng: Random) -> bytes:
    """Another value somewhere in an object."""
    header = json.loads(text)
    holders: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(items):
            holders.append((node, key))
            collect(value)

    collect(header)
    holder, key = holders[int(rng.integers(len(holders)))]
    holder[key] = VALUES[int(rng.integers(len(VALUES)))]
    return json.dumps(header).encode()


def _repair_checksum(members: dict[str, bytes]) -> None:
    """The SHA-256 over all arrays as gpgmap_ros.storage.archive defines it, where the file has one."""
    checksum = f"{CHECKSUM}.npy"
    if checksum not in members:
        return
    digest = hashlib.sha256()
    for name in sorted(item.removesuffix(".npy") for item in members if item != checksum):
        try:
            array = np.load(io.BytesIO(members[f"{name}.npy"]), allow_pickle=False)
        except UNREADABLE:
            return  # refused whatever the checksum says
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    out = io.BytesIO()
    np.save(out, np.frombuffer(digest.digest(), dtype=np.uint8))
    members[checksum] = out.getvalue()


def _split_database(data: bytes) -> tuple[bytes, bytes]:
    """A database of submaps is an NPZ after a header of its own; others have none."""
    from gpgmap_ros.closure.retrieval.database_file import HEADER as HEAD
    from gpgmap_ros.closure.retrieval.database_file import MAGIC

    start = len(MAGIC) + HEAD.size
    return (data[:start], data[start:]) if data.startswith(MAGIC) else (b"", data)


def _with_database_header(prefix: bytes, content: bytes) -> bytes:
    from gpgmap_ros.closure.retrieval.database_file import HEADER as HEAD
    from gpgmap_ros.closure.retrieval.database_file import MAGIC, VERSION

    if not prefix:
        return content
    return MAGIC + HEAD.pack(VERSION, len(content), hashlib.sha256(content).digest()) + content
