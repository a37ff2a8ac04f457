"""Ground whose true height is known everywhere: fractals of several roughnesses, boulders, steps, patches.

Heights and places are in cells. A fractal of smoothness nu has a spectrum that falls as f^-(2 nu + 2), flat below one
wave in 60 cells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

CELLS, SAMPLES = 90, 8
"""Cells along a side, and heights along a cell."""
_LONGEST = 60.0


def grounds(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Name and heights (n, n), `SAMPLES` to a cell, of every kind of ground."""
    for nu in (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0):
        yield f"fractal, nu {nu}", fractal(rng, nu, slope=0.2)
    yield "boulders", add_boulders(rng, fractal(rng, 1.5, slope=0.05))
    yield "steps", add_steps(rng, fractal(rng, 1.5, slope=0.05))
    smooth, rough = fractal(rng, 1.5, slope=0.03), fractal(rng, 0.75, slope=0.4)
    rough[:, : len(rough) // 2] = smooth[:, : len(rough) // 2]
    yield "patches", rough


def fractal(rng: np.random.Generator, nu: float, slope: float) -> np.ndarray:
    """slope: of the differences across a cell, rms"""
    n = (CELLS + 1) * SAMPLES
    f_y, f_x = np.fft.fftfreq(2 * n, 1.0 / SAMPLES), np.fft.rfftfreq(2 * n, 1.0 / SAMPLES)
    amplitude = (f_y[:, None] ** 2 + f_x**2 + _LONGEST**-2) ** (-0.5 * (nu + 1.0))
    heights = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((2 * n, 2 * n))) * amplitude)[:n, :n]
    return heights * slope / np.sqrt(np.mean((heights[SAMPLES:] - heights[:-SAMPLES]) ** 2))


def add_boulders(rng: np.random.Generator, heights: np.ndarray) -> np.ndarray:
    y, x = np.mgrid[: len(heights), : len(heights)] / SAMPLES
    for _ in range(60):
        centre, radius = rng.uniform(0.0, CELLS + 1.0, 2), rng.uniform(1.0, 4.0)
        rest = 1.0 - ((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / radius**2
        heights = np.where(rest > 0.0, np.maximum(heights, 0.6 * radius * np.sqrt(np.abs(rest))), heights)
    return heights


def add_steps(rng: np.random.Generator, heights: np.ndarray) -> np.ndarray:
    y, x = np.mgrid[: len(heights), : len(heights)] / SAMPLES
    for _ in range(4):
        angle, centre = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(0.2, 0.8, 2) * CELLS
        beyond = (x - centre[0]) * np.cos(angle) + (y - centre[1]) * np.sin(angle) > 0.0
        heights = heights + rng.uniform(0.5, 2.0) * beyond
    return heights
