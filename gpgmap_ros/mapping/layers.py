"""The table of layers: one row says what a layer is, how it is computed, how it is coloured and who shows it.

Messages, exports, figures and the report read this table: a new layer is a new row of `LAYERS`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from gpgmap_ros.config import MappingConfig
from gpgmap_ros.mapping.derived_layers import (
    BOUND_STDS,
    Layer,
    LayerContext,
    bound,
    gradient_magnitude,
    gradient_visual,
    normal,
    slope,
    standard_deviation,
    standard_deviation_with_poses,
)
from gpgmap_ros.mapping.traversability import traversability

Formula = Callable[[Mapping[str, Layer], LayerContext], Layer]


@dataclass(frozen=True)
class ColourScale:
    """How the values of a layer become colours.

    title: for people; unit: of the numbers shown, which are the layer's values times `factor`
    colours: a colour map of matplotlib, its part `span`
    zero: the scale begins at zero; symmetric: zero is in the middle; logarithmic: the scale is; shaded: with relief
    report_range: fixed ends of the scale in the report; those of the data where None
    """

    title: str
    unit: str
    colours: str
    factor: float = 1.0
    zero: bool = False
    symmetric: bool = False
    logarithmic: bool = False
    shaded: bool = False
    span: tuple[float, float] = (0.0, 1.0)
    report_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class LayerRow:
    """One layer.

    unit: of its values in files and messages; meaning: for people
    formula: computes it from other layers; None where the map is made with it
    optional: only maps that were made with it have it: stitched with uncertain poses, or with learned noise
    needs: optional layer without which its formula gives nothing to show
    display_only: computed for figures and the report; `GPGMap.layers` does not list it
    known_only: exported as nodata where the elevation is unknown, although its values are known everywhere
    scale: its colours; None where it is not drawn itself
    drawn_as: layer whose colours show the square root of this one, which is how a variance is drawn
    topic: of the node's Image, below the node's name; empty where there is none
    grid_map: in the node's GridMap and in submaps; global_map: in the node's map of all submaps
    exported: as GeoTIFF and in GridMap bags; reported: in the report and as PNG
    figure: the Image that was received is drawn as a figure with axes, by the demo
    """

    name: str
    unit: str
    meaning: str
    formula: Formula | None = None
    optional: bool = False
    needs: str = ""
    display_only: bool = False
    known_only: bool = False
    scale: ColourScale | None = None
    drawn_as: str = ""
    topic: str = ""
    grid_map: bool = False
    global_map: bool = False
    exported: bool = False
    reported: bool = False
    figure: bool = False


POSE_VARIANCE = "pose_variance"
"""Layer of a stitched map: what the uncertainty of the submaps' poses adds to the variance; not every map has it."""

NOISE_VARIANCE = "noise_variance"
"""Layer of a map with `mapping.learn_noise`: how far a measured point scatters about the surface."""

TRAVERSABILITY = "traversability"
"""The one layer that takes longer to derive than to keep."""

