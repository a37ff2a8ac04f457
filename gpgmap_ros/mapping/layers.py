"""Layers that follow from others. Nothing is computed before it is asked for, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.config import TraversabilityConfig, VisualConfig
from gpgmap_ros.mapping.traversability import traversability

Layer = NDArray[Any]

BOUND_STDS = 2.0
"""Standard deviations from the elevation to its upper and lower bound."""
MASKED, FLATTEST, STEEPEST = 0, 1, 255
"""Values of gradient_visual: uncertain or unknown; no gradient; `visual.max_gradient` and more."""


@dataclass(frozen=True)
class LayerSettings:
    """What derived layers depend on besides the layers they are derived from."""

    resolution: float
    traversability: TraversabilityConfig
    visual: VisualConfig


def bound(layers: Mapping[str, Layer], stds: float) -> Layer:
    return layers["elevation"] + stds * np.sqrt(layers["variance"])


def gradient_magnitude(layers: Mapping[str, Layer]) -> Layer:
    """|g|"""
    return np.hypot(layers["gradient_x"], layers["gradient_y"])


def slope(layers: Mapping[str, Layer]) -> Layer:
    """Angle of the surface against the horizontal, in radians: arctan |g|."""
    return np.arctan(layers["gradient_magnitude"])


def normal(layers: Mapping[str, Layer], axis: str) -> Layer:
    """Component of the upward unit normal (-g_x, -g_y, 1) / sqrt(1 + |g|^2)."""
    component = 1.0 if axis == "z" else -layers[f"gradient_{axis}"]
    return component / np.sqrt(1.0 + layers["gradient_magnitude"] ** 2)


def gradient_visual(layers: Mapping[str, Layer], config: VisualConfig) -> Layer:
    """|g| as 8 bits for feature matching, scaled alike in every map: 1 + 254 |g| / max_gradient, 0 where masked.

    A cell is masked where it is unknown or where the gradient's standard deviation, along the axis where it is
    larger, is above `max_gradient_std`.
    """
    magnitude = layers["gradient_magnitude"]
    variance = np.maximum(layers["gradient_x_variance"], layers["gradient_y_variance"])
    shown = np.isfinite(magnitude) & (variance <= config.max_gradient_std**2)
    scaled = FLATTEST + (STEEPEST - FLATTEST) * np.where(shown, magnitude, 0.0) / config.max_gradient
    return np.where(shown, np.rint(np.minimum(scaled, STEEPEST)), MASKED).astype(np.uint8)


BASE = ("elevation", "variance", "gradient_x", "gradient_y", "gradient_x_variance", "gradient_y_variance")
"""Layers that come from the posterior itself."""
POSE_VARIANCE = "pose_variance"
"""Layer of a stitched map: what the uncertainty of the submaps' poses adds to the variance; not every map has it."""
DERIVED: dict[str, Callable[[Mapping[str, Layer], LayerSettings], Layer]] = {
    "gradient_magnitude": lambda layers, _: gradient_magnitude(layers),
    "upper_bound": lambda layers, _: bound(layers, BOUND_STDS),
    "lower_bound": lambda layers, _: bound(layers, -BOUND_STDS),
    "slope": lambda layers, _: slope(layers),
    "normal_x": lambda layers, _: normal(layers, "x"),
    "normal_y": lambda layers, _: normal(layers, "y"),
    "normal_z": lambda layers, _: normal(layers, "z"),
    "traversability": lambda layers, given: traversability(layers, given.resolution, given.traversability),
    "gradient_visual": lambda layers, given: gradient_visual(layers, given.visual),
}


class LayerStack(Mapping[str, Layer]):
    """Given layers, and those of `DERIVED` computed on first use. float32, gradient_visual uint8; read-only.

    Two threads that ask for the same layer at once may both compute it; both get the same values.
    """

    def __init__(self, given: Mapping[str, Layer], settings: LayerSettings) -> None:
        self._layers = dict(given)
        self._names = (*given, *(name for name in DERIVED if name not in given))
        self._settings = settings

    def __getitem__(self, name: str) -> Layer:
        if name not in self._layers:
            if name not in DERIVED:
                raise KeyError(f"no layer '{name}'; there are {', '.join(self._names)}")
            self._layers[name] = read_only(DERIVED[name](self, self._settings))
        return self._layers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would compute the layer

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_only(layer: NDArray[Any]) -> Layer:
    """A contiguous copy in a layer's type that nobody can change by accident."""
    out = np.array(layer, dtype=np.uint8 if layer.dtype == np.uint8 else np.float32, order="C")
    out.flags.writeable = False
    return out
