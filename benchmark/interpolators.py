"""What a map is compared with: linear, natural neighbour, local kriging and cell means. Each has fit-free settings."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay, cKDTree

NEIGHBOURS = 24
"""Points that local kriging uses."""


def cell_mean(train: np.ndarray, xy: np.ndarray, resolution: float) -> np.ndarray:
    """(N,) mean of the points in the same cell; NaN without any."""
    low = np.floor(np.minimum(train[:, :2].min(axis=0), xy.min(axis=0)) / resolution)
    cell, at = ((np.floor(points / resolution) - low).astype(int) for points in (train[:, :2], xy))
    width = int(max(cell[:, 1].max(), at[:, 1].max())) + 1
    flat, flat_at = cell[:, 0] * width + cell[:, 1], at[:, 0] * width + at[:, 1]
    size = int(max(flat.max(), flat_at.max())) + 1
    count, total = np.bincount(flat, minlength=size), np.bincount(flat, train[:, 2], minlength=size)
    with np.errstate(invalid="ignore"):
        return (total / count)[flat_at]


def linear(train: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """(N,) on the triangles of Delaunay; NaN outside their hull."""
    return LinearNDInterpolator(train[:, :2], train[:, 2])(xy)


def natural_neighbour(train: np.ndarray, xy: np.ndarray, around: int = 40) -> np.ndarray:
    """(N,) with the weights of Laplace: facet of the Voronoi cell over distance, among the nearest points."""
    near = cKDTree(train[:, :2]).query(xy, k=min(around, len(train)))[1]
    out = np.full(len(xy), np.nan)
    for n, index in enumerate(near):
        points = train[index, :2] - xy[n]
        unique, first = np.unique(points, axis=0, return_index=True)
        try:
            mesh = Delaunay(np.vstack([[0.0, 0.0], unique]))
        except Exception:  # all on a line
            continue
        weights = _laplace_weights(mesh)
        if weights is not None:
            out[n] = weights @ train[index[first], 2]
    return out


def _laplace_weights(mesh: Delaunay) -> np.ndarray | None:
    """Of the vertices but the first, which is the query; None where the query is on the hull."""
    corners = mesh.points[mesh.simplices[(mesh.simplices == 0).any(axis=1)]]
    own = mesh.simplices[(mesh.simplices == 0).any(axis=1)]
    if 0 in mesh.convex_hull or not len(own):
        return None
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    d = 2.0 * (a[:, 0] * (b - c)[:, 1] + b[:, 0] * (c - a)[:, 1] + c[:, 0] * (a - b)[:, 1])
    if (np.abs(d) < 1e-300).any():
        return None
    square = (corners**2).sum(axis=-1)
    x = (square[:, 0] * (b - c)[:, 1] + square[:, 1] * (c - a)[:, 1] + square[:, 2] * (a - b)[:, 1]) / d
    y = (square[:, 0] * (c - b)[:, 0] + square[:, 1] * (a - c)[:, 0] + square[:, 2] * (b - a)[:, 0]) / d
    centre, weights = np.column_stack([x, y]), np.zeros(len(mesh.points) - 1)
    for vertex in np.unique(own[own != 0]):
        both = np.flatnonzero((own == vertex).any(axis=1))
        if both.size != 2:
            return None
        facet = float(np.linalg.norm(centre[both[0]] - centre[both[1]]))
        weights[vertex - 1] = facet / float(np.linalg.norm(mesh.points[vertex]))
    total = float(weights.sum())
    return weights / total if total > 0.0 else None


class LocalKriging:
    """Ordinary kriging with the nearest points; an exponential or Matern 3/2 variogram with a nugget, of those tried
    the one under which 300 groups of neighbours are most likely."""

    def __init__(self, train: np.ndarray) -> None:
        self._train, self._tree = train, cKDTree(train[:, :2])
        rng = np.random.default_rng(3)
        middle = rng.choice(len(train), min(300, len(train)), replace=False)
        distance, near = self._tree.query(train[middle, :2], k=min(NEIGHBOURS, len(train)))
        reach = float(np.median(distance[:, -1]))
        xy, z = train[near, :2], train[near, 2]
        z = z - z.mean(axis=1, keepdims=True)
        best = -np.inf
        for shape in ("exponential", "matern32"):
            for scale in (1.0, 4.0, 16.0):
                for nugget in (1e-4, 1e-3, 1e-2, 0.1, 0.5):
                    K = _correlation(_distances(xy), shape, scale * reach) + nugget * np.eye(xy.shape[1])
                    one = np.ones(xy.shape[1])
                    solved = np.linalg.solve(K, z[..., None])[..., 0]
                    ones = np.linalg.solve(K, np.broadcast_to(one, z.shape)[..., None])[..., 0]
                    mean = solved.sum(axis=1) / ones.sum(axis=1)
                    square = (z * solved).sum(axis=1) - mean**2 * ones.sum(axis=1)
                    sill = float(np.mean(square)) / (xy.shape[1] - 1)
                    value = -0.5 * np.mean(
                        np.linalg.slogdet(K)[1]
                        + np.log(ones.sum(axis=1))
                        + (xy.shape[1] - 1) * np.log(sill)
                        + square / sill
                    )
                    if value > best:
                        best, self._model, self._sill = value, (shape, scale * reach, nugget), sill

    def predict(self, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (N,) of a measured point."""
        shape, scale, nugget = self._model
        _, near = self._tree.query(xy, k=min(NEIGHBOURS, len(self._train)))
        points, z = self._train[near, :2], self._train[near, 2]
        K = _correlation(_distances(points), shape, scale) + nugget * np.eye(points.shape[1])
        k = _correlation(np.sqrt(((points - xy[:, None]) ** 2).sum(axis=-1)), shape, scale)
        weights = np.linalg.solve(K, k[..., None])[..., 0]
        ones = np.linalg.solve(K, np.ones_like(k)[..., None])[..., 0]
        rest = (1.0 - weights.sum(axis=1)) / ones.sum(axis=1)
        weights = weights + rest[:, None] * ones
        variance = 1.0 + nugget - (weights * k).sum(axis=1) + rest
        return (weights * z).sum(axis=1), self._sill * np.maximum(variance, 1e-12)


def _distances(xy: np.ndarray) -> np.ndarray:
    return np.sqrt(((xy[:, :, None] - xy[:, None]) ** 2).sum(axis=-1))


def _correlation(distance: np.ndarray, shape: str, scale: float) -> np.ndarray:
    u = np.sqrt(3.0) * distance / scale if shape == "matern32" else distance / scale
    return (1.0 + u) * np.exp(-u) if shape == "matern32" else np.exp(-u)
