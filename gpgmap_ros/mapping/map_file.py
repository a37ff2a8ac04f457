"""A whole map on file: what it remembers of every point, where it is, and the settings it was made with."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Blocks
from gp_core.grid.moments import KNOWN_ORDERS
from gp_core.grid.point_sample import SIZE
from gp_core.grid.statistics import COUNT, SQUARES
from gpgmap_ros.config import Config, MappingConfig, settings
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.model import finest_block_spacing, model_settings, with_model_of
from gpgmap_ros.mapping.noise import CommonError
from gpgmap_ros.mapping.plausible import FARTHEST, check_number, check_stamp
from gpgmap_ros.storage.archive import ArchiveError, read_archive, shorten, write_archive

KIND = "map"
BEFORE = {"mapping.kernel": "rbf"}
"""Settings of maps that were written before there was a choice."""
RELIEF = "mapping.rough_relief"
"""In cells; maps that were written before it have `relief_std` instead, in metres, with every kernel."""
SAMPLE = "sample"
ARRAYS = tuple(item.name for item in fields(Blocks) if item.name != "reference")
BLOCK_BYTES = 16 + max(orders.block_bytes for orders in KNOWN_ORDERS)
"""Of one block with its place, at most."""
HEADER_BYTES = 1 << 20
"""For the settings and the array headers, generously."""
MAX_INFORMATION = 1e18
"""Inverse square metres in one block: a hundred million points known to 10 micrometres."""
ROUND_OFF = 1e-6
"""Relative: sums that were scaled, shifted and added many times."""


@dataclass(frozen=True)
class LoadedMap:
    """elevation_map: ready to go on; stamp: of its newest data; session: of its first, nanoseconds."""

    elevation_map: ElevationMap
    stamp: int
    session: int


def save_map(path: Path, elevation_map: ElevationMap, config: Config, stamp: int, session: int) -> None:
    """Replace the file at `path` atomically. OSError where the disk refuses."""
    x_min, y_min, x_max, y_max = elevation_map.grid.bounds
    blocks = elevation_map.blocks()
    values = {
        "stamp": stamp,
        "session": session,
        "centre": [(x_min + x_max) / 2.0, (y_min + y_max) / 2.0],
        "reference": None if blocks is None else blocks.reference,
        "common_error": dataclasses.astuple(elevation_map.common),
    }
    config = dataclasses.replace(config, mapping=with_model_of(config.mapping, elevation_map.config))
    values["settings"] = {item.name: item.value for item in settings(config)}
    arrays = {} if blocks is None else {name: getattr(blocks, name) for name in ARRAYS}
    arrays[SAMPLE] = elevation_map.sample
    write_archive(path, KIND, values, arrays)


def load_map(path: Path, config: Config) -> LoadedMap:
    """ArchiveError where the file is damaged, of another version, or made with settings that do not fit `config`.

    A map keeps the kernel that it was made with, whatever that of `config`.
    """
    values, arrays = read_archive(path, KIND, max_file_bytes(config))
    try:
        made_with = settings_of_map(values["settings"])
        mapping = mapping_of_map(made_with, config.mapping)
        check_settings(path, made_with, dataclasses.replace(config, mapping=mapping))
        centre = [check_number(value, "its centre") for value in values["centre"]]
        if len(centre) != 2:
            raise ValueError(f"its centre has {len(centre)} coordinates")
        stamp, session = (check_stamp(values[name], f"its {name}") for name in ("stamp", "session"))
        elevation_map = ElevationMap(mapping, centre)
        elevation_map.restore(blocks_from(values["reference"], arrays))
        if SAMPLE in arrays:  # not in files of earlier versions
            elevation_map.sample = check_sample(arrays[SAMPLE])
            elevation_map.common = check_common_error(values["common_error"])
        return LoadedMap(elevation_map, stamp, session)
    except ArchiveError:
        raise
    except Exception as error:  # whatever strange content may cause: the map that is there must stay
        reason = shorten(error) or type(error).__name__
        raise ArchiveError(f"{path}: its content is not valid: {reason}") from error


def check_common_error(values: list[Any]) -> CommonError:
    """What the map's points have in common. ValueError where it is none."""
    share, variance, count = (check_number(value, "its common error") for value in values)
    if not 0.0 <= share <= 1.0 or variance < 0.0 or count < 0.0:
        raise ValueError("its common error has a share or a variance that is none")
    return CommonError(share, variance, int(count))


def check_sample(points: NDArray[Any]) -> NDArray[np.float64]:
    """The sample (N, 4) of the map's points. ValueError where it is none."""
    if points.ndim != 2 or points.shape[1] != 4 or points.dtype != np.float64 or len(points) > SIZE:
        raise ValueError(f"its sample of points has {points.dtype} {points.shape}")
    if not np.isfinite(points).all() or (points[:, 3] <= 0.0).any() or (np.abs(points) > FARTHEST).any():
        raise ValueError("its sample of points has heights or variances that are none")
    return points


