"""Compile the inner loops before the first cloud needs them. Compiled once, they are kept beside their sources.

python -m gpgmap_ros.warmup
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gpgmap_ros.config import Config
from gpgmap_ros.pipeline import MappingPipeline

CELLS = 12  # along an edge of the map that is thrown away


def warm_up(config: Config | None = None) -> None:
    """Map a few points on a small map with these settings, and look at every layer of it."""
    config = config or Config()
    size = CELLS * config.mapping.resolution
    small = dataclasses.replace(config.mapping, size_x=size, size_y=size)
    # no folder: nothing of this may be saved
    pipeline = MappingPipeline(dataclasses.replace(config, mapping=small, map_folder=""))
    height = (config.filter.min_height + config.filter.max_height) / 2.0
    points = np.column_stack(
        [np.linspace(-size, size, 64), np.linspace(size, -size, 64), np.full(64, height)]
    )
    for stamp in range(2):  # the second cloud meets a map that is there
        pipeline.add_cloud(points + np.array([config.filter.min_range, 0.0, 0.0]), np.eye(4), stamp)
        pipeline.gpgmap()


def main() -> None:
    warm_up()
    print("compiled")


if __name__ == "__main__":
    main()
