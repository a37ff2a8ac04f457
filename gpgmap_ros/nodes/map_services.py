"""Services on the map: save, load, and hand out one submap. Each answers what really happened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from grid_map_msgs.srv import GetGridMap
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from std_srvs.srv import Trigger

from gpgmap_ros.mapping.layers import grid_map_layers
from gpgmap_ros.mapping.map_file import load_map
from gpgmap_ros.nodes.messages import grid_map_message, submap_frame, submap_id
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline
from gpgmap_ros.storage.archive import ArchiveError

NOT_CONFIGURED = "there is no map: configure the node first"
LOAD_WITHIN = 20.0
"""Seconds: a map of 50 million cells takes a few. A disk that does not answer must not keep the caller waiting."""


class MapServices:
    """`~/save_map`, `~/load_map` (the file that the parameter map_name names) and `~/get_submap`.

    pipeline: the pipeline for as long as the context lasts, or None while the node is not configured.
    map_name: the file's name now.
    loaded: called after the map was replaced.
    """

    def __init__(
        self,
        node: Node,
        pipeline: Callable[[], AbstractContextManager[MappingPipeline | None]],
        map_name: Callable[[], str],
        loaded: Callable[[], None],
    ) -> None:
        self._logger, self._pipeline, self._map_name = node.get_logger(), pipeline, map_name
        self._loaded = loaded
        self._reader: threading.Thread | None = None
        node.create_service(Trigger, "~/save_map", self._save)
        # a group of its own: the other callbacks go on while the file is being read
        group = MutuallyExclusiveCallbackGroup()
        node.create_service(Trigger, "~/load_map", self._load, callback_group=group)
        node.create_service(GetGridMap, "~/get_submap", self._get_submap)

    def _save(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            with self._pipeline() as pipeline:
                if pipeline is None:
                    raise ArchiveError(NOT_CONFIGURED)
                return self._answer(response, True, f"saved {pipeline.save(self._map_name())}")
        except (ArchiveError, OSError) as error:
            return self._answer(response, False, str(error))

    async def _load(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """The file is read in a thread, the map replaced when that has ended well."""
        try:
            with self._pipeline() as pipeline:
                if pipeline is None:
                    raise ArchiveError(NOT_CONFIGURED)
                path, config = pipeline.map_path(self._map_name()), pipeline.config
            found = await self._read(lambda: load_map(path, config))
            with self._pipeline() as now:
                if now is None or now is not pipeline:
                    raise ArchiveError(f"{path}: not loaded: the node was configured anew meanwhile")
                now.go_on_with(found)
                self._loaded()
            return self._answer(response, True, f"loaded {path}")
        except (ArchiveError, OSError) as error:
            return self._answer(response, False, str(error))

    def _read(self, read: Callable[[], object]) -> Future:
        """What `read` returns or raises in a thread of its own; ArchiveError where that takes too long."""
        if self._reader is not None and self._reader.is_alive():
            raise ArchiveError("another map is being loaded: wait for that")
        future = Future()
        deciding = threading.Lock()

        def decide(settle: Callable[[], None]) -> None:
            with deciding:
                if not future.done():
                    settle()

        def work() -> None:
            try:
                found = read()
                decide(lambda: future.set_result(found))
            except Exception as error:
                reason = error
                decide(lambda: future.set_exception(reason))
            finally:
                limit.cancel()

        late = ArchiveError(f"the map could not be read within {LOAD_WITHIN:.0f} s: is the disk there?")
        limit = threading.Timer(LOAD_WITHIN, lambda: decide(lambda: future.set_exception(late)))
        limit.daemon = True
        self._reader = threading.Thread(target=work, name="load_map", daemon=True)
        limit.start()
        self._reader.start()
        return future

    def _answer(self, response: Trigger.Response, success: bool, message: str) -> Trigger.Response:
        response.success, response.message = success, message
        # two lines: rclpy refuses another severity from the same one
        if success:
            self._logger.info(message)
        else:
            self._logger.warning(message)
        return response

    def _get_submap(self, request: GetGridMap.Request, response: GetGridMap.Response) -> GetGridMap.Response:
        """The submap whose frame is asked for, whole; an empty map where there is none (the log says why)."""
        try:
            with self._pipeline() as pipeline:
                if pipeline is None:
                    raise ArchiveError(NOT_CONFIGURED)
                if pipeline.submaps is None:
                    raise ArchiveError("no submaps are kept: set submap.enabled and map_folder")
                submap = pipeline.submaps.load(submap_id(request.frame_id))
        except (ArchiveError, OSError, ValueError) as error:
            self._logger.warning(f"get_submap: {error}")
            return response
        layers = [name for name in grid_map_layers() if not request.layers or name in request.layers]
        response.map = grid_map_message(submap.gpgmap, layers)
        response.map.header.frame_id = submap_frame(submap.id)
        return response
