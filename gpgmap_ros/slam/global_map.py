"""One map of many submaps, under their corrected poses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping import GPGMap, SubmapStore
from gpgmap_ros.mapping.stitching import Stitcher, stitch
from gpgmap_ros.mapping.submaps import Submap


def stitch_global_map(
    submaps: Sequence[Submap] | SubmapStore,
    poses: Mapping[int, Array],
    config: Config,
    frame: str,
    max_cells: int,
    covariances: Mapping[int, Array] | None,
) -> GPGMap:
    """The map of the submaps that have a pose, with cells an integer factor coarser where there would be too many.

    frame: of the poses; max_cells: of the map; covariances: (6, 6) of the poses by submap, None where unknown
    """
    rows, columns = Stitcher(submaps, poses, config, frame).grid.shape
    coarser = max(1, math.ceil(math.sqrt(rows * columns / max_cells)))
    # coarser cells reach over the edges: the map may have a few more than max_cells
    return stitch(
        submaps, poses, config, frame, coarser * config.mapping.resolution, 2 * max_cells, covariances
    )
