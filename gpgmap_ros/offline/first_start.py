"""What a first start compiles, compiled beforehand: into the folders where later starts look for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpgmap_ros.closure.warm_up import warm_up as warm_up_closures
from gpgmap_ros.config import Config
from gpgmap_ros.pipeline import MappingPipeline

PARTS: dict[str, Callable[[Config], None]] = {
    "mapping": lambda config: MappingPipeline(config).warm_up(),
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
