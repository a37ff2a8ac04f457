"""Exports that are whole or not there, for writers that want a path instead of an open file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpgmap_ros.storage.atomic import atomic_write, write_json, write_text

__all__ = ["staged", "write_json", "write_text"]


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends well and is removed when it does not."""
    with atomic_write(path) as file:
        yield Path(file.name)