_ROWS = (
    LayerRow(
        "elevation", "m", "height of the ground",
        scale=ColourScale("Elevation", "m", "gist_earth", shaded=True, span=(0.32, 0.97)),
        topic="elevation", grid_map=True, global_map=True, exported=True, reported=True, figure=True,
    ),
    LayerRow(
        "variance", "m^2", "variance of the elevation; that of the prior where the ground is unknown",
        known_only=True, drawn_as="standard_deviation",
        topic="variance", grid_map=True, global_map=True, exported=True, figure=True,
    ),
    LayerRow(
        "standard_deviation", "m", "standard deviation of the elevation on known ground",
        formula=lambda layers, _: standard_deviation(layers), display_only=True,
        scale=ColourScale("Uncertainty (1 std)", "m", "magma", logarithmic=True), reported=True,
    ),
    LayerRow(
        "standard_deviation_with_poses", "m", "standard deviation of the elevation at given coordinates",
        formula=lambda layers, _: standard_deviation_with_poses(layers), needs=POSE_VARIANCE, display_only=True,
        scale=ColourScale("Uncertainty with poses", "m", "magma", logarithmic=True), reported=True,
    ),
    LayerRow(
        "upper_bound", "m", f"elevation plus {BOUND_STDS:g} standard deviations",
        formula=lambda layers, _: bound(layers, BOUND_STDS), grid_map=True,
    ),
    LayerRow(
        "lower_bound", "m", f"elevation minus {BOUND_STDS:g} standard deviations",
        formula=lambda layers, _: bound(layers, -BOUND_STDS), grid_map=True,
    ),
    LayerRow(
        "gradient_x", "m/m", "slope of the ground along x",
        scale=ColourScale("Gradient along x", "m/m", "RdBu_r", symmetric=True),
        topic="gradient_x", grid_map=True, global_map=True, exported=True,
    ),
    LayerRow(
        "gradient_y", "m/m", "slope of the ground along y",
        scale=ColourScale("Gradient along y", "m/m", "RdBu_r", symmetric=True),
        topic="gradient_y", grid_map=True, global_map=True, exported=True,
    ),
    LayerRow("gradient_x_variance", "(m/m)^2", "variance of gradient_x", known_only=True),
    LayerRow("gradient_y_variance", "(m/m)^2", "variance of gradient_y", known_only=True),
    LayerRow(
        "gradient_magnitude", "m/m", "length of the gradient",
        formula=lambda layers, _: gradient_magnitude(layers),
        scale=ColourScale("Gradient", "m/m", "viridis", zero=True),
        topic="gradient", grid_map=True, global_map=True, exported=True, reported=True, figure=True,
    ),
    LayerRow(
        "slope", "rad", "angle of the ground against the horizontal",
        formula=lambda layers, _: slope(layers),
        scale=ColourScale("Slope", "°", "cividis", factor=180.0 / np.pi, zero=True),
        grid_map=True, exported=True, reported=True,
    ),
    LayerRow(
        "normal_x", "", "x of the upward unit normal", formula=lambda layers, _: normal(layers, "x"), grid_map=True
    ),
    LayerRow(
        "normal_y", "", "y of the upward unit normal", formula=lambda layers, _: normal(layers, "y"), grid_map=True
    ),
    LayerRow(
        "normal_z", "", "z of the upward unit normal", formula=lambda layers, _: normal(layers, "z"), grid_map=True
    ),
    LayerRow(
        TRAVERSABILITY, "probability", "probability that slope and step are within the robot's limits",
        formula=lambda layers, at: traversability(layers, at.resolution, at.config.traversability),
        scale=ColourScale("Traversability", "", "RdYlGn", zero=True, report_range=(0.0, 1.0)),
        grid_map=True, global_map=True, exported=True, reported=True,
    ),
    LayerRow(
        "gradient_visual", "", "length of the gradient as 8 bits for feature matching, 0 where it is uncertain",
        formula=lambda layers, at: gradient_visual(layers, at.config.visual), topic="gradient_visual",
    ),
    LayerRow(
        NOISE_VARIANCE, "m^2", "variance of a measured point about the surface, learned by place",
        optional=True, known_only=True, grid_map=True, exported=True,
    ),
    LayerRow(
        POSE_VARIANCE, "m^2", "what the uncertainty of the submaps' poses adds to the variance",
        optional=True, known_only=True, global_map=True, exported=True,
    ),
)  # fmt: skip

LAYERS: dict[str, LayerRow] = {row.name: row for row in _ROWS}
"""The rows by name, in the order in which layers are listed everywhere."""
BASE = tuple(row.name for row in _ROWS if row.formula is None and not row.optional)
"""Layers that come from the posterior itself: a map is made with these."""
STORED = (*BASE, NOISE_VARIANCE, POSE_VARIANCE)
"""Layers that files keep: the others follow from them."""


def posterior_layers(mapping: MappingConfig) -> tuple[str, ...]:
    """Layers that a map with these settings is made with."""
    return (*BASE, NOISE_VARIANCE) if mapping.learn_noise else BASE


def image_topics() -> dict[str, str]:
    """Topic below the node's name -> the layer that is published there as an Image."""
    return {row.topic: row.name for row in LAYERS.values() if row.topic}


def grid_map_layers(available: Collection[str] = ()) -> tuple[str, ...]:
    """Layers of the node's GridMap messages, of the map around the robot and of submaps; optional ones only where they
    are `available`."""
    return tuple(
        row.name for row in LAYERS.values() if row.grid_map and (not row.optional or row.name in available)
    )


def global_map_layers(available: Collection[str]) -> tuple[str, ...]:
    """Layers of the node's map of all submaps. available: names of the layers the map has"""
    return tuple(row.name for row in LAYERS.values() if row.global_map and row.name in available)


def exported_layers(available: Collection[str] = ()) -> tuple[str, ...]:
    """Layers that are exported to files; optional ones only where they are `available`."""
    return tuple(
        row.name for row in LAYERS.values() if row.exported and (not row.optional or row.name in available)
    )


def reported_layers(available: Collection[str] = ()) -> tuple[str, ...]:
    """Layers of the report and of the pictures beside it. available: names of the layers the map has"""
    return tuple(
        row.name for row in LAYERS.values() if row.reported and (not row.needs or row.needs in available)
    )


def figure_topics() -> tuple[str, ...]:
    """Topics of the Images that are drawn as figures with axes."""
    return tuple(row.topic for row in LAYERS.values() if row.figure and row.topic)
