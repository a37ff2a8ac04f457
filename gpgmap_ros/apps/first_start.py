"""What a first start compiles, compiled beforehand: into the folders where later starts look for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.slam.closure_warm_up import warm_up as warm_up_closures
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

OPTIONAL: dict[str, Any] = {"filter.voxel_size": 0.1, "filter.lowest_surface": True}
"""Settings that need loops of their own, and are off unless the user asks for them."""


def compile_mapping(config: Config) -> None:
    """What the node compiles, and what it needs with other settings and with clouds in float64."""
    MappingPipeline(config).warm_up()
    MappingPipeline(with_settings(config, OPTIONAL)).warm_up(np.float64)


PARTS: dict[str, Callable[[Config], None]] = {
    "mapping": compile_mapping,
    "loop closure": lambda config: warm_up_closures(config.closure),
}
"""What there is to compile, in the order in which a robot needs it."""


def compile_parts(config: Config, done: Callable[[str], None]) -> dict[str, float]:
    """Compile all parts that are not on disk; seconds of CPU for each, next to none where it was.

    done: told the name of each part when it is ready
    """
    seconds = {}
    for name, compile_part in PARTS.items():
        begin = time.process_time()
        compile_part(config)
        seconds[name] = time.process_time() - begin
        done(name)
    return seconds
