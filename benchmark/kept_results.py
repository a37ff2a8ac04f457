"""Results of a long benchmark, kept in a folder: what was done is not done again, however often it is interrupted."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


class KeptResults:
    """Values by name, one line of JSON each; a line that was cut off by a kill is made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        for line in lines[:-1]:  # behind the last line feed is nothing, or half a line
            item = json.loads(line)
            self._values[item["name"]] = item["value"]
        if lines[-1]:
            path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of that name, made where there is none yet. It is what JSON makes of it in either case."""
        if name not in self._values:
            text = json.dumps({"name": name, "value": make()})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
                file.flush()
                os.fsync(file.fileno())
            self._values[name] = json.loads(text)["value"]
        return self._values[name]


@contextmanager
def kept_folder(folder: Path | None) -> Iterator[Path]:
    """The folder that is named, made if need be; a temporary one where none is."""
    if folder is None:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills under another name, and that is there as a whole or not at all."""
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}_") as scratch:
            part = Path(scratch) / "part"
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score: it holds for 0 of n, too."""
    if not total:
        return 0.0, 1.0
    share = count / total
    middle = (share + z**2 / (2.0 * total)) / (1.0 + z**2 / total)
    half = z / (1.0 + z**2 / total) * np.sqrt(share * (1.0 - share) / total + z**2 / (4.0 * total**2))
    return max(float(middle - half), 0.0), min(float(middle + half), 1.0)


def share_text(count: int, total: int) -> str:
    """`48 of 50 (96 %; 86 to 99 %)`"""
    low, high = wilson(count, total)
    share = 100.0 * count / max(total, 1)
    return f"{count} of {total} ({share:.1f} %; 95 % interval {100.0 * low:.2g} to {100.0 * high:.3g} %)"
