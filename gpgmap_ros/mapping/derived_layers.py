"""Formulas of the layers that follow from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpgmap_ros.arrays import AnyArray
from gpgmap_ros.config import Config, VisualConfig

Layer = AnyArray
"""A layer `[iy, ix]`: float32, or uint8."""

BOUND_STDS = 2.0
"""Standard deviations from the elevation to its upper and lower bound."""
MASKED, FLATTEST, STEEPEST = 0, 1, 255
"""Values of gradient_visual: uncertain or unknown; no gradient; `visual.max_gradient` and more."""


@dataclass(frozen=True)
class LayerContext:
    """What derived layers depend on besides other layers. resolution: edge of a cell, metres"""

    resolution: float
    config: Config


def bound(layers: Mapping[str, Layer], stds: float) -> Layer:
    """Elevation plus `stds` standard deviations."""
    out: Layer = layers["elevation"] + stds * np.sqrt(layers["variance"])
    return out


def gradient_magnitude(layers: Mapping[str, Layer]) -> Layer:
    """|g|"""
    return np.hypot(layers["gradient_x"], layers["gradient_y"])


def slope(layers: Mapping[str, Layer]) -> Layer:
    """Angle of the surface against the horizontal, in radians: arctan |g|."""
    return np.arctan(layers["gradient_magnitude"])


def normal(layers: Mapping[str, Layer], axis: str) -> Layer:
    """Component of the upward unit normal (-g_x, -g_y, 1) / sqrt(1 + |g|^2)."""
    component = 1.0 if axis == "z" else -layers[f"gradient_{axis}"]
    out: Layer = component / np.sqrt(1.0 + layers["gradient_magnitude"] ** 2)
    return out


def gradient_visual(layers: Mapping[str, Layer], config: VisualConfig) -> Layer:
    """|g| as 8 bits for feature matching, on the same scale in every map: 1 + 254 |g| / max_gradient, 0 where masked.

    A cell is masked where it is unknown or where the gradient's standard deviation, along the axis where it is
    larger, is above `max_gradient_std`.
    """
    magnitude = layers["gradient_magnitude"]
    variance = np.maximum(layers["gradient_x_variance"], layers["gradient_y_variance"])
    shown = np.isfinite(magnitude) & (variance <= config.max_gradient_std**2)
    scaled = FLATTEST + (STEEPEST - FLATTEST) * np.where(shown, magnitude, 0.0) / config.max_gradient
    return np.where(shown, np.rint(np.minimum(scaled, STEEPEST)), MASKED).astype(np.uint8)


def standard_deviation(layers: Mapping[str, Layer]) -> Layer:
    """sqrt(variance) on known ground; NaN elsewhere, where the variance is the prior's."""
    known = np.isfinite(layers["elevation"])
    return np.where(known, np.sqrt(layers["variance"]), np.nan).astype(np.float32)


def standard_deviation_with_poses(layers: Mapping[str, Layer]) -> Layer:
    """sqrt(variance + pose_variance) on known ground; NaN elsewhere."""
    known = np.isfinite(layers["elevation"])
    return np.where(known, np.sqrt(layers["variance"] + layers["pose_variance"]), np.nan).astype(np.float32)
