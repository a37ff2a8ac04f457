"""The coarse ground under a large map: a surface that is bilinear between nodes many length scales apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array

Index = NDArray[np.int64]


class CoarseGround:
    """The coarse ground: mean heights at the nodes of a lattice, bilinear between them.

    clouds: points (N, 3) of the whole map; spacing: of the lattice
    """

    def __init__(self, clouds: Iterable[Array], grid: Grid, spacing: float) -> None:
        x_min, y_min, x_max, y_max = grid.bounds
        self._origin, self._spacing = np.array([x_min, y_min]) - spacing, spacing
        shape = tuple(
            int(np.ceil((high - low) / spacing)) + 4 for low, high in ((y_min, y_max), (x_min, x_max))
        )
        weights, heights = np.zeros(shape), np.zeros(shape)
        for xyz in clouds:
            for row, column, share in self._corners(xyz[:, :2], shape):
                np.add.at(weights, (row, column), share)
                np.add.at(heights, (row, column), share * xyz[:, 2])
        self._nodes = fill_gaps(heights, weights)

    def height(self, xy: Array) -> Array:
        """(N,) at positions (N, 2)."""
        corners = self._corners(xy, self._nodes.shape)
        total: Array = np.sum([share * self._nodes[row, column] for row, column, share in corners], axis=0)
        return total

    def gradient(self, xy: Array) -> Array:
        """(N, 2) at positions (N, 2)."""
        (row, column), (s, t) = self._locate(xy, self._nodes.shape)
        z = self._nodes
        south, north = z[row, column + 1] - z[row, column], z[row + 1, column + 1] - z[row + 1, column]
        west, east = z[row + 1, column] - z[row, column], z[row + 1, column + 1] - z[row, column + 1]
        return np.column_stack([(1.0 - t) * south + t * north, (1.0 - s) * west + s * east]) / self._spacing

    def _locate(self, xy: Array, shape: tuple[int, ...]) -> tuple[tuple[Index, Index], tuple[Array, Array]]:
        u = (xy - self._origin) / self._spacing
        column = np.clip(np.floor(u[:, 0]).astype(int), 0, shape[1] - 2)
        row = np.clip(np.floor(u[:, 1]).astype(int), 0, shape[0] - 2)
        return (row, column), (u[:, 0] - column, u[:, 1] - row)

    def _corners(self, xy: Array, shape: tuple[int, ...]) -> Iterator[tuple[Index, Index, Array]]:
        (row, column), (s, t) = self._locate(xy, shape)
        for dy, share_y in ((0, 1.0 - t), (1, t)):
            for dx, share_x in ((0, 1.0 - s), (1, s)):
                yield row + dy, column + dx, share_x * share_y


def fill_gaps(heights: Array, weights: Array) -> Array:
    """Mean heights; a node without any gets the mean of its neighbours, and so on outwards."""
    out = np.divide(heights, weights, out=np.zeros_like(heights), where=weights > 0.0)
    known = weights > 0.0
    while not known.all():
        sums, count = np.zeros_like(out), np.zeros_like(out)
        padded, mask = np.pad(out * known, 1), np.pad(known, 1)
        for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2)):
            part = np.s_[dy : dy + out.shape[0], dx : dx + out.shape[1]]
            sums, count = sums + padded[part], count + mask[part]
        new = ~known & (count > 0)
        out[new] = sums[new] / count[new]
        known |= new
    return out
