"""Made ground on which different places are alike: what no DEM at hand has, and fields, quarries and Mars have.

Heights (SIZE, SIZE) in metres on cells of 1 m. Forms of one shape lie at random, except where a name says otherwise;
below them there is a relief of a few centimetres, about as much as the noise of the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Array = NDArray[np.float64]
Rng = np.random.Generator

SIZE = 700
Y, X = np.mgrid[:SIZE, :SIZE].astype(float)


def smooth(rng: Rng, length: float) -> Array:
    """A Gaussian field of unit variance."""
    field = gaussian_filter(rng.standard_normal((SIZE, SIZE)), length, mode="wrap")
    return field / field.std()


def rough(rng: Rng) -> Array:
    return 0.03 * smooth(rng, 1.5) + 0.05 * smooth(rng, 4.0)


def places(rng: Rng, count: int, reach: int) -> Iterator[tuple[tuple[slice, slice], Array]]:
    """Random places: the window around each, and the distance of its cells from it."""
    for x, y in rng.uniform(0.0, SIZE, (count, 2)):
        window = tuple(slice(max(0, int(c) - reach), int(c) + reach + 1) for c in (y, x))
        yield (window[0], window[1]), np.hypot(X[window] - x, Y[window] - y)


def craters(rng: Rng) -> Array:
    z = rough(rng)
    for window, distance in places(rng, SIZE**2 // 900, 20):
        d = distance / rng.normal(5.0, 0.5)
        z[window] += np.where(d < 1.0, -1.2 * (1.0 - d**2), 0.0) + 0.4 * np.exp(-(((d - 1.1) / 0.3) ** 2))
    return z


def mounds(rng: Rng) -> Array:
    z = rough(rng)
    for window, distance in places(rng, SIZE**2 // 500, 12):
        z[window] += np.exp(-0.5 * (distance / 2.2) ** 2)
    return z


def stones(rng: Rng) -> Array:
    """Hemispheres of many sizes, half sunk."""
    z = rough(rng) + 0.3 * smooth(rng, 30.0)
    for window, distance in places(rng, SIZE**2 // 150, 11):
        radius = min(rng.pareto(2.0) + 1.0, 9.0)
        z[window] = np.maximum(z[window], 0.6 * np.sqrt(np.maximum(radius**2 - distance**2, 0.0)))
    return gaussian_filter(z, 0.7)


def channels(rng: Rng) -> Array:
    """Winding, of one width and depth."""
    field = smooth(rng, 22.0)
    distance = field / np.maximum(np.hypot(*np.gradient(field)), 1e-3)
    return rough(rng) - 1.8 * np.exp(-((distance / 4.0) ** 4))


def ditches(rng: Rng) -> Array:
    """Straight, crossing at right angles: every crossing is like every other, at four yaws."""
    z = rough(rng) + 0.2 * smooth(rng, 50.0)
    for axis in (X, Y):
        for at in np.cumsum(rng.uniform(15.0, 45.0, SIZE // 15)):
            z -= np.exp(-(((axis - at) / 2.0) ** 2))
    return z


def roads(rng: Rng) -> Array:
    """A dam between two ditches, every 50 m."""
    z = rough(rng)
    for middle in range(25, SIZE, 50):
        d = X - middle - 6.0 * smooth(rng, 80.0)
        z += 0.6 * np.exp(-((d / 4.0) ** 6)) - 0.7 * np.exp(-(((np.abs(d) - 8.0) / 2.0) ** 2))
    return z


def ruts(rng: Rng) -> Array:
    """Of two wheels each, in all directions."""
    z = rough(rng) + 0.4 * smooth(rng, 40.0)
    for _ in range(SIZE // 35):
        angle, offset = rng.uniform(0.0, np.pi), 0.7 * rng.uniform(-SIZE, SIZE)
        d = X * np.cos(angle) + Y * np.sin(angle) - offset - 8.0 * smooth(rng, 70.0)
        z -= 0.3 * (np.exp(-((d - 2.5) ** 2)) + np.exp(-((d + 2.5) ** 2)))
    return z


def terraces(rng: Rng) -> Array:
    """Benches of one height along the contours of a hill."""
    level = 2.5 * smooth(rng, 40.0) + 0.8 * smooth(rng, 15.0)
    bench = np.floor(level)
    return rough(rng) + 3.0 * (bench + 1.0 / (1.0 + np.exp(-14.0 * (level - bench - 0.5))))


def dunes(rng: Rng) -> Array:
    """18 m apart, of much the same direction."""
    ky, kx = np.meshgrid(np.fft.fftfreq(SIZE), np.fft.fftfreq(SIZE), indexing="ij")
    turned = np.arctan2(ky, kx) % np.pi - 0.3
    band = np.exp(-(((np.hypot(kx, ky) - 1.0 / 18.0) / 0.012) ** 2) - turned**2 / 0.08)
    field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((SIZE, SIZE))) * band).real
    field /= field.std()
    return rough(rng) + 0.8 * field + 0.2 * np.abs(field)


def furrows(rng: Rng) -> Array:
    """Of a plough, 6 m apart."""
    return (
        rough(rng) + 0.25 * np.sin(2.0 * np.pi * X / 6.0 + 0.6 * smooth(rng, 60.0)) + 0.3 * smooth(rng, 25.0)
    )


def pits(rng: Rng) -> Array:
    """In rows and columns, 14 m apart."""
    d = ((X % 14.0) - 7.0) ** 2 + ((Y % 14.0) - 7.0) ** 2
    return rough(rng) + 0.15 * smooth(rng, 30.0) - 0.8 * np.exp(-d / 8.0)


REPEATING: dict[str, Callable[[Rng], Array]] = {
    make.__name__: make
    for make in (
        craters, mounds, stones, channels, ditches, roads, ruts, terraces, dunes, furrows, pits,
    )
}  # fmt: skip
