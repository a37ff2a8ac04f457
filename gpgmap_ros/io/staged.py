"""Files that are whole or not there: written beside, then moved into their place."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` when the block ends well and is removed when it does not."""
    beside = path.with_name(f".{path.name}.new")
    try:
        yield beside
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    with staged(path) as beside:
        beside.write_text(text)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=2) + "\n")
