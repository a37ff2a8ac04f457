"""The demo as an animated GIF: the map grows as it was received, then the loop closes and the submaps move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from gpgmap_ros.demo.outcome import Outcome, final_drift
from gpgmap_ros.demo.scene import Scene
from gpgmap_ros.geometry import Array, interpolate
from gpgmap_ros.storage.atomic import atomic_write
from gpgmap_ros.viz.rendering import STYLES, UNKNOWN, colour_layer, relief_shade, shade_pixels

PIXEL = 0.1  # metres of ground
BAND = 46  # pixels below the map, for the caption
GROWING_FRAMES = 42
"""Of the maps received, at most so many are shown."""
CLOSING_STEPS = 14
FRAME_MS, CLOSING_MS, PAUSE_MS, END_MS = 80, 70, 1100, 3500
COLOURS = 128
PAPER, INK = (253, 253, 251), (29, 29, 27)
ODOMETRY, CORRECTED, CLOSURE = (194, 65, 12), (11, 110, 138), (21, 128, 61)
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Canvas:
    """A picture of the ground: x and y of its lower left corner, rows and columns of pixels."""

    corner: tuple[float, float]
    shape: tuple[int, int]

    def paste(self, heights: Array, layer: NDArray[Any], corner: Sequence[float], resolution: float) -> None:
        """Lay the known cells of a layer over the heights (rows, columns), in place."""
        iy, ix = np.nonzero(np.isfinite(layer))
        size = max(1, round(resolution / PIXEL))
        row = np.floor((corner[1] + iy * resolution - self.corner[1]) / PIXEL + 0.5).astype(int)
        column = np.floor((corner[0] + ix * resolution - self.corner[0]) / PIXEL + 0.5).astype(int)
        for down in range(size):
            for right in range(size):
                r, c = row + down, column + right
                inside = (r >= 0) & (c >= 0) & (r < self.shape[0]) & (c < self.shape[1])
                heights[r[inside], c[inside]] = layer[iy[inside], ix[inside]]

    def pixel(self, xy: Array) -> list[tuple[float, float]]:
        """Positions (N, 2) in the picture, whose row 0 is the largest y."""
        u = (xy[:, 0] - self.corner[0]) / PIXEL
        v = self.shape[0] - (xy[:, 1] - self.corner[1]) / PIXEL
        return list(zip(u.tolist(), v.tolist(), strict=True))


def write_animation(
    path: Path,
    history: Path,
    scene: Scene,
    outcome: Outcome,
    received: set[tuple[int, int]],
    scale: tuple[float, float],
) -> None:
    """history: folder with the maps received, as map_recorder keeps them; received: closures as pairs of submaps
    scale: elevations at the ends of the colour scale"""
    canvas = canvas_around(scene, outcome)
    frames = [
        *growing_frames(canvas, history, scene, scale),
        *closing_frames(canvas, scene, outcome, received, scale),
    ]
    write_gif(path, [picture for picture, _ in frames], [duration for _, duration in frames])


def canvas_around(scene: Scene, outcome: Outcome) -> Canvas:
    """Large enough for the map before and after."""
    reach = outcome.config.filter.max_range
    positions = np.vstack([scene.odometry.positions, scene.truth.positions])[:, :2]
    low, high = positions.min(axis=0) - reach, positions.max(axis=0) + reach
    columns, rows = (int(np.ceil(size / PIXEL)) for size in high - low)
    return Canvas((float(low[0]), float(low[1])), (rows, columns))


def growing_frames(
    canvas: Canvas, history: Path, scene: Scene, scale: tuple[float, float]
) -> Iterator[tuple[Image.Image, int]]:
    """The maps in the order in which they arrived, each laid over those before."""
    heights = np.full(canvas.shape, np.nan)
    paths = sorted(history.glob("*.npz"), key=lambda path: int(path.stem))
    stride = -(-len(paths) // GROWING_FRAMES)
    for number, path in enumerate(paths):
        with np.load(path) as kept:
            canvas.paste(heights, kept["elevation"], kept["corner"], float(kept["resolution"]))
            count = int(np.searchsorted(scene.odometry.stamps, int(kept["stamp"]), side="right"))
        if number % stride and number < len(paths) - 1:
            continue
        frame = draw_ground(heights, scale)
        positions = scene.odometry.positions[:count, :2]
        draw_line(frame, canvas.pixel(positions), ODOMETRY)
        draw_dot(frame, canvas.pixel(positions[-1:])[0], ODOMETRY)
        distance = float(np.linalg.norm(np.diff(scene.truth.positions[:count], axis=0), axis=1).sum())
        drift = float(np.linalg.norm(scene.odometry.positions[count - 1] - scene.truth.positions[count - 1]))
        draw_caption(frame, f"mapping live: {distance:.0f} m driven, odometry off by {drift:.1f} m", ODOMETRY)
        yield frame, FRAME_MS


def closing_frames(
    canvas: Canvas,
    scene: Scene,
    outcome: Outcome,
    received: set[tuple[int, int]],
    scale: tuple[float, float],
) -> Iterator[tuple[Image.Image, int]]:
    """The submaps move from where odometry has them to where the pose graph has them."""
    odometry, corrected = scene.odometry.positions, outcome.correct(scene.odometry).positions
    before, after = final_drift(scene, outcome)
    for share in np.linspace(0.0, 1.0, CLOSING_STEPS):
        eased = float(share * share * (3.0 - 2.0 * share))
        poses = {
            number: interpolate(T, outcome.corrected_poses[number], eased)
            for number, T in outcome.odometry_poses.items()
        }
        gpgmap = outcome.stitch(poses, 2.0 * PIXEL)
        heights = np.full(canvas.shape, np.nan)
        canvas.paste(heights, gpgmap["elevation"], gpgmap.grid.origin, gpgmap.grid.resolution)
        frame = draw_ground(heights, scale)
        positions = (1.0 - eased) * odometry + eased * corrected
        colour = tuple(round((1 - eased) * a + eased * b) for a, b in zip(ODOMETRY, CORRECTED, strict=True))
        draw_line(frame, canvas.pixel(positions[:, :2]), colour)
        for a, b in sorted(received):
            ends = np.array([poses[a][:2, 3], poses[b][:2, 3]])
            draw_line(frame, canvas.pixel(ends), CLOSURE, 4)
            for end in canvas.pixel(ends):
                draw_dot(frame, end, CLOSURE)
        last = share == 1.0
        text = f"loop closed: drift {before:.1f} m before, {100 * after:.0f} cm after"
        draw_caption(
            frame, text if last else "a place recognized: closing the loop", CORRECTED if last else CLOSURE
        )
        yield frame, PAUSE_MS if share == 0.0 else END_MS if last else CLOSING_MS


def draw_ground(heights: Array, scale: tuple[float, float]) -> Image.Image:
    """Shaded relief, north up, with room for a caption."""
    gradient_y, gradient_x = np.gradient(heights, PIXEL)
    known = np.isfinite(gradient_x) & np.isfinite(gradient_y)
    light = relief_shade(np.where(known, gradient_x, 0.0), np.where(known, gradient_y, 0.0))
    pixels = shade_pixels(
        colour_layer(heights, STYLES["elevation"], scale), light, certain=known.astype(np.float32)
    )
    pixels[~np.isfinite(heights)] = UNKNOWN
    ground = Image.fromarray(np.ascontiguousarray(pixels[::-1]))
    frame = Image.new("RGB", (ground.width, ground.height + BAND), PAPER)
    frame.paste(ground, (0, 0))
    return frame


def draw_line(
    frame: Image.Image, points: list[tuple[float, float]], colour: tuple[int, ...], width: int = 3
) -> None:
    draw = ImageDraw.Draw(frame)
    draw.line(points, fill=(255, 255, 255), width=width + 3, joint="curve")
    draw.line(points, fill=colour, width=width, joint="curve")


def draw_dot(frame: Image.Image, point: tuple[float, float], colour: tuple[int, ...]) -> None:
    u, v = point
    box = (u - 6, v - 6, u + 6, v + 6)
    ImageDraw.Draw(frame).ellipse(box, fill=colour, outline=(255, 255, 255), width=2)


def draw_caption(frame: Image.Image, text: str, colour: tuple[int, ...]) -> None:
    draw, top = ImageDraw.Draw(frame), frame.height - BAND
    draw.rectangle((0, top, 6, frame.height), fill=colour)
    draw.text((18, top + BAND / 2), text, fill=INK, font=ImageFont.load_default(19), anchor="lm")


def write_gif(path: Path, frames: Sequence[Image.Image], durations: Sequence[int]) -> None:
    """One palette for all frames, so that what does not change costs nothing."""
    shown = [frames[0], frames[len(frames) // 2], frames[-1]]
    montage = Image.new("RGB", (sum(frame.width for frame in shown), shown[0].height))
    for number, frame in enumerate(shown):
        montage.paste(frame, (number * frame.width, 0))
    palette = montage.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    with atomic_write(path) as file:
        flat[0].save(
            file,
            "GIF",
            save_all=True,
            append_images=flat[1:],
            duration=list(durations),
            loop=0,
            optimize=True,
        )
