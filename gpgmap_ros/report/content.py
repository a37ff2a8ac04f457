"""What the page shows, as plain values. Everything is computed here; the page only draws."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros import __version__
from gpgmap_ros.config import Config, settings
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import reported_layers
from gpgmap_ros.report.encoding import data_uri, encoded
from gpgmap_ros.viz.pairs import pair_of, pair_pictures, residual_limit
from gpgmap_ros.viz.rendering import (
    STYLES,
    bands,
    certainty,
    colour_table,
    layer_values,
    limits,
    png,
    transparent,
)

if TYPE_CHECKING:
    from gpgmap_ros.io.trajectory import Trajectory

MOST_CELLS = 2_500_000
"""Cells of the page's map; a larger one is shown with coarser cells, and the page says so."""
MAP_BYTES = 2_600_000
"""Of the page's map as text, with all its layers: a page of any drive can be sent by mail. Coarser cells beyond it."""
LEVELS = 1000
"""Values that a layer other than the elevation is shown with: more than there are colours, and they pack well."""
FADES = 16
"""Steps in which the relief fades out at the edges of the data."""
MOST_POSES = 4000
MOST_VIEWS = 60
"""Closures with a picture: accepted ones first, then those that came nearest to it."""
MOST_CLOSURES = 1000
"""Closures that are listed; closures.json has all of them."""
PICTURE_CELLS = (80, 240)
"""Cells along the longer side of a picture: of MOST_VIEWS, and of few of them."""


