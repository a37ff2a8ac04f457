"""Tiles of a map that is too large for the page: files beside it, which the page asks for as the reader zooms in.

A tile is a script that hands its values to the page. A page that was opened from a disk may read nothing else: browsers
forbid it other files, and pictures can be drawn but tell no values. The layers are those a survey is looked at for; the
page shows the others from the coarse map in itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.io.geotiff import TILE
from gpgmap_ros.report.content import LEVELS
from gpgmap_ros.report.encoding import encoded
from gpgmap_ros.storage.atomic import write_text

EDGE = 2 * TILE
"""Cells along a tile: of the largest window that is solved at once, so that a window lies in one tile."""
TILED = ("elevation", "standard_deviation")
"""Layers with tiles; a tile of the elevation also has its relief."""
LIGHT = "light"
"""What the colours of the relief are multiplied with, 1 on level ground (viz.rendering.shade_factor)."""
LIGHT_LEVELS = 100
STEPS_PER_CELL = 100
"""Heights are told apart by this part of a cell's edge: finer than any map is certain, and it packs well."""

Image = NDArray[np.float32]
"""Values of a tile, north up: its first row is the northern one."""


@dataclass(frozen=True)
class TileLevel:
    """Tiles with cells of one size, counted from the north-western corner of the map.

    number: 0 for the finest; factor: cells of the map along one of its own; shape: its rows and columns of cells
    """

    number: int
    factor: int
    shape: tuple[int, int]

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return -(-self.shape[0] // EDGE), -(-self.shape[1] // EDGE)

    def tile_shape(self, row: int, column: int) -> tuple[int, int]:
        """Cells of a tile: fewer in the south and east."""
        return min(EDGE, self.shape[0] - row * EDGE), min(EDGE, self.shape[1] - column * EDGE)


def tile_levels(grid: Grid, coarsest: float, most_cells: int) -> list[TileLevel]:
    """The levels that show a map finer than the page itself does, the finest first.

    coarsest: edge of the cells of the page's own map, metres; most_cells: of the finest level
    """
    factor = 1
    while grid.shape[0] * grid.shape[1] / factor**2 > most_cells:
        factor *= 2
    found: list[TileLevel] = []
    while factor * grid.resolution < coarsest:
        shape = (-(-grid.shape[0] // factor), -(-grid.shape[1] // factor))
        found.append(TileLevel(len(found), factor, shape))
        factor *= 2
    return found


def tile_path(folder: Path, layer: str, level: int, row: int, column: int) -> Path:
    return folder / layer / str(level) / f"{row}_{column}.js"


def write_tile(
    folder: Path, level: TileLevel, row: int, column: int, images: Mapping[str, Image], resolution: float
) -> None:
    """Write the files of a tile. images: by layer and of `LIGHT`; resolution: edge of a cell of this level, metres"""
    for layer in TILED:
        image = images[layer]
        content: dict[str, Any] = {"rows": image.shape[0], "columns": image.shape[1]}
        if layer == "elevation":
            content |= encoded(image[::-1], height_levels(image, resolution))
            content[LIGHT] = encoded(images[LIGHT][::-1], LIGHT_LEVELS)
        else:
            content |= encoded(image[::-1], LEVELS)
        path = tile_path(folder, layer, level.number, row, column)
        path.parent.mkdir(parents=True, exist_ok=True)
        key = f"{layer}/{level.number}/{row}_{column}"
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        write_text(path, f'takeTile("{key}",{text});\n')


def height_levels(image: Image, resolution: float) -> int:
    """Heights of a tile that are told apart."""
    known = image[np.isfinite(image)]
    span = float(known.max() - known.min()) if known.size else 0.0
    return max(math.ceil(span * STEPS_PER_CELL / resolution), 1)


def describe_tiles(
    folder: str, grid: Grid, levels: Sequence[TileLevel], there: Sequence[frozenset[tuple[int, int]]]
) -> dict[str, Any]:
    """What the page needs to ask for tiles. folder: its name, beside the page; there: tiles of each level that exist"""
    rows = grid.shape[0]
    return {
        "folder": folder,
        "edge": EDGE,
        "layers": list(TILED),
        "corner": [grid.origin[0], grid.origin[1] + rows * grid.resolution],
        "levels": [
            {
                "resolution": grid.resolution * level.factor,
                "rows": level.tiles[0],
                "columns": level.tiles[1],
                "there": "".join("1" if place in known else "0" for place in np.ndindex(level.tiles)),
            }
            for level, known in zip(levels, there, strict=True)
        ],
    }
