"""Points as text, a line each."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.source import PIECE, PointSource, require_xyz


def open_text(path: Path) -> PointSource:
    """x y z in the first three columns, or in those that a first line names; blanks, commas or semicolons between."""
    with path.open("rb") as file:
        first = b"#"
        while first.startswith((b"#", b"//")) or first == b"\n":
            start, first = file.tell(), file.readline()
        if not first:
            raise ValueError("the file has no points")
    words = re.split(rb"[\s,;]+", first.strip())
    names = [word.decode(errors="replace").strip('"').lower() for word in words]
    try:
        [float(word) for word in words[:3]]
        names = ["x", "y", "z", *(f"column{k}" for k in range(3, len(words)))]
    except ValueError:
        start += len(first)
    if len(words) < 3:
        raise ValueError(f"its first line has {len(words)} columns, expected x y z")
    require_xyz(names)
    return text_records(path, None, names, start)


def text_records(path: Path, count: int | None, names: list[str], start: int) -> PointSource:
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
