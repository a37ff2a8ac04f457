"""What the mapping compiles at first use, compiled before the first cloud has to wait for it.

Maps around the robot and submaps have solvers of their own. So at a first start the loops of the submaps are compiled
in a process beside this one, where there is a second core: it leaves them in the folder where this process finds them.
Those of the map take longer. So the other process begins with the last of them, which draw the cells and which an empty
map needs as well.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
from numpy.typing import DTypeLike

from gp_core.compiled import cache_folder, loops_compiled
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.interpreter import module_command
from gpgmap_ros.mapping import ElevationMap
from gpgmap_ros.mapping.filters import select_ground
from gpgmap_ros.mapping.model import compile_learning, keep_tables
from gpgmap_ros.slam.end_with_parent import end_with_parent
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline


class Trial:
    """A small map of a few points of its own, made step by step as a run makes one.

    dtype: of the points; decoded clouds have float64. One loop is compiled anew for float32
    """

    def __init__(self, config: Config, dtype: DTypeLike = np.float64) -> None:
        changes = {"map_folder": "", "gate.enabled": True, "gate.refresh_period": 0.0, "submap.enabled": True}
        self._config = with_settings(config, changes)
        self._pipeline = MappingPipeline(self._config)
        rng = np.random.default_rng(0)
        xy = rng.uniform(-2.0, 2.0, (500, 2))
        # Level ground would leave out what corrects the rounding of means: there they are exact.
        self._points = np.column_stack([xy, rng.normal(-1.0, 0.02, len(xy))]).astype(dtype)
        self._stamp = 0

    def filter_points(self) -> None:
        select_ground(self._points, np.eye(4), None, self._config.filter)

    def add_points(self) -> None:
        """What maps and submaps share: from a cloud to statistics."""
        self._stamp += 1
        self._pipeline.add_cloud(self._points, np.eye(4), self._stamp, np.eye(6) * 1e-6)

    def solve_map(self) -> None:
        """The map around the robot, and clouds that are compared with it."""
        # The second cloud is the first to be compared with a surface; the third asks for the slopes under it.
        self.add_points()
        self.add_points()
        gpgmap = self._pipeline.gpgmap()
        if gpgmap is not None:
            dict(gpgmap.layers)

    def draw_empty_map(self) -> None:
        """The last part of `solve_map`, which needs none of the others."""
        ElevationMap(self._config.mapping, (0.0, 0.0)).gpgmap()

    def finish_submap(self) -> None:
        self._pipeline.finish_submap()


def compile_mapping(config: Config, dtype: DTypeLike = np.float64, *, closures_too: bool = False) -> None:
    """Compile what a run with these settings needs, and keep its tables; what is on disk is only read.

    closures_too: the process beside, if there is one, goes on with what comparing submaps needs
    """
    trial = Trial(config, dtype)
    before, begun = loops_compiled(), False
    with ExitStack() as beside:
        for step in (trial.filter_points, trial.add_points, trial.solve_map):
            # As early as it is known that there is something to compile.
            if not begun and loops_compiled() > before:
                begun = True
                beside.enter_context(_process_beside(config, closures_too))
            step()
        compile_learning(config.mapping, batch=False)
    keep_tables(config.mapping)
    trial.finish_submap()  # of which the other process has left the loops on disk


@contextmanager
def _process_beside(config: Config, closures_too: bool) -> Iterator[None]:
    """Inside, loops are compiled by another process too, which has ended on leaving.

    However it ends: what it did not compile is compiled by whoever needs it.
    """
    child = None
    if cache_folder() is not None and len(os.sched_getaffinity(0)) > 1:
        with suppress(OSError):
            child = _start_child(config, closures_too)
    try:
        yield
        if child is not None:
            child.wait()
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _start_child(config: Config, closures_too: bool) -> subprocess.Popen[bytes]:
    command = module_command(__name__, str(os.getpid()))
    # Its messages would be ours a second time.
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin:  # where it has ended already, which `wait` will find
        child.stdin.write(pickle.dumps((config, closures_too)))
    return child


def main() -> int:
    """The process beside: settings from standard input, compiled loops into the folder for them."""
    end_with_parent(int(sys.argv[1]))
    config, closures_too = pickle.load(sys.stdin.buffer)
    trial = Trial(config)
    trial.draw_empty_map()
    trial.add_points()  # compiled by now by the process that has started this one
    trial.finish_submap()
    if closures_too:
        from gpgmap_ros.slam.closure_warm_up import warm_up

        warm_up(config.closure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
