"""Descriptors of a map's ground that do not change when it is turned: which of thousands of submaps may be alike?

Around each of some places the slopes are read on rings, as complex numbers g_x + i g_y relative to the direction from
the place, h(r, a) = g(r, a) exp(-i a). Turning the map shifts a; the Fourier coefficients over a, H(r, n), only change
their phase, the same on all rings. So the products H(r, n) conj H(r', n) stay the same. They are the descriptor, scaled
to length one; the product of two of them is the sum over n of the squared correlations of both places.

A place of one map is found again in another wherever the rings around it are in both, so that a partial overlap does
not matter. Positions need not agree: places lie closer to each other than the relief on the rings changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from gp_core.arrays import Array
from gpgmap_ros.closure.registration.registration_map import Field, RegistrationMap

CELLS_ACROSS = 24.0
"""Coarse cells across a map."""
RINGS = (1.5, 3.0, 4.5)
"""Radii, in coarse cells."""
ANGLES = 16
ORDERS = (-4, -3, -2, -1, 0, 1, 2, 3, 4)
SPACING = 2
"""Of the places, in coarse cells."""
MIN_KNOWN = 0.8
"""Part of the rings that must be known."""


def descriptor_length() -> int:
    return len(ORDERS) * len(RINGS) ** 2


def coarsen(map_: RegistrationMap, stride: int) -> Field:
    """(3, rows, columns) weight, and both slopes times the weight, in blocks of stride x stride cells: means."""
    fields = np.stack([map_.weight, map_.weight * map_.slope_x, map_.weight * map_.slope_y])
    rows, columns = (-(-size // stride) for size in map_.weight.shape)
    padded = np.zeros((3, rows * stride, columns * stride), dtype=np.float32)
    padded[:, : map_.weight.shape[0], : map_.weight.shape[1]] = fields
    return np.asarray(padded.reshape(3, rows, stride, columns, stride).mean(axis=(2, 4)), dtype=np.float32)


def describe(map_: RegistrationMap, stride: int) -> NDArray[np.float32]:
    """(K, D) descriptors of the places of a map; none where it is too small for the rings.

    stride: cells of a coarse cell
    """
    weight, *slopes = coarsen(map_, stride)
    known = np.maximum(weight, 1e-6)
    g = (slopes[0] + 1j * slopes[1]) / known
    y, x = (axis.ravel() for axis in np.mgrid[0 : weight.shape[0] : SPACING, 0 : weight.shape[1] : SPACING])
    angle = 2.0 * np.pi * np.arange(ANGLES) / ANGLES
    dx = np.outer(RINGS, np.cos(angle)).ravel()
    dy = np.outer(RINGS, np.sin(angle)).ravel()
    at = np.stack([y[:, None] + dy, x[:, None] + dx]).reshape(2, -1)
    shape = (len(y), len(RINGS), ANGLES)
    there = (sampled(weight, at) > 0.3).reshape(shape)
    g_x, g_y = (sampled(part, at).reshape(shape) for part in (g.real, g.imag))
    enough = there.mean(axis=(1, 2)) >= MIN_KNOWN
    return compute_invariants((g_x + 1j * g_y)[enough], there[enough], angle)


def sampled(field: NDArray[np.floating], at: Array) -> Array:
    return np.asarray(map_coordinates(field.astype(np.float64), at, order=1, mode="constant"))


def compute_invariants(
    g: NDArray[np.complexfloating], known: NDArray[np.bool_], angle: Array
) -> NDArray[np.float32]:
    """(K, D) from slopes (K, rings, angles) around K places."""
    count = np.maximum(known.sum(axis=(1, 2), keepdims=True), 1)
    mean = np.where(known, g, 0.0).sum(axis=(1, 2), keepdims=True) / count
    h = np.where(known, g - mean, 0.0) * np.exp(-1j * angle)
    H = np.fft.fft(h, axis=2)[:, :, list(ORDERS)] * np.sqrt(np.array(RINGS))[:, None]
    G = np.einsum("kan,kbn->knab", H, H.conj())
    upper = np.triu_indices(len(RINGS), 1)
    diagonal = np.einsum("knaa->kna", G).real
    off = np.sqrt(2.0) * G[:, :, upper[0], upper[1]]
    rows = np.concatenate([diagonal, off.real, off.imag], axis=2).reshape(len(G), -1)
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norm, 1e-12), dtype=np.float32)
