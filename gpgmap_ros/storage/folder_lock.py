"""One writer per folder: a lock that the system lets go when its process ends, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

LOCK_FILE = ".gpgmap.lock"
LONGEST = 4096
"""Bytes read of a lock file: more was not written by this module."""


class FolderInUse(RuntimeError):
    """Another process writes into the folder: which, and what to do."""


class FolderLock:
    """Ownership of a folder, from construction to `release` or the end of the process.

    folder: made if it is not there; owner: who takes it, as a person would look for it ("mapping_node '/robot'")
    remedy: what the reader of the error can do besides ending the owner
    FolderInUse where somebody has it; OSError where the folder cannot be written to.
    """

    def __init__(self, folder: Path, owner: str, remedy: str = "choose another folder") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK_FILE
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._handle: int | None = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._handle).st_mode):
                raise OSError(f"{path} is not a regular file: remove it")
            self._take(path, owner, remedy)
        except BaseException:
            self._close()
            raise

    def release(self) -> None:
        """Give the folder free. The file stays: removing it could take another's lock away."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
        self._close()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self, path: Path, owner: str, remedy: str) -> None:
        assert self._handle is not None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{self.folder} is in use by {_describe(_read_owner(self._handle))}: {remedy}, or end that process"
            ) from None
        content = {
            "owner": owner,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": round(time.time()),
        }
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, (json.dumps(content) + "\n").encode(), 0)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None


def describe_owner(folder: Path) -> str:
    """Who writes into a folder now, empty where nobody does. Nothing is changed, nor need it be writable."""
    try:
        handle = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _describe(_read_owner(handle))
    except OSError:
        return ""
    finally:
        os.close(handle)
    return ""


def _read_owner(handle: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(handle, LONGEST, 0))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _describe(content: dict[str, Any]) -> str:
    if not content:
        return "another process"
    since = ""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        since = f", since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(float(content['since'])))}"
    return f"{content.get('owner')} (process {content.get('pid')} on {content.get('host')}{since})"
