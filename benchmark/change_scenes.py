"""Two surveys of one made ground, with cut and fill between them, for benchmark/change.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIDE = 30.0
"""Metres along the ground."""
DENSITY = 80.0
"""Points per square metre of each survey."""
LATTICE = 0.05
"""Metres between the nodes of the true surface, which is bilinear between them."""
GROUNDS = ("smooth", "rough", "blocks", "gullies")


@dataclass(frozen=True)
class Mound:
    """Fill of `volume` cubic metres (cut where negative) around (x, y): a cap that ends at `radius`."""

    x: float
    y: float
    radius: float
    volume: float
    power: float

    def height(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """volume of (1 - r^2 / R^2)^p: pi R^2 / (p + 1)"""
        inside = np.maximum(1.0 - ((x - self.x) ** 2 + (y - self.y) ** 2) / self.radius**2, 0.0)
        return self.volume * (self.power + 1.0) / (np.pi * self.radius**2) * inside**self.power


def make_ground(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Heights (n, n) of the lattice."""
    n = int(SIDE / LATTICE) + 1
    if kind == "smooth":
        return spectral(n, rng, 0.8, 12.0, smallest=1.0)
    if kind == "rough":
        return spectral(n, rng, 0.5, 12.0, exponent=3.6)
    if kind == "blocks":
        z = spectral(n, rng, 0.4, 12.0, exponent=3.8)
        x, y = np.meshgrid(np.arange(n) * LATTICE, np.arange(n) * LATTICE)
        for _ in range(60):
            cx, cy, size = *rng.uniform(0.0, SIDE, 2), rng.uniform(0.15, 0.7)
            z = np.maximum(
                z,
                np.where(
                    np.hypot(x - cx, y - cy) < size, z[int(cy / LATTICE), int(cx / LATTICE)] + size, -1e9
                ),
            )
        return z
    z = spectral(n, rng, 0.3, 10.0, exponent=3.8)
    x, y = np.meshgrid(np.arange(n) * LATTICE, np.arange(n) * LATTICE)
    return z + 0.3 * y + 0.8 * np.abs(np.sin(0.45 * x + 0.6 * spectral(n, rng, 1.0, 14.0, exponent=5.0)))


def spectral(
    n: int, rng: np.random.Generator, std: float, largest: float, exponent: float = 0.0, smallest: float = 0.0
) -> np.ndarray:
    """A periodic surface of twice the side, cut: power f^-exponent from waves of `largest` metres down, or Gaussian."""
    m = 2 * n
    f = np.hypot(np.fft.fftfreq(m, LATTICE)[:, None], np.fft.rfftfreq(m, LATTICE)[None, :])
    power = (
        1.0 / (f**2 + largest**-2.0) ** (exponent / 2.0)
        if exponent
        else np.exp(-((f * largest / 2.0) ** 2)) + 1e-4 * np.exp(-((f * smallest) ** 2))
    )
    power[0, 0] = 0.0
    z = np.fft.irfft2(np.sqrt(power) * np.fft.rfft2(rng.standard_normal((m, m))), s=(m, m))[:n, :n]
    return std * (z - z.mean()) / z.std()


def heights_at(lattice: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    from scipy.ndimage import map_coordinates

    return map_coordinates(lattice, [y / LATTICE, x / LATTICE], order=1, mode="nearest")


def survey(lattice: np.ndarray, mounds: list[Mound], rng: np.random.Generator, noise: float) -> np.ndarray:
    """Points (N, 3): uneven density, noise along all axes, a frame that is off, and a long wave as of a trajectory."""
    count = int(DENSITY * SIDE**2)
    x, y = rng.uniform(0.0, SIDE, (2, 2 * count))
    waves = np.sin(2.0 * np.pi * (x / rng.uniform(8, 25) + rng.uniform())) * np.sin(
        2.0 * np.pi * (y / rng.uniform(8, 25) + rng.uniform())
    )
    kept = rng.uniform(size=x.size) < 0.5 * (1.0 + 0.6 * waves)
    for _ in range(3):  # what stood in the way
        cx, cy = rng.uniform(0.0, SIDE, 2)
        kept &= np.hypot(x - cx, y - cy) > rng.uniform(0.3, 1.0)
    x, y = x[kept], y[kept]
    at_x, at_y = x + noise * rng.standard_normal(x.size), y + noise * rng.standard_normal(x.size)
    z = heights_at(lattice, at_x, at_y) + sum(m.height(at_x, at_y) for m in mounds)
    z = z + noise * rng.standard_normal(x.size)
    z = z + 0.3 * noise * np.sin(2.0 * np.pi * (x / rng.uniform(10, 40) + rng.uniform()))
    tilt = np.radians(0.03) * rng.standard_normal(2)
    shift = np.array([0.05, 0.05, 0.03]) * rng.standard_normal(3)
    z = z + tilt[0] * (x - SIDE / 2) + tilt[1] * (y - SIDE / 2)
    return np.column_stack([x, y, z]) + shift


def place_mounds(rng: np.random.Generator, count: int, volumes: tuple[float, float]) -> list[Mound]:
    """Cut and fill at random places, apart from each other, with volumes log-uniform between two bounds."""
    mounds: list[Mound] = []
    while len(mounds) < count:
        volume = float(np.exp(rng.uniform(*np.log(volumes)))) * rng.choice([-1.0, 1.0])
        radius = float(np.exp(rng.uniform(*np.log([0.8, 2.2])))) * max(abs(volume), 0.3) ** (1 / 3)
        x, y = rng.uniform(3.0, SIDE - 3.0, 2)
        if all(np.hypot(x - m.x, y - m.y) > radius + m.radius + 2.0 for m in mounds):
            mounds.append(Mound(x, y, radius, volume, rng.choice([0.5, 1.0, 2.0])))
    return mounds
