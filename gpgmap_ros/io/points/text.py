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

NAMES = {
    "x": ("easting", "east", "lon", "long", "longitude"),
    "y": ("northing", "north", "lat", "latitude"),
    "z": ("elevation", "height", "altitude", "elev", "alt"),
}
"""Other names of the columns, for people who write them in a first line."""
LOOKED_AT = 10
"""Lines that tell how numbers are written and whether the first column counts them."""
DECIMAL_COMMA = re.compile(rb"[-+]?\d+(,\d*)?([eE][-+]?\d+)?")


def open_text(path: Path) -> PointSource:
    """x y z in the first three columns, or in those that a first line names; blanks, commas or semicolons between.

    Numbers with a decimal comma are read where their columns are not separated by commas.
    """
    with path.open("rb") as file:
        first = b"#"
        while first.startswith((b"#", b"//")) or first == b"\n":
            start, first = file.tell(), file.readline()
        if not first:
            raise ValueError("the file has no points")
    words = re.split(rb"[\s,;]+", first.strip())
    names = [word.decode(errors="replace").strip('"').lower() for word in words]
    named = False
    try:
        [float(word) for word in words[:3]]
        names = ["x", "y", "z", *(f"column{k}" for k in range(3, len(words)))]
    except ValueError:
        start, named = start + len(first), True
        for own in [own for own in NAMES if own not in names]:
            names = [own if name in NAMES[own] else name for name in names]
    with path.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.readlines(1000)[:LOOKED_AT]]
    comma = has_decimal_comma(lines)
    if comma and not named:
        words = lines[0].replace(b";", b" ").split()
        names = ["x", "y", "z", *(f"column{k}" for k in range(3, len(words)))]
    if len(words) < 3:
        raise ValueError(f"its first line has {len(words)} columns, expected x y z")
    require_xyz(names)
    if names[3:4] == ["column3"] and counts_lines(lines):
        raise ValueError(
            "its first column counts the lines, and is no coordinate: name the columns in the first line, as in 'id x"
            " y z'"
        )
    return text_records(path, None, names, start, comma)


def has_decimal_comma(lines: list[bytes]) -> bool:
    """Whether numbers are written with one: integers and such numbers only, in columns separated otherwise."""
    found = False
    for line in lines:
        words = line.split(b";") if b";" in line else line.split()
        words = [word.strip() for word in words]
        if b";" in line and any(b"," in word and b"." in word for word in words):
            raise ValueError(f"its numbers have points and commas: {line.decode(errors='replace')[:60]}")
        written = len(words) >= 3 and all(DECIMAL_COMMA.fullmatch(word) for word in words[:3])
        if not written:
            return False
        found = found or b"," in line
    return found


def counts_lines(lines: list[bytes]) -> bool:
    """Whether the first column grows by 1 from line to line while the second changes, unlike a row of a raster."""
    try:
        rows = np.array([[float(word) for word in re.split(rb"[\s,;]+", line)[:2]] for line in lines])
    except ValueError:
        return False
    return len(rows) == LOOKED_AT and bool((np.diff(rows[:, 0]) == 1.0).all() and np.diff(rows[:, 1]).all())


def text_records(
    path: Path, count: int | None, names: list[str], start: int, decimal_comma: bool = False
) -> PointSource:
    """Lines of numbers from byte `start` on; count: how many, None for all."""
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
                text = b"".join(lines).replace(b",", b"." if decimal_comma else b" ").replace(b";", b" ")
                yield np.loadtxt(io.BytesIO(text), usecols=columns, ndmin=2, comments="#")

    return PointSource(path, count, Crs(), read)