def max_file_bytes(config: Config) -> int:
    """What the file of a map with these settings may declare: all blocks of its window, and as much again.

    Those of the kernel with the smallest blocks: a map made with another than it is loaded with must get as far as
    the message that says so.
    """
    mapping = config.mapping
    h_x, h_y = finest_block_spacing(mapping)
    blocks = (mapping.size_x / h_x + 2.0) * (mapping.size_y / h_y + 2.0)
    return HEADER_BYTES + 2 * BLOCK_BYTES * math.ceil(blocks)


def settings_of_map(written: dict[str, Any]) -> dict[str, Any]:
    """The settings that a file holds, with those that it was written before."""
    made_with = {**BEFORE, **written}
    if RELIEF not in made_with:
        made_with[RELIEF] = made_with["mapping.relief_std"] / made_with["mapping.resolution"]
    return made_with


def mapping_of_map(made_with: dict[str, Any], mapping: MappingConfig) -> MappingConfig:
    """The settings of the group `mapping`; with another kernel in the file, its kernel and what that depends on."""
    kernel = made_with["mapping.kernel"]
    if kernel == mapping.kernel:
        return mapping
    other = dataclasses.replace(mapping, kernel=kernel)
    values = {name: made_with[f"mapping.{name}"] for name in model_settings(other)}
    return dataclasses.replace(other, **values)


def check_settings(path: Path, made_with: dict[str, Any], config: Config) -> None:
    """ArchiveError where what a map can't be read without differs; the other settings are kept for the record."""
    now = {item.name: item.value for item in settings(config)}
    names = ("resolution", "size_x", "size_y", *model_settings(config.mapping))
    must_agree = ("map_frame", *(f"mapping.{name}" for name in names))
    other = [name for name in must_agree if made_with.get(name) != now[name]]
    if other:
        differences = ", ".join(f"{name} {shorten(made_with.get(name))} (here {now[name]})" for name in other)
        raise ArchiveError(f"{path}: made with other settings: {differences}")


def blocks_from(reference: float | None, arrays: dict[str, NDArray[Any]]) -> Blocks | None:
    """ValueError where these are no statistics of points: gp_core/grid/statistics.py has their formulas."""
    if reference is None:
        return None
    blocks = Blocks(
        reference=check_number(reference, "its reference height"), **{name: arrays[name] for name in ARRAYS}
    )
    count = len(blocks.index)
    if blocks.index.shape != (count, 2) or blocks.index.dtype != np.int64 or blocks.spacing.shape != (2,):
        raise ValueError("its blocks have no places")
    if len(np.unique(blocks.index, axis=0)) != count:
        raise ValueError("two of its blocks have the same place")
    if blocks.weights.ndim != 3 or blocks.heights.ndim != 3 or blocks.orders not in KNOWN_ORDERS:
        raise ValueError(f"its moments have the shapes {blocks.weights.shape} and {blocks.heights.shape}")
    n, m = blocks.orders
    for name, shape in (("weights", (n, n)), ("heights", (m, m)), ("totals", (3,))):
        array = getattr(blocks, name)
        if array.shape != (count, *shape) or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"its {name} are not finite numbers, one set for each block")
    check_moments(blocks)
    return blocks


def check_moments(blocks: Blocks) -> None:
    """Sums of t^a s^b / r and t^a s^b (z - z_0) / r over points with |s|, |t| <= 1 and r > 0 have bounds."""
    total = blocks.weights[:, 0, 0]
    if not ((total > 0.0) & (total <= MAX_INFORMATION)).all():
        raise ValueError("its weights are not positive")
    bound = (total * (1.0 + ROUND_OFF))[:, None, None]
    if (np.abs(blocks.weights) > bound).any() or (blocks.weights[:, ::2, ::2] < -ROUND_OFF * bound).any():
        raise ValueError("its weights are not moments of positions")
    if (np.abs(blocks.heights) > FARTHEST * bound).any():
        raise ValueError(f"its heights are beyond {FARTHEST:.0e} m")
    squares, points = blocks.totals[:, SQUARES] / total, blocks.totals[:, COUNT]
    mean = blocks.heights[:, 0, 0] / total
    if (squares < mean**2 - ROUND_OFF * (1.0 + mean**2)).any():
        raise ValueError("its sums of squares are smaller than the squares of its mean heights")
    if (squares > FARTHEST**2 * (1.0 + ROUND_OFF)).any() or (points < 0.0).any():
        raise ValueError("its totals are negative or too large")
