"""Draws of the whole surface from the posterior, by Matheron's rule (Wilson et al., 2020).

Draw a surface f_0 from the prior and noise e, pretend that z_0 = f_0 + e was measured where the data are, and
correct the draw by what the data say about the difference:

    f = f_0 + K W' (W K W' + R)^-1 (z - z_0).

The points are gone, but W' R^-1 z_0 is all that is needed of them: W' R^-1 W c_0 follows from the moments,
and W' R^-1 e ~ N(0, W' R^-1 W) block by block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.interpolation import DEGREE, ORDER, PIECES, weights
from gp_core.grid.layers import MeanLayers
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.statistics import Statistics
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import SAFE_DEGREE, SAFE_ORDER, TileModel, lower_degree
from gp_core.grid.tiling import Images
from gp_core.grid.workers import Workers, single_threaded_blas

_ROUND_OFF = 1e-10
"""Jitter on the moments of a block, whose matrix is singular if the block holds fewer points than it has rows."""


def posterior_samples(
    n: int,
    prior: TilePrior,
    model: TileModel,
    s: Statistics,
    grid: Grid,
    workers: Workers,
    rng: np.random.Generator,
) -> Array:
    """(n, ny, nx) draws of f given statistics of z - z_0, for a mean of z_0.

    model: tiles of the mean
    """
    c = prior_coefficients(n, prior, s.y.count + DEGREE, s.x.count + DEGREE, rng)
    with_data = s.weights[:, :, 0, 0] > 0.0
    j, i = np.nonzero(with_data)
    M, noise = block_noise(s, j, i, SAFE_ORDER)
    size = SAFE_ORDER**2
    # Monomials of degree 4 and 5 follow from the lower ones as nearly as the smooth modes can tell.
    lift = lower_degree(np.eye(ORDER), SAFE_DEGREE).T
    field = MeanField(model, s.y, s.x, n)
    images = Images.covering([field], n)
    images.draw_weights(with_data, s, 1.0)
    for k in range(n):
        near = np.lib.stride_tricks.sliding_window_view(c[k], (ORDER, ORDER))[j, i]
        polynomials = (lift.T @ PIECES.T @ near @ PIECES @ lift).reshape(-1, size)
        pretended = np.einsum("nkl,nl->nk", M, polynomials)
        pretended += np.einsum("nkl,nl->nk", noise, rng.standard_normal(pretended.shape))
        heights = s.heights.copy()
        heights[j, i] -= lift @ pretended.reshape(-1, SAFE_ORDER, SAFE_ORDER) @ lift.T
        images.draw_heights(with_data, heights, 1.0, k)
    field.mark(with_data, s)
    layers = MeanLayers(field, grid.y, grid.x)
    with single_threaded_blas():
        stale = field.stale
        workers.run_all(field.jobs(images, s, 1.0))
        layers.draw(stale, workers)
    y, x = _spline_matrix(s.y.locate(grid.y), s.y.count), _spline_matrix(s.x.locate(grid.x), s.x.count)
    unresolved = np.sqrt(prior.unresolved) * rng.standard_normal((n, *grid.shape))
    out: Array = layers.layers[:, 0] + y @ c @ x.T + unresolved
    return out


def block_noise(s: Statistics, j: Any, i: Any, order: int) -> tuple[Array, Array]:
    """(N, order^2, order^2) W' R^-1 W of the monomials below `order` in each of the blocks j, i (N,), and a factor.

    The factor times a standard normal draw is W' R^-1 e.
    """
    degree = np.arange(order)[:, None] + np.arange(order)
    size = order**2
    M = s.weights[j, i][:, degree[:, None, :, None], degree[None, :, None, :]].reshape(-1, size, size)
    scale = np.einsum("nkk->nk", M)
    return M, np.linalg.cholesky(M + _ROUND_OFF * np.einsum("nk,kl->nkl", scale, np.eye(size)))


def prior_coefficients(n: int, prior: TilePrior, n_y: int, n_x: int, rng: np.random.Generator) -> Array:
    """(n, n_y, n_x) draws of the coefficients from the prior, by FFT on a torus that is large enough."""
    R_y, R_x = (k // 2 for k in prior.lags.shape)
    N_y, N_x = fft.next_fast_len(n_y + R_y + 1), fft.next_fast_len(n_x + R_x + 1)
    N_y, N_x = max(N_y, 2 * R_y + 1), max(N_x, 2 * R_x + 1)
    covariance = np.zeros((N_y, N_x))
    lag_y, lag_x = np.arange(-R_y, R_y + 1) % N_y, np.arange(-R_x, R_x + 1) % N_x
    covariance[lag_y[:, None], lag_x] = prior.lags
    power = np.maximum(fft.fft2(covariance).real, 0.0)
    white = fft.fft2(rng.standard_normal((n, N_y, N_x)))
    return np.ascontiguousarray(fft.ifft2(np.sqrt(power) * white).real[:, :n_y, :n_x])


def _spline_matrix(located: tuple[Any, Array], blocks: int) -> Array:
    """(cells, blocks + 5) values of all splines at the cells of an axis."""
    block, t = located
    out = np.zeros((t.size, blocks + DEGREE))
    columns = np.clip(block, 0, blocks - 1)[:, None] + np.arange(ORDER)
    out[np.arange(t.size)[:, None], columns] = weights(t)
    return out
