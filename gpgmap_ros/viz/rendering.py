"""Layers as pictures, one pixel per cell: colours, shaded relief, PNG. Plain arrays, no axes, fast."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgmap_ros.mapping.derived_layers import Layer
from gpgmap_ros.mapping.layers import LAYERS, ColourScale
from gpgmap_ros.storage.atomic import write_bytes

Pixels = NDArray[np.uint8]

UNKNOWN = (209, 209, 206)
LIGHT_AZIMUTH, LIGHT_ALTITUDE = np.deg2rad(315.0), np.deg2rad(45.0)
"""The light comes from the north-west, as on every map."""
DARKEST = 0.35
"""Of the light on level ground: a wall in the shade keeps a colour."""
VAGUE_SLOPE = 0.15
"""Standard deviation of a gradient, m/m, at which half of the shade is shown."""
PERCENTILES = (1.5, 98.5)
LEAST = 1e-4
"""The low end of a logarithmic scale, at least."""
BAND_CELLS = 1 << 18
"""Cells that are drawn at a time: a whole map in floats, several times over, would be most of a replay's memory."""


class LayerStyles(Mapping[str, ColourScale]):
    """The colour scales of the layers that have one, as the table of layers has them now."""

    def __getitem__(self, name: str) -> ColourScale:
        scale = LAYERS[name].scale
        if scale is None:
            raise KeyError(f"layer '{name}' has no colour scale")
        return scale

    def __iter__(self) -> Iterator[str]:
        return (row.name for row in LAYERS.values() if row.scale is not None)

    def __len__(self) -> int:
        return sum(row.scale is not None for row in LAYERS.values())


STYLES = LayerStyles()


@lru_cache(maxsize=16)
def colour_table(style: ColourScale) -> Pixels:
    """(256, 3) of a colour map of matplotlib. The blue and white ends of an atlas's would look like sea and snow."""
    from matplotlib import colormaps

    return np.round(255.0 * colormaps[style.colours](np.linspace(*style.span, 256))[:, :3]).astype(np.uint8)


def limits(values: Layer, style: ColourScale) -> tuple[float, float]:
    """Ends of the scale: a few extreme cells must not flatten the picture."""
    known = values[np.isfinite(values)]
    if not known.size:
        return (LEAST if style.logarithmic else 0.0), 1.0
    low, high = (float(value) for value in np.percentile(known, PERCENTILES))
    if style.symmetric:
        high = max(abs(low), abs(high), 1e-6)
        return -high, high
    if style.zero:
        low = 0.0
    if style.logarithmic:
        low = max(low, LEAST)
    return low, max(high, low * (1.0 + 1e-3), low + 1e-6)


def colour_layer(values: Layer, style: ColourScale, ends: tuple[float, float] | None = None) -> Pixels:
    """(rows, columns, 3), in the order of the layer."""
    low, high = ends or limits(values, style)
    with np.errstate(invalid="ignore", divide="ignore"):
        if style.logarithmic:
            share = np.log(np.maximum(values, low) / low) / np.log(high / low)
        else:
            share = (values - low) / (high - low)
        index = np.nan_to_num(255.0 * np.clip(share, 0.0, 1.0)).astype(np.uint8)
    pixels: Pixels = colour_table(style)[index]
    pixels[~np.isfinite(values)] = UNKNOWN
    return pixels


def relief_shade(gradient_x: Layer, gradient_y: Layer, exaggeration: float = 1.2) -> Layer:
    """Lambert shading (rows, columns) in [0, 1] from the GP's own gradients: no differences of noisy heights."""
    gx, gy = exaggeration * gradient_x, exaggeration * gradient_y
    light = np.array(
        [
            np.sin(LIGHT_AZIMUTH) * np.cos(LIGHT_ALTITUDE),
            np.cos(LIGHT_AZIMUTH) * np.cos(LIGHT_ALTITUDE),
            np.sin(LIGHT_ALTITUDE),
        ]
    )
    facing = (light[2] - gx * light[0] - gy * light[1]) / np.sqrt(1.0 + gx**2 + gy**2)
    clipped: Layer = np.clip(facing, 0.0, 1.0)
    return clipped


def certainty(gpgmap: Any) -> Layer:
    """(rows, columns) in [0, 1]: how well the slope is known, 1/2 at a standard deviation of `VAGUE_SLOPE`.

    At the edges of the data the surface bends back to its mean: relief that is shaded there would be a rim, not ground.
    """
    out: Layer = gpgmap["gradient_x_variance"] + gpgmap["gradient_y_variance"]
    out *= np.float32(0.5 / VAGUE_SLOPE**2)
    out += np.float32(1.0)
    np.reciprocal(out, out=out)
    return np.nan_to_num(out, copy=False)


def shade_factor(light: Layer, strength: float = 0.75, certain: Layer | float = 1.0) -> Layer:
    """(rows, columns): what colours are multiplied with, 1 on flat ground and on ground that is hardly known.

    certain: share of the shade that is shown in each cell, see `certainty`
    """
    flat = np.sin(LIGHT_ALTITUDE)
    factor: Layer = np.maximum(1.0 + strength * certain * np.nan_to_num(light - flat) / flat, DARKEST)
    return factor


def shade_pixels(
    pixels: Pixels, light: Layer, strength: float = 0.75, certain: Layer | float = 1.0
) -> Pixels:
    """Pixels darkened by the shade, see `shade_factor`."""
    factor = shade_factor(light, strength, certain)
    shaded: Pixels = np.clip(pixels * factor[..., None], 0, 255).astype(np.uint8)
    return shaded


def picture(gpgmap: Any, name: str, ends: tuple[float, float] | None = None) -> Pixels:
    """A layer of a GPGMap, colour_layer as its style says; relief where the style has it."""
    style, layer = STYLES[name], gpgmap[name]
    ends = ends or limits(layer_values(gpgmap, name), style)
    shading = (
        ("elevation", "gradient_x", "gradient_y", "gradient_x_variance", "gradient_y_variance")
        if style.shaded
        else ()
    )
    pixels: Pixels = np.empty((*layer.shape, 3), np.uint8)
    for rows in bands(layer.shape):
        part = {item: gpgmap[item][rows] for item in (name, *shading)}
        drawn = colour_layer(layer_values(part, name), style, ends)
        if style.shaded:
            light = relief_shade(part["gradient_x"], part["gradient_y"])
            drawn = shade_pixels(drawn, light, certain=certainty(part))
            drawn[~np.isfinite(part["elevation"])] = UNKNOWN
        pixels[rows] = drawn
    return pixels


def bands(shape: tuple[int, ...]) -> Iterator[slice]:
    """Rows of a layer of this shape, some `BAND_CELLS` at a time."""
    step = max(BAND_CELLS // max(shape[1], 1), 1)
    return (slice(row, row + step) for row in range(0, shape[0], step))


def layer_values(gpgmap: Any, name: str) -> Layer:
    """The values of a layer in the unit of its colour scale."""
    values: Layer = gpgmap[name] * np.float32(STYLES[name].factor)
    return values


def transparent(pixels: Pixels, known: NDArray[np.bool_]) -> Pixels:
    """(rows, columns, 4): cells that are not known let the page behind them be seen."""
    return np.dstack([pixels, np.where(known, 255, 0).astype(np.uint8)])


def png(pixels: Pixels, path: Path | None = None, level: int = 4) -> bytes:
    """North up: row 0 of the picture is the last of the layer. Returns the file's bytes, written to `path` if given."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[::-1])).save(buffer, "PNG", compress_level=level)
    if path is not None:
        write_bytes(path, buffer.getvalue())
    return buffer.getvalue()
