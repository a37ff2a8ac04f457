"""Services on the map: save, load, and hand out one submap. Each answers what really happened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from grid_map_msgs.srv import GetGridMap
from rclpy.node import Node
from std_srvs.srv import Trigger

from gpgmap_ros.mapping.archive import ArchiveError
from gpgmap_ros.nodes.messages import grid_map_message, submap_frame, submap_id
from gpgmap_ros.nodes.outputs import GRID_MAP_LAYERS
from gpgmap_ros.pipeline import MappingPipeline

NOT_CONFIGURED = "there is no map: configure the node first"


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
        self._logger, self._pipeline, self._map_name, self._loaded = (
            node.get_logger(),
            pipeline,
            map_name,
            loaded,
        )
        node.create_service(Trigger, "~/save_map", self._save)
        node.create_service(Trigger, "~/load_map", self._load)
        node.create_service(GetGridMap, "~/get_submap", self._get_submap)

    def _save(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return self._answer(response, lambda pipeline: f"saved {pipeline.save(self._map_name())}")

    def _load(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        def load(pipeline: MappingPipeline) -> str:
            path = pipeline.load(self._map_name())
            self._loaded()
            return f"loaded {path}"

        return self._answer(response, load)

    def _answer(self, response: Trigger.Response, work: Callable[[MappingPipeline], str]) -> Trigger.Response:
        try:
            with self._pipeline() as pipeline:
                response.success = pipeline is not None
                response.message = work(pipeline) if pipeline is not None else NOT_CONFIGURED
        except (ArchiveError, OSError) as error:
            response.success, response.message = False, str(error)
        # two lines: rclpy refuses another severity from the same one
        if response.success:
            self._logger.info(response.message)
        else:
            self._logger.warning(response.message)
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
        layers = [name for name in GRID_MAP_LAYERS if not request.layers or name in request.layers]
        response.map = grid_map_message(submap.gpgmap, layers)
        response.map.header.frame_id = submap_frame(submap.id)
        return response
