"""A replay in the Rerun viewer while it runs: clouds, trajectory, submaps, closures, and the map at the end.

Rerun is optional (170 MB): without it `--rerun` says how to install it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpgmap_ros.geometry import Array, apply
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import triangles_of
from gpgmap_ros.viz.rendering import STYLES, coloured, layer_values

MOST_POINTS = 20_000
"""Of a cloud, shown: the viewer is for looking, the map has them all."""


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
        self._track: list[Array] = []

    def step(self, step: Any) -> None:
        """One cloud of a replay."""
        rr = self._rr
        rr.set_time("data", timestamp=step.stamp / 1e9)
        every = max(1, len(step.points) // MOST_POINTS)
        points = apply(step.pose.T_map_sensor, step.points[::every])
        rr.log("map/cloud", rr.Points3D(points, radii=0.03, colors=[120, 160, 200]))
        self._track.append(step.pose.T_map_robot[:3, 3])
        rr.log("map/trajectory", rr.LineStrips3D([np.array(self._track)], colors=[194, 65, 12]))
        for submap in step.submaps:
            self.surface(f"map/submaps/{submap.id}", submap.gpgmap, submap.T_map_submap)
        for closure in step.closures:
            if closure.accepted:
                rr.log("closures", rr.TextLog(f"{closure.a} - {closure.b}: {closure.reason}"))

    def map(self, gpgmap: GPGMap) -> None:
        """The whole map: the surface coloured by height, and its uncertainty as a picture."""
        self.surface("map/surface", gpgmap, np.eye(4))
        std = coloured(layer_values(gpgmap, "standard_deviation"), STYLES["standard_deviation"])
        self._rr.log("uncertainty", self._rr.Image(np.ascontiguousarray(std[::-1])))

    def surface(self, path: str, gpgmap: GPGMap, T_map_own: Array) -> None:
        known = gpgmap.known
        iy, ix = np.nonzero(known)
        own = np.column_stack([gpgmap.grid.x[ix], gpgmap.grid.y[iy], gpgmap["elevation"][known]])
        colours = coloured(gpgmap["elevation"], STYLES["elevation"])[known]
        mesh = self._rr.Mesh3D(
            vertex_positions=apply(T_map_own, own),
            triangle_indices=triangles_of(known),
            vertex_colors=colours,
        )
        self._rr.log(path, mesh)
