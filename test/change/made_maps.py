"""Maps of one made ground as two surveys have them, without a Gaussian process: seconds count."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.mapping import GPGMap

H = 0.2
STD = 0.01
SHAPE = (90, 110)


def make_ground(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> Array:
    z = gaussian_filter(rng.standard_normal(shape), 8.0)
    return np.asarray(0.4 * z / z.std())


def make_errors(rng: np.random.Generator, shape: tuple[int, int] = SHAPE, sigma: float = 1.5) -> Array:
    """Errors of `STD` that are alike over some cells."""
    e = gaussian_filter(rng.standard_normal(shape), sigma, mode="wrap")
    return np.asarray(STD * e / e.std())


def make_map(z: Array, origin: tuple[float, float] = (0.0, 0.0), resolution: float = H) -> GPGMap:
    g_y, g_x = np.gradient(gaussian_filter(z, 1.0), resolution)
    variance = np.full(z.shape, (0.3 * STD) ** 2)  # as stated by the map: too small
    layers = {
        "elevation": z, "variance": variance, "gradient_x": g_x, "gradient_y": g_y,
        "gradient_x_variance": variance, "gradient_y_variance": variance,
    }  # fmt: skip
    return GPGMap(
        Grid(origin, z.shape, resolution), {name: layer.astype(np.float32) for name, layer in layers.items()}
    )


def mound(volume: float, x: float, y: float, radius: float, shape: tuple[int, int] = SHAPE) -> Array:
    """Heights of a cap of so many cubic metres around (x, y)."""
    columns, rows = np.meshgrid((np.arange(shape[1]) + 0.5) * H, (np.arange(shape[0]) + 0.5) * H)
    cap = np.maximum(1.0 - ((columns - x) ** 2 + (rows - y) ** 2) / radius**2, 0.0)
    return np.asarray(volume * cap / (cap.sum() * H**2))
