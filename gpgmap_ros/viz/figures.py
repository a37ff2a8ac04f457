"""GPGMap layers as figures for people: metres on the axes, a scale beside each, unknown ground in grey."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: works without a display

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LightSource, ListedColormap, LogNorm, Normalize
from numpy.typing import NDArray

from gpgmap_ros.mapping.derived_layers import Layer
from gpgmap_ros.mapping.layers import LAYERS, ColourScale, image_topics
from gpgmap_ros.storage.atomic import atomic_write
from gpgmap_ros.viz.rendering import STYLES, colour_table, limits

UNKNOWN = "0.82"


def draw_layer(axes: Any, name: str, values: Layer, extent: tuple[float, float, float, float]) -> None:
    """Draw one layer with the colours of the table of layers; elevation is shaded from the north-west.

    name: of the layer, or of the topic on which it is published
    """
    axes.set_facecolor(UNKNOWN)
    options: dict[str, Any] = {"origin": "lower", "extent": extent, "interpolation": "nearest"}
    scale, shown = scale_values(name, values)
    low, high = limits(shown, scale)
    norm = (LogNorm if scale.logarithmic else Normalize)(low, high)
    colours = ListedColormap(colour_table(scale) / 255.0)
    image = axes.imshow(shown, cmap=colours, norm=norm, **options)
    if scale.shaded:
        axes.imshow(hillshade(values, extent), **options)
    axes.set_title(scale.title)
    axes.set_xlabel("x [m]")
    axes.set_ylabel("y [m]")
    axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label=scale.unit)


def scale_values(name: str, values: Layer) -> tuple[ColourScale, Layer]:
    """The colour scale of a layer, or of a topic's layer, and the values in its unit; variances as their roots."""
    row = LAYERS[image_topics().get(name, name)]
    if row.scale is None and row.drawn_as:
        return STYLES[row.drawn_as], np.sqrt(values)
    scale = STYLES[row.name]
    return scale, values * np.float32(scale.factor)


def hillshade(elevation: Layer, extent: tuple[float, float, float, float]) -> Layer:
    """Transparent black (rows, columns, 4): dark where the ground faces away from a light in the north-west."""
    cell = (extent[1] - extent[0]) / elevation.shape[1]
    filled = np.where(np.isfinite(elevation), elevation, np.nanmean(elevation))
    # LightSource thinks of row 0 as north
    light = LightSource(azdeg=315, altdeg=40).hillshade(filled[::-1], vert_exag=1.5, dx=cell, dy=cell)[::-1]
    shade = np.zeros((*elevation.shape, 4), dtype=np.float32)
    shade[..., 3] = np.where(np.isfinite(elevation), 0.75 * (1.0 - light), 0.0)
    return shade


def save_figures(
    layers: Mapping[str, Layer],
    corner: tuple[float, float],
    resolution: float,
    folder: Path,
    track: NDArray[np.float64] | None = None,
) -> list[Path]:
    """One PNG per layer, and all side by side in gpgmap.png; returns the paths.

    corner: x and y of the corner of cell (0, 0); track: where the sensor was, (N, 2), drawn on the map.
    """
    rows, columns = next(iter(layers.values())).shape
    x, y = corner
    extent = (x, x + columns * resolution, y, y + rows * resolution)
    paths = [folder / f"{name}.png" for name in layers]
    for path, (name, values) in zip(paths, layers.items(), strict=True):
        figure, axes = new_figure(figsize=(6.4, 5.4), layout="constrained")
        draw_layer(axes, name, values, extent)
        draw_track(axes, track)
        write_figure(figure, path)
    figure, all_axes = new_figure(1, len(layers), figsize=(5.2 * len(layers), 4.4), layout="constrained")
    for axes, (name, values) in zip(np.atleast_1d(all_axes), layers.items(), strict=True):
        draw_layer(axes, name, values, extent)
        draw_track(axes, track)
    overview = folder / "gpgmap.png"
    write_figure(figure, overview)
    return [overview, *paths]


def draw_track(axes: Any, track: NDArray[np.float64] | None) -> None:
    if track is not None and len(track):
        axes.plot(track[:, 0], track[:, 1], color="white", linewidth=1.0, alpha=0.8)
        axes.plot(*track[0], marker="o", color="white", markersize=4)


def new_figure(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure that is only ever written to a file, and its axes."""
    return plt.subplots(rows, columns, **options)


def write_figure(figure: Any, path: Path) -> None:
    """Write a PNG, and close the figure."""
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=110)
    plt.close(figure)
