"""A GPGMap: what is known of the terrain at one moment, as layers on a grid in a gravity-aligned frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.derived_layers import Layer, LayerContext
from gpgmap_ros.mapping.layer_stack import LayerStack, make_read_only

MIN_VARIANCE = 1e-8
"""Square metres (and of the gradient): less is round-off of the engine's single precision."""


@dataclass(frozen=True, eq=False)
class GPGMap:
    """Layers `layer[iy, ix]` (float32, y and x growing with the index; NaN where unknown) and where they lie.

    grid: cells of the layers; frame_id: frame of the grid's coordinates; stamp: of the newest data, nanoseconds.
    layers: elevation, variance, gradient_x, gradient_y, gradient_x_variance, gradient_y_variance are given; the others
    (`gpgmap.layers` lists them, mapping/layers.py describes them) are computed when they are asked for.
    config: limits for traversability and gradient_visual.
    way: (K, 3) positions of the robot while the map was made, in order, in the map's frame; empty where none is known.
        The map is bent as the odometry drifted along it.
    drift_rates: variances per metre of way, of position (m^2 / m) and rotation (rad^2 / m), that the odometry states
        for its drift there; 0 where it states none.
    Variances are known everywhere: far from data they are the prior's.
    """

    grid: Grid
    layers: Mapping[str, Layer] = field(repr=False)
    frame_id: str = "map"
    stamp: int = 0
    config: Config = field(default_factory=Config, repr=False)
    way: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)), repr=False)
    drift_rates: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        context = LayerContext(self.grid.resolution, self.config)
        object.__setattr__(self, "layers", LayerStack(self.layers, context))

    def __getitem__(self, name: str) -> Layer:
        return self.layers[name]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the cells whose elevation is known."""
        return np.isfinite(self.layers["elevation"])

    def to_open3d(self, colour: str = "height") -> Any:
        """open3d.geometry.TriangleMesh of the known surface, with normals. colour: "height" or "uncertainty" """
        from gpgmap_ros.viz.open3d_mesh import triangle_mesh  # when called: Open3D is optional

        return triangle_mesh(self, colour)


def gpgmap_from_posterior(
    posterior: GridPosterior,
    unknown: NDArray[np.bool_],
    frame_id: str,
    stamp: int,
    config: Config,
    more: Mapping[str, NDArray[np.float64]] | None = None,
) -> GPGMap:
    """The posterior as a map; elevation and gradient are NaN in the cells that are `unknown`. more: further layers"""
    layers = {
        "elevation": mask_unknown(posterior.mean, unknown),
        "variance": np.maximum(posterior.variance, MIN_VARIANCE),
        "gradient_x": mask_unknown(posterior.gradient[..., 0], unknown),
        "gradient_y": mask_unknown(posterior.gradient[..., 1], unknown),
        "gradient_x_variance": np.maximum(posterior.gradient_variance[..., 0], MIN_VARIANCE),
        "gradient_y_variance": np.maximum(posterior.gradient_variance[..., 1], MIN_VARIANCE),
        **(more or {}),
    }
    stack = {name: make_read_only(layer) for name, layer in layers.items()}
    return GPGMap(posterior.grid, stack, frame_id, stamp, config)


def mask_unknown(layer: NDArray[np.float64], unknown: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(unknown, np.nan, layer)
