"""Frames of the demo's animation: where ground and trajectories land, and that the GIF keeps its frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("rosbags", reason="rosbags is not installed: the demo records its drive with it")

from gpgmap_ros.demo.animation import BAND, PIXEL, Canvas, draw_caption, draw_ground, draw_line, write_gif
from gpgmap_ros.viz.rendering import UNKNOWN


def test_cells_land_where_they_are() -> None:
    canvas = Canvas((-2.0, 1.0), (40, 60))
    heights = np.full(canvas.shape, np.nan)
    layer = np.array([[1.0, np.nan], [2.0, 3.0]])
    canvas.paste(heights, layer, (0.0, 2.0), 2 * PIXEL)
    # cell (0, 0) begins at x = 0, y = 2: 20 pixels from the left, 10 from below; each is two pixels wide
    assert (heights[10:12, 20:22] == 1.0).all()
    assert (heights[12:14, 20:22] == 2.0).all()
    assert (heights[12:14, 22:24] == 3.0).all()
    assert np.isfinite(heights).sum() == 12
    # newer ground lies over older; what is beyond the picture is left out
    canvas.paste(heights, np.array([[9.0]]), (0.0, 2.0), PIXEL)
    canvas.paste(heights, np.array([[9.0]]), (100.0, 2.0), PIXEL)
    assert heights[10, 20] == 9.0
    assert np.isfinite(heights).sum() == 12
    [(u, v)] = canvas.pixel(np.array([[0.0, 2.0]]))
    assert (round(u, 6), round(v, 6)) == (20.0, 30.0), "row 0 of the picture is the largest y"


def test_ground_is_north_up_with_room_for_the_caption() -> None:
    heights = np.full((30, 40), np.nan)
    heights[20:, :] = 1.0
    frame = draw_ground(heights, (0.0, 2.0))
    assert frame.size == (40, 30 + BAND)
    pixels = np.asarray(frame)
    assert (pixels[25, 5] == UNKNOWN).all(), "the south is unknown"
    assert (pixels[2, 5] != UNKNOWN).any()


def test_the_gif_has_every_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = []
    for number in range(5):
        frame = draw_ground(rng.uniform(0.0, 1.0, (40, 300)), (0.0, 1.0))
        draw_line(frame, [(0.0, 0.0), (10.0 * number, 30.0)], (200, 30, 30))
        draw_caption(frame, f"frame {number}", (200, 30, 30))
        frames.append(frame)
    path = tmp_path / "a.gif"
    write_gif(path, frames, [50, 60, 70, 80, 2000])
    with Image.open(path) as read:
        assert read.n_frames == 5
        read.seek(4)
        assert read.info["duration"] == 2000
        assert read.info["loop"] == 0
