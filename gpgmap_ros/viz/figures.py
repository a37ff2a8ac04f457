"""GPGMap layers as figures for people: metres on the axes, a scale beside each, unknown ground in grey."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: works without a display

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LightSource, LogNorm, Normalize
from numpy.typing import NDArray

from gpgmap_ros.storage.atomic import atomic_write

Layer = NDArray[np.float32]
UNKNOWN = "0.82"
PERCENTILES = (1.0, 99.0)  # a few extreme cells must not flatten the picture


def panel(axes: Any, layer: str, values: Layer, extent: tuple[float, float, float, float]) -> None:
    """Draw one layer: elevation shaded from the north-west, variance as standard deviation on a log scale."""
    axes.set_facecolor(UNKNOWN)
    options: dict[str, Any] = {"origin": "lower", "extent": extent, "interpolation": "nearest"}
    low, high = np.nanpercentile(values, PERCENTILES) if np.isfinite(values).any() else (0.0, 1.0)
    high = max(high, low + 1e-6)
    if layer == "elevation":
        image = axes.imshow(values, cmap="gist_earth", norm=Normalize(low, high), **options)
        axes.imshow(hillshade(values, extent), **options)
        title, label = "elevation", "m"
    elif layer == "variance":
        std = np.sqrt(values)
        image = axes.imshow(
            std, cmap="magma", norm=LogNorm(max(np.sqrt(low), 1e-4), np.sqrt(high)), **options
        )
        title, label = "standard deviation", "m"
    else:
        image = axes.imshow(values, cmap="viridis", norm=Normalize(0.0, high), **options)
        title, label = "gradient magnitude", "m/m"
    axes.set_title(title)
    axes.set_xlabel("x [m]")
    axes.set_ylabel("y [m]")
    axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label=label)


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
        figure, axes = plt.subplots(figsize=(6.4, 5.4), layout="constrained")
        panel(axes, name, values, extent)
        draw_track(axes, track)
        write(figure, path)
    figure, all_axes = plt.subplots(1, len(layers), figsize=(5.2 * len(layers), 4.4), layout="constrained")
    for axes, (name, values) in zip(np.atleast_1d(all_axes), layers.items(), strict=True):
        panel(axes, name, values, extent)
        draw_track(axes, track)
    overview = folder / "gpgmap.png"
    write(figure, overview)
    return [overview, *paths]


def draw_track(axes: Any, track: NDArray[np.float64] | None) -> None:
    if track is not None and len(track):
        axes.plot(track[:, 0], track[:, 1], color="white", linewidth=1.0, alpha=0.8)
        axes.plot(*track[0], marker="o", color="white", markersize=4)


def write(figure: Any, path: Path) -> None:
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=110)
    plt.close(figure)
