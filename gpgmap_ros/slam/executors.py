"""Where work beside the mapping is done: inline, in threads, or closures in a process.

This is where the node and replay differ; the loop is the same. The closures themselves are imported where they run:
a node, whose process does them, need not wait for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpgmap_ros.config import Config
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.slam.closure_process import ClosureProcess
from gpgmap_ros.slam.work_queue import (
    ClosureExecutor,
    Executor,
    Failed,
    InlineExecutor,
    Receive,
    ThreadExecutor,
)


@dataclass(frozen=True)
class Executors:
    """What a `Slam` makes its executors with.

    finalizer: solves and stores the submaps that have ended; closures: compares them
    map_solved_beside: the map around the robot is solved in a thread of its own (see `MappingPipeline`)
    """

    finalizer: Callable[[Failed], Executor]
    closures: Callable[[Config, SubmapStore | None, Receive, Failed], ClosureExecutor]
    map_solved_beside: bool = False

    @classmethod
    def inline(cls) -> Executors:
        """Everything at once, in the thread that maps."""
        from gpgmap_ros.slam.closure_local import LocalClosures

        return cls(
            InlineExecutor,
            lambda config, store, receive, failed: LocalClosures(config, receive, InlineExecutor(failed)),
        )

    @classmethod
    def threads(cls) -> Executors:
        """A thread that finishes submaps and one that compares them: replay."""
        from gpgmap_ros.slam.closure_local import LocalClosures

        return cls(
            lambda failed: ThreadExecutor("submaps", 1, failed),
            lambda config, store, receive, failed: LocalClosures(
                config, receive, ThreadExecutor("closures", 1, failed)
            ),
        )

    @classmethod
    def process(cls) -> Executors:
        """A thread that solves the map, one that finishes submaps and a process that compares them: the node."""
        return cls(
            lambda failed: ThreadExecutor("submaps", 2, failed),
            lambda config, store, receive, failed: ClosureProcess.for_store(config, store, receive),
            map_solved_beside=True,
        )
