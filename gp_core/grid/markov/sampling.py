"""Draws of the whole surface from the posterior under a rough kernel, by Matheron's rule (as gp_core.grid.sampling)."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.markov.fronts import Fronts
from gp_core.grid.markov.prior import MarkovPrior, make_markov_prior
from gp_core.grid.markov.splines import DEGREE, ORDER, PIECES
from gp_core.grid.markov.strips import rows_of
from gp_core.grid.markov.surface import MarkovSurface
from gp_core.grid.sampling import block_noise
from gp_core.grid.statistics import Statistics
from gp_core.grid.workers import Workers


def draw_samples(
    n: int, fronts: Fronts, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator
) -> Array:
    """(n, ny, nx) draws of f given statistics of z - z_0, for a mean of z_0."""
    c = prior_draws(n, fronts.prior, rows_of(fronts.prior), s.y.count + DEGREE, s.x.count + DEGREE, rng)
    with_data = s.weights[..., 0, 0] > 0.0
    j, i = np.nonzero(with_data)
    M, noise = block_noise(s, j, i, ORDER)
    heights = np.repeat(s.heights[None], n, axis=0)
    for k in range(n):
        near = np.lib.stride_tricks.sliding_window_view(c[k], (ORDER, ORDER))[j, i]
        polynomials = PIECES.T @ near @ PIECES
        pretended = np.einsum("nkl,nl->nk", M, polynomials.reshape(j.size, -1))
        pretended += np.einsum("nkl,nl->nk", noise, rng.standard_normal(pretended.shape))
        heights[k, j, i] -= pretended.reshape(-1, ORDER, ORDER)
    surface = MarkovSurface(fronts, grid, s.y, s.x, n, workers)
    surface.draw(with_data, s, list(heights), 1.0)
    surface.mark(with_data, s)
    surface.solve(s, 1.0)
    prior = MarkovSurface(fronts, grid, s.y, s.x, n, workers)
    prior.take(c)
    prior.draw_cells()
    unresolved = np.sqrt(surface.unresolved_variance) * rng.standard_normal((n, *grid.shape))
    return np.asarray(prior.mean_layers[:, 0] + surface.mean_layers[:, 0] + unresolved)


def prior_draws(n: int, prior: MarkovPrior, rows: int, n_y: int, n_x: int, rng: np.random.Generator) -> Array:
    """(n, n_y, n_x) draws of the coefficients from the prior: the chain of rows, as wide as the window."""
    wide = make_markov_prior(
        prior.kernel, prior.spacing, prior.correlation_length, prior.information, 2 * rows, n_x
    )
    size = rows * n_x
    C = wide.block_covariance(2 * rows, n_x)
    C[np.diag_indices(2 * size)] *= 1.0 + 1e-9
    now, across = C[:size, :size], C[size:, :size]
    L = linalg.cholesky(now, lower=True)
    half = linalg.solve_triangular(L, across.T, lower=True)
    innovation = linalg.cholesky(now - half.T @ half, lower=True)
    groups = -(-n_y // rows)
    out = np.empty((groups, size, n))
    out[0] = L @ rng.standard_normal((size, n))
    for k in range(1, groups):
        whitened = linalg.solve_triangular(L, out[k - 1], lower=True)
        out[k] = half.T @ whitened + innovation @ rng.standard_normal((size, n))
    return np.ascontiguousarray(out.reshape(groups * rows, n_x, n).transpose(2, 0, 1)[:, :n_y])
