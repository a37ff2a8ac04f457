"""Atomic writes of files and folders: written under a temporary name in the same folder, then renamed.

The staging file is new (`O_EXCL`, `O_NOFOLLOW`), so that neither another
writer nor a symbolic link can be in its way; its content is on the disk before it gets its final name. While it is
being written it is locked: one that nobody has locked was left by a process that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gpgmap_ros.storage.exchange import exchange

ATTEMPTS = 100
"""Names tried before giving up: each is taken with a probability of 2^-64."""
STAGED = re.compile(r"\..+\.[0-9a-f]{16}\.new", re.DOTALL)
LONGEST = 200
"""Bytes of the final name that the staging file's name repeats: the sum must not exceed what file systems allow."""


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Iterator[BinaryIO]:
    """A binary file to write to; it replaces `path` at once when the block ends well, and is removed when it does not.

    A symbolic link at `path` is replaced, not followed. OSError where the disk refuses; the old file is untouched then.
    """
    path = Path(path)
    file, staged = _new_file(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """The path of a folder to make and fill; it replaces `path` at once when the block ends well.

    It does not exist yet, has the final name, and lies in a new folder that only this user may enter.
    """
    path = Path(path)
    for _ in range(ATTEMPTS):
        private = path.with_name(_staging_name(path.name))
        with contextlib.suppress(FileExistsError):
            private.mkdir(mode=0o700)
            break
    else:
        raise FileExistsError(f"{path.parent}: no free name for a new folder")
    try:
        made = private / path.name
        yield made
        if not os.path.lexists(path):
            os.replace(made, path)
        elif not exchange(made, path):
            _replace_in_two_steps(path, made, private / ".old")
        sync_folder(path.parent)
    finally:
        shutil.rmtree(private, ignore_errors=True)


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """As `atomic_write`, for libraries that take a path instead of an open file."""
    with atomic_write(path) as file:
        yield Path(file.name)


def write_bytes(path: Path | str, data: bytes) -> None:
    """Replace the file at `path` atomically."""
    with atomic_write(path) as file:
        file.write(data)


def write_text(path: Path | str, text: str) -> None:
    """Replace the file at `path` atomically, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path | str, data: Any) -> None:
    """Replace the file at `path` atomically."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def remove_abandoned(folder: Path) -> list[Path]:
    """Remove the staging files that killed processes left in a folder; those being written now stay."""
    removed = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if not STAGED.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            continue
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed.append(path)
            finally:
                os.close(handle)
    return removed


def sync_folder(folder: Path) -> None:
    """Make the renaming itself survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace_in_two_steps(path: Path, made: Path, old: Path) -> None:
    """For file systems that cannot exchange names: a kill between the steps leaves the old folder by another name."""
    os.replace(path, old)
    try:
        os.replace(made, path)
    except OSError:
        os.replace(old, path)
        raise


def _new_file(path: Path) -> tuple[BinaryIO, Path]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(ATTEMPTS):
        staged = path.with_name(_staging_name(path.name))
        try:
            file = open(staged, "w+b", opener=lambda name, _: os.open(name, flags, 0o666))  # noqa: SIM115
        except FileExistsError:
            continue
        except OSError as error:  # of the name that the caller knows
            raise OSError(error.errno, error.strerror, str(path)) from error
        with contextlib.suppress(
            OSError
        ):  # a file system without locks: then nothing is removed there either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file, staged
        file.close()  # taken for abandoned before it could be locked
    raise FileExistsError(f"{path.parent}: no free name for a new file")


def _staging_name(name: str) -> str:
    short = name.encode()[:LONGEST].decode(errors="ignore")
    return f".{short}.{secrets.token_hex(8)}.new"