@dataclass
class Content:
    """title, subtitle: of the page; abstract: sentences; facts: (name, value) of the first table
    grid, layers: of the map; frame: its name; note: what the reader must know about the map shown
    tracks: lines on the map, each with name, kind and points; closures, submaps: see below
    drives: one row each where there are several
    timings: (stage, seconds); fates: (what became of points, number); warnings: sentences; settings: all of them"""

    title: str
    subtitle: str
    abstract: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    map: dict[str, Any] | None = None
    tracks: list[dict[str, Any]] = field(default_factory=list)
    closures: list[dict[str, Any]] = field(default_factory=list)
    submaps: list[dict[str, Any]] = field(default_factory=list)
    drives: list[dict[str, Any]] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    fates: list[tuple[str, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    made: str = ""


def layers_of(gpgmap: GPGMap, names: Iterable[str] | None = None, coordinates: str = "") -> dict[str, Any]:
    """The map for the page.

    names: layers, those that the table of layers reports unless given
    coordinates: what x and y refer to, the map's frame unless given
    """
    shown = reported_layers(gpgmap.layers) if names is None else names
    frame = coordinates or f"frame '{gpgmap.frame_id}'"
    return encoded_layers(ShownLayers(gpgmap, tuple(shown)), gpgmap.grid, frame, certainty(gpgmap))


class ShownLayers(Mapping[str, NDArray[Any]]):
    """Layers of a map in their styles' units, each computed when it is asked for and not kept."""

    def __init__(self, gpgmap: GPGMap, names: tuple[str, ...]) -> None:
        self._gpgmap, self._names = gpgmap, names

    def __getitem__(self, name: str) -> NDArray[Any]:
        return layer_values(self._gpgmap, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def encoded_layers(
    values: Mapping[str, NDArray[Any]],
    grid: Grid,
    coordinates: str,
    certain: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """values: layers in their styles' units, all of the grid's shape
    certain: share of the relief's shade that is shown in each cell (viz.rendering.certainty); all of it where None
    """
    shrink = int(np.ceil(np.sqrt(grid.shape[0] * grid.shape[1] / MOST_CELLS)))
    while True:
        page = _encode_shrunk(values, grid, coordinates, certain, shrink)
        size = sum(len(layer["data"]) for layer in page["layers"])
        if size <= MAP_BYTES or max(page["rows"], page["columns"]) <= PICTURE_CELLS[0]:
            return page
        shrink = max(shrink + 1, int(0.95 * shrink * np.sqrt(size / MAP_BYTES)))


def _encode_shrunk(
    values: Mapping[str, NDArray[Any]],
    grid: Grid,
    coordinates: str,
    certain: NDArray[Any] | None,
    shrink: int,
) -> dict[str, Any]:
    """`encoded_layers` with cells so many times larger."""
    rows, columns = (-(-size // shrink) for size in grid.shape)
    note = (
        f"Shown with cells of {shrink * grid.resolution:g} m; the files have {grid.resolution:g} m."
        if shrink > 1
        else ""
    )
    return {
        "rows": rows,
        "columns": columns,
        "resolution": grid.resolution * shrink,
        "origin": list(grid.origin),
        "coordinates": coordinates,
        # in coarse steps, which nobody sees and which pack well
        "certain": None if certain is None else encoded(np.round(FADES * shrunk(certain, shrink)) / FADES),
        "note": note,
        "layers": [described(name, shrunk(layer, shrink)) for name, layer in values.items()],
    }


def described(name: str, layer: NDArray[Any]) -> dict[str, Any]:
    style = STYLES[name]
    return {
        "name": name,
        "title": style.title,
        "unit": style.unit,
        "logarithmic": style.logarithmic,
        "shaded": style.shaded,
        "limits": list(style.report_range or limits(layer, style)),
        "colours": "".join(f"{r:02x}{g:02x}{b:02x}" for r, g, b in colour_table(style)),
        **encoded(layer, None if name == "elevation" else LEVELS),
    }


def shrunk(layer: NDArray[Any], factor: int) -> NDArray[Any]:
    """Means of squares of cells, of those known."""
    if factor == 1:
        return layer
    rows, columns = (-(-size // factor) for size in layer.shape)
    out = np.empty((rows, columns), np.float32)
    for band in bands(out.shape):
        part = layer[band.start * factor : band.stop * factor]
        height = min(band.stop, rows) - band.start
        padded = np.full((height * factor, columns * factor), np.nan, dtype=np.float32)
        padded[: part.shape[0], : part.shape[1]] = part
        blocks = padded.reshape(height, factor, columns, factor)
        known = np.isfinite(blocks)
        count = known.sum(axis=(1, 3))
        total = np.where(known, blocks, 0.0).sum(axis=(1, 3), dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            out[band] = np.where(count > 0, total / count, np.nan)
    return out


def track_of(name: str, kind: str, trajectory: Trajectory) -> dict[str, Any]:
    """A line for the page: seconds from its beginning, x, y, z. kind: odometry, corrected or truth"""
    every = max(1, -(-len(trajectory) // MOST_POSES))
    positions, stamps = trajectory.positions[::every], trajectory.stamps[::every]
    seconds = (stamps - stamps[0]) / 1e9 if len(stamps) else stamps
    return {
        "name": name,
        "kind": kind,
        "time": np.round(seconds, 3).tolist(),
        "x": np.round(positions[:, 0], 3).tolist(),
        "y": np.round(positions[:, 1], 3).tolist(),
        "z": np.round(positions[:, 2], 3).tolist(),
    }


def closure_views(
    closures: Iterable[Any],
    poses: Mapping[int, Array],
    map_of: Callable[[int], GPGMap],
    on_map: Collection[int] | None = None,
) -> list[dict[str, Any]]:
    """The closures for the page, accepted ones first, longest loops first, with pictures in the earlier submap's frame.

    closures: LoopClosure; poses: T_map_submap, corrected; map_of: the map of a submap by its number
    on_map: numbers of the submaps that are on the page's map, all unless given: only between those lines are drawn
    """
    order = sorted(closures, key=lambda item: (not item.accepted, item.a - item.b, -item.probability))
    order = order[:MOST_CLOSURES]
    shown = [item for item in order[:MOST_VIEWS] if np.isfinite(_std(item)).all()]
    fewest, most = PICTURE_CELLS
    cells = int(np.clip(fewest * np.sqrt(MOST_VIEWS / max(len(shown), 1)), fewest, most))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # moving, drawing and compressing pictures hold no lock
        pictures = dict(
            zip(
                ((item.a, item.b) for item in shown),
                pool.map(lambda item: side_by_side(map_of(item.b), map_of(item.a), item.T_a_b, cells), shown),
                strict=True,
            )
        )
    drawn = [on_map is None or {item.a, item.b} <= set(on_map) for item in order]
    return [
        closure_view(item, poses) | {"drawn": line} | pictures.get((item.a, item.b), {})
        for item, line in zip(order, drawn, strict=True)
    ]


def closure_view(item: Any, poses: Mapping[int, Array]) -> dict[str, Any]:
    """What the page says of a closure."""
    std = _std(item)
    return {
        "a": item.a,
        "b": item.b,
        "accepted": bool(item.accepted),
        "probability": round(float(item.probability), 6),
        "overlap": round(float(item.overlap), 4),
        "reason": item.reason,
        "from": np.round(poses[item.a][:2, 3], 3).tolist(),
        "to": np.round(poses[item.b][:2, 3], 3).tolist(),
        "shift": np.round(item.T_a_b[:3, 3], 3).tolist(),
        "yaw": round(float(np.degrees(np.arctan2(item.T_a_b[1, 0], item.T_a_b[0, 0]))), 4),
        "std": [float(f"{value:.4g}") for value in std] if np.isfinite(std).all() else None,
    }


def _std(item: Any) -> Array:
    return np.asarray(np.sqrt(np.clip(np.diagonal(item.covariance), 0.0, None)))


def side_by_side(source: GPGMap, target: GPGMap, T_target_source: Array, cells: int) -> dict[str, Any]:
    """Pictures of two maps on each other. cells: along the longer side, at most"""
    pair = pair_of(source, target, T_target_source, cells)
    residual = pair.residual
    known = residual[np.isfinite(residual)]
    heights = {"source": pair.source.elevation, "target": pair.target.elevation, "difference": residual}
    pictures = {
        name: data_uri(png(transparent(pixels, np.isfinite(heights[name])), level=6))
        for name, pixels in pair_pictures(pair).items()
    }
    return {
        "pictures": pictures,
        "size": [pair.grid.shape[1], pair.grid.shape[0]],
        "width": pair.grid.shape[1] * pair.grid.resolution,
        "shared": pair.shared,
        "residual": {
            "median": float(np.median(np.abs(known))) if known.size else None,
            "rms": float(np.sqrt(np.mean(known**2))) if known.size else None,
            "limit": residual_limit(pair),
        },
    }


def settings_rows(config: Config) -> list[dict[str, Any]]:
    return [
        {
            "name": item.name,
            "value": plain(item.value),
            "default": plain(item.default),
            "unit": item.unit,
            "meaning": item.meaning,
            "changed": item.value != item.default,
        }
        for item in settings(config)
    ]


def plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def describe_origin() -> str:
    """Which version made the page, and when."""
    now = datetime.datetime.now(datetime.UTC)
    return f"Made by gpgmap {__version__} on {now:%Y-%m-%d %H:%M} UTC."
