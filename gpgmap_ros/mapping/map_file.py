"""A whole map on file: what it remembers of every point, where it is, and the settings it was made with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.config import Config, settings
from gpgmap_ros.mapping.archive import ArchiveError, read_archive, write_archive
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.window import Blocks

KIND = "map"
# What a map cannot be read without; the other settings are kept for the record.
MUST_AGREE = (
    "map_frame",
    *(f"mapping.{name}" for name in ("resolution", "size_x", "size_y", "length_scale", "relief_std")),
)
ARRAYS = tuple(item.name for item in fields(Blocks) if item.name != "reference")


@dataclass(frozen=True)
class LoadedMap:
    """elevation_map: ready to go on; stamp: of its newest data; session: of its first, nanoseconds."""

    elevation_map: ElevationMap
    stamp: int
    session: int


def save_map(path: Path, elevation_map: ElevationMap, config: Config, stamp: int, session: int) -> None:
    """Replace the file at `path` at once. OSError where the disk refuses."""
    x_min, y_min, x_max, y_max = elevation_map.grid.bounds
    blocks = elevation_map.blocks()
    values = {
        "stamp": stamp,
        "session": session,
        "centre": [(x_min + x_max) / 2.0, (y_min + y_max) / 2.0],
        "reference": None if blocks is None else blocks.reference,
        "settings": {item.name: item.value for item in settings(config)},
    }
    arrays = {} if blocks is None else {name: getattr(blocks, name) for name in ARRAYS}
    write_archive(path, KIND, values, arrays)


def load_map(path: Path, config: Config) -> LoadedMap:
    """ArchiveError where the file is damaged, of another version, or made with settings that do not fit `config`."""
    values, arrays = read_archive(path, KIND)
    try:
        check_settings(path, values["settings"], config)
        elevation_map = ElevationMap(config.mapping, np.array(values["centre"], dtype=np.float64))
        elevation_map.restore(blocks_from(values["reference"], arrays))
        return LoadedMap(elevation_map, int(values["stamp"]), int(values["session"]))
    except ArchiveError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ArchiveError(f"{path}: its content makes no sense: {error}") from error


def check_settings(path: Path, made_with: dict[str, Any], config: Config) -> None:
    now = {item.name: item.value for item in settings(config)}
    other = [name for name in MUST_AGREE if made_with.get(name) != now[name]]
    if other:
        differences = ", ".join(f"{name} {made_with.get(name)} (here {now[name]})" for name in other)
        raise ArchiveError(f"{path}: made with other settings: {differences}")


def blocks_from(reference: float | None, arrays: dict[str, NDArray[Any]]) -> Blocks | None:
    if reference is None:
        return None
    blocks = Blocks(reference=float(reference), **{name: arrays[name] for name in ARRAYS})
    count = len(blocks.index)
    if blocks.index.shape != (count, 2) or blocks.index.dtype.kind != "i" or blocks.spacing.shape != (2,):
        raise ValueError("its blocks have no places")
    for name in ("weights", "heights", "totals"):
        array = getattr(blocks, name)
        if len(array) != count or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"its {name} are not finite numbers, one set for each block")
    return blocks
