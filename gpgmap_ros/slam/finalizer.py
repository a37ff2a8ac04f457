"""Finishing submaps beside the mapping: solved, stored and passed on in the order in which they ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.mapping_pipeline import EndedSubmap
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.work_queue import Executor, Failed, InlineExecutor

Complete = Callable[[EndedSubmap], tuple[Submap | None, str]]


class SubmapFinalizer:
    """Completes submaps in an executor.

    complete: solves and stores one (`MappingPipeline.complete`)
    finished: called with what it became, and why it is not on the disk if so; failed: with an exception in that
    """

    def __init__(
        self,
        executor: Executor,
        failed: Failed,
        complete: Complete,
        finished: Callable[[Submap | None, str], None],
        metrics: Metrics,
    ) -> None:
        self._executor, self._failed = executor, failed
        self._complete, self._finished, self._metrics = complete, finished, metrics

    def submit(self, ended: EndedSubmap) -> None:
        """Have a submap completed; at once after `close`."""
        self._executor.submit(partial(self._run, ended))

    def wait_for_room(self) -> None:
        """Let the caller wait where too many submaps do: each holds some tens of megabytes."""
        if not self._executor.has_room:
            with self._metrics.timed("wait for submaps"):
                self._executor.wait_for_room()

    def wait(self) -> None:
        """Wait until all submaps are complete."""
        self._executor.wait()

    def close(self) -> None:
        """Complete what waits, and end the executor."""
        self._executor.close()
        self._executor = InlineExecutor(self._failed)

    def _run(self, ended: EndedSubmap) -> None:
        with self._metrics.timed("submaps"):
            submap, error = self._complete(ended)
        self._finished(submap, error)
