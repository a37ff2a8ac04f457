"""A replay in the Rerun viewer while it runs: clouds, trajectory, submaps, closures, and the map at the end.

map/cloud                   the cloud of the moment
map/trajectory/NUMBER       the trajectory as recorded, some hundred poses each
map/submaps/ID              surfaces of the show_finished submaps, where odometry had them
map/surface                 at the end: the whole map under corrected poses
map/corrected_trajectory    at the end, where closures moved it
map/closures                at the end: a line between the submaps of each accepted closure
closures                    stride comparison in words, as it was made
uncertainty                 at the end: standard deviation, as a picture

Rerun is optional (170 MB): without it `--rerun` says how to install it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import triangles_of
from gpgmap_ros.viz.rendering import STYLES, colour_layer, layer_values

MAX_POINTS = 20_000
"""Of a cloud, shown: the viewer is for looking, the map has them all."""
PIECE_POSES = 200
"""Poses that are logged again with each new one: the whole trajectory each time would be gigabytes after an hour."""


class ViewerMissing(RuntimeError):
    """Rerun is not installed."""


class Viewer:
    """Streams to a viewer. name: of the recording in it; save: a file (.rrd) instead of a viewer, None for a viewer"""

    def __init__(self, name: str, save: str | None = None) -> None:
        try:
            import rerun
        except ImportError as error:
            raise ViewerMissing("--rerun needs the viewer: pip install rerun-sdk") from error
        self._rr: Any = rerun
        rerun.init(f"gpgmap {name}", spawn=save is None)
        if save is not None:
            rerun.save(save)
        rerun.log("map", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        self._piece: list[Array] = []
        self._pieces = 0

    def step(self, step: Any) -> None:
        """One cloud of a replay."""
        rr = self._rr
        rr.set_time("data", timestamp=step.cloud.stamp / 1e9)
        stride = max(1, len(step.cloud.points) // MAX_POINTS)
        points = apply(step.pose.T_map_sensor, step.cloud.points[::stride])
        rr.log("map/cloud", rr.Points3D(points, radii=0.03, colors=[120, 160, 200]))
        if len(self._piece) == PIECE_POSES:
            self._piece, self._pieces = [self._piece[-1]], self._pieces + 1
        self._piece.append(step.pose.T_map_robot[:3, 3])
        rr.log(
            f"map/trajectory/{self._pieces}", rr.LineStrips3D([np.array(self._piece)], colors=[194, 65, 12])
        )
        self.show_finished(step.submaps, step.closures)

    def show_finished(self, submaps: Iterable[Any], closures: Iterable[Any]) -> None:
        """Submaps that are complete, and what they were compared with."""
        for submap in submaps:
            self.surface(f"map/submaps/{submap.id}", submap.gpgmap, submap.T_map_submap)
        for closure in closures:
            verdict = "accepted" if closure.accepted else "refused"
            words = f"{closure.a} - {closure.b} {verdict}: {closure.reason}"
            self._rr.log("closures", self._rr.TextLog(words, level="INFO" if closure.accepted else "DEBUG"))

    def graph(self, closures: Iterable[Any], poses: Mapping[int, Array], corrected: Array) -> None:
        """The accepted closures as lines between submaps, and the trajectory (N, 3), both as corrected."""
        lines = [np.array([poses[item.a][:3, 3], poses[item.b][:3, 3]]) for item in closures if item.accepted]
        if lines:
            self._rr.log("map/closures", self._rr.LineStrips3D(lines, colors=[5, 150, 105]))
            way = self._rr.LineStrips3D([corrected], colors=[37, 99, 235])
            self._rr.log("map/corrected_trajectory", way)

    def map(self, gpgmap: GPGMap) -> None:
        """The whole map: the surface colour_layer by height, and its uncertainty as a picture."""
        self.surface("map/surface", gpgmap, np.eye(4))
        std = colour_layer(layer_values(gpgmap, "standard_deviation"), STYLES["standard_deviation"])
        self._rr.log("uncertainty", self._rr.Image(np.ascontiguousarray(std[::-1])))

    def surface(self, path: str, gpgmap: GPGMap, T_map_own: Array) -> None:
        known = gpgmap.known
        iy, ix = np.nonzero(known)
        own = np.column_stack([gpgmap.grid.x[ix], gpgmap.grid.y[iy], gpgmap["elevation"][known]])
        colours = colour_layer(gpgmap["elevation"], STYLES["elevation"])[known]
        mesh = self._rr.Mesh3D(
            vertex_positions=apply(T_map_own, own),
            triangle_indices=triangles_of(known),
            vertex_colors=colours,
        )
        self._rr.log(path, mesh)
