"""The likelihood of the points, from their statistics: tile by tile, each given the ones before it.

    log p(z) = sum over tiles of log p(z_tile | z of earlier tiles in its halo),

which is exact if the halo screens what lies beyond it (Vecchia, 1988; Stein, Chi and Welty, 2004). On a set
of blocks with normal equations A, b and modes with prior covariance C_0, with Y = (z, H) the heights and the
trend's basis functions,

    Y' S^-1 Y = Y' R^-1 Y - B' P^-1 B,     log |S| = log |R| + log |C_0 P|,     P = C_0^-1 + A,

and each factor above is the set with the tile minus the set without it. The derivative by the prior is

    d log p = 1/2 tr (gamma gamma' - Gamma) dC_0,   gamma = C_0^-1 eta,  Gamma = C_0^-1 - C_0^-1 P^-1 C_0^-1,

summed over the sets with their signs, then taken from C_0 to the lags of the lattice to the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_solve

from gp_core.arrays import Array
from gp_core.grid.marginal_likelihood import MarginalLikelihood
from gp_core.grid.normal_matrix import information, safe_inverse
from gp_core.grid.statistics import COUNT, LOG_VARIANCE, Mask, Statistics
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import SAFE_ORDER, WEIGHT_MOMENTS, TileModel, lag_weights
from gp_core.grid.tiling import TileField
from gp_core.grid.trend import TrendBasis, trend_products


@dataclass(frozen=True)
class _Set:
    """Normal equations of one set of blocks, solved."""

    sign: float
    B: Array  # (r, K)
    eta: Array  # (r, K)
    data_energy: Array  # (K, K) eta' A eta
    log_determinant: float
    covariance: Array = field(repr=False)


@dataclass
class _Terms:
    """The terms of the sum over tiles.

    sets: the sets of blocks, solved, with the signs of their terms
    gram: (K, K) Y' R^-1 Y of the points that the terms cover
    totals: (3,) `Statistics.totals` of these points
    """

    sets: list[_Set]
    gram: Array
    totals: Array


def tile_likelihood(
    prior: TilePrior,
    model: TileModel,
    s: Statistics,
    basis: TrendBasis,
    *,
    noise_factor: float = 1.0,
    tiles: Mask | None = None,
    gradient: bool = True,
) -> MarginalLikelihood:
    """log p(z), the trend estimated with it, and its derivatives.

    noise_factor: on all noise variances
    tiles: (tiles_y, tiles_x) tiles whose cores to use, independently of each other; all tiles, each given the
        ones before it, if None
    """
    terms = _collect_terms(model, s, basis, noise_factor, tiles)
    gram, totals = terms.gram.copy(), terms.totals
    for part in terms.sets:
        gram -= part.sign * (part.B.T @ part.eta)
    log_prior = float(np.linalg.slogdet(model.covariance)[1])
    log_determinant = sum(part.sign * (part.log_determinant + log_prior) for part in terms.sets)
    beta, beta_covariance = np.zeros(0), np.zeros((0, 0))
    if basis.count and totals[COUNT] > 0.0:
        beta_covariance = safe_inverse(gram[1:, 1:])
        beta = beta_covariance @ gram[1:, 0]
    y = np.concatenate([[1.0], -beta]) if beta.size else np.eye(1 + basis.count)[0]
    count = totals[COUNT]
    value = -0.5 * float(
        y @ gram @ y + log_determinant + totals[LOG_VARIANCE] + count * np.log(2.0 * np.pi * noise_factor)
    )
    if not gradient:
        return MarginalLikelihood(value, beta, beta_covariance, np.zeros(prior.kernel.theta.size), 0.0)
    theta_gradient, noise_gradient = _gradients(prior, model, terms.sets, gram, y, count)
    return MarginalLikelihood(value, beta, beta_covariance, theta_gradient, noise_gradient)


def _collect_terms(
    model: TileModel, s: Statistics, basis: TrendBasis, noise_factor: float, tiles: Mask | None
) -> _Terms:
    """Solve the sets of all tiles with data: with and without the tile, or the tile alone if `tiles` are given."""
    field_ = TileField(model, s.y, s.x)
    moments = [s.heights, *basis.moments(s)]
    products = trend_products(basis.count, s, basis.center) / noise_factor
    with_data = s.weights[:, :, 0, 0] > 0.0
    visited: Mask = np.zeros(with_data.shape, dtype=np.bool_)
    out = _Terms([], np.zeros(products.shape[2:]), np.zeros(3))
    for j, i in np.ndindex(field_.tiling.shape):
        own = _domain(field_, j, i, with_data.shape, core=True)
        if (tiles is not None and not tiles[j, i]) or not with_data[own].any():
            continue
        out.gram += products[own].sum((0, 1))
        out.totals += s.totals[own].sum((0, 1))
        if tiles is None:
            before = visited & with_data
            if before[_domain(field_, j, i, with_data.shape, core=False)].any():
                out.sets.append(_solve_set(field_, j, i, s, moments, before, noise_factor, -1.0))
            visited[own] = True
            blocks = visited & with_data
        else:
            blocks = np.zeros_like(with_data)
            blocks[own] = with_data[own]
        out.sets.append(_solve_set(field_, j, i, s, moments, blocks, noise_factor, 1.0))
    return out


def _gradients(
    prior: TilePrior, model: TileModel, sets: list[_Set], gram: Array, y: Array, count: float
) -> tuple[Array, float]:
    """Derivatives of log p(z) by theta (P,) and by the logarithm of the noise factor.

    gram: (K, K) Y' S^-1 Y; y: (K,) with Y y = z - H beta; count: number of points
    """
    G = np.zeros_like(model.precision)
    energy = 0.0
    learned = 0.0
    for part in sets:
        gamma = model.precision @ (part.eta @ y)
        half = model.precision @ part.covariance
        G += part.sign * (np.outer(gamma, gamma) - model.precision + half @ model.precision)
        energy += part.sign * float(y @ (2.0 * part.B.T @ part.eta - part.data_energy) @ y)
        learned += part.sign * (model.rank - float(np.vdot(half, np.eye(model.rank))))
    own_energy = float(y @ _raw_gram(gram, sets) @ y)
    noise_gradient = 0.5 * (own_energy - energy) - 0.5 * (count - learned)
    return prior.torus.theta_gradient(prior.kernel, lag_weights(model, 0.5 * G)), noise_gradient


def _raw_gram(gram: Array, sets: list[_Set]) -> Array:
    """Y' R^-1 Y, recovered from Y' S^-1 Y."""
    out: Array = gram + sum(part.sign * (part.B.T @ part.eta) for part in sets)
    return out


def _domain(field_: TileField, j: int, i: int, shape: tuple[int, int], *, core: bool) -> tuple[slice, slice]:
    """Blocks of a tile's core or domain, inside the window."""
    y, x = field_.domain(j, i)
    model = field_.model
    if core:
        y, x = y + model.y.halo, x + model.x.halo
    n_y, n_x = (model.y.core, model.x.core) if core else (model.y.blocks, model.x.blocks)
    return (
        slice(max(y, 0), max(0, min(y + n_y, shape[0]))),
        slice(max(x, 0), max(0, min(x + n_x, shape[1]))),
    )


def _solve_set(
    field_: TileField,
    j: int,
    i: int,
    s: Statistics,
    moments: list[Array],
    blocks: Mask,
    noise: float,
    sign: float,
) -> _Set:
    """Normal equations of the given blocks that are in a tile's domain."""
    model = field_.model
    domain = _domain(field_, j, i, blocks.shape, core=False)
    first_y, first_x = field_.domain(j, i)
    to = (
        slice(domain[0].start - first_y, domain[0].stop - first_y),
        slice(domain[1].start - first_x, domain[1].stop - first_x),
    )
    keep = (blocks[domain] / noise)[:, :, None, None]

    def image(moment: Array, size: int) -> Array:
        out = np.zeros((model.y.blocks, size, model.x.blocks, size))
        out[to[0], :, to[1]] = (moment[domain][:, :, :size, :size] * keep).transpose(0, 2, 1, 3)
        return out.reshape(model.y.blocks * size, model.x.blocks * size)

    A = information(model, image(s.weights, WEIGHT_MOMENTS))
    B = np.stack(
        [
            (model.y.safe_polynomials.T @ image(m, SAFE_ORDER) @ model.x.safe_polynomials)[
                model.mode_y, model.mode_x
            ]
            for m in moments
        ],
        axis=1,
    )
    P = A + model.precision
    try:
        L = np.linalg.cholesky(P)
        covariance = cho_solve((L, True), np.eye(P.shape[0]))
        log_determinant = 2.0 * float(np.log(np.diagonal(L)).sum())
    except np.linalg.LinAlgError:
        covariance = safe_inverse(P)
        log_determinant = -float(np.linalg.slogdet(covariance)[1])
    eta = covariance @ B
    return _Set(sign, B, eta, eta.T @ A @ eta, log_determinant, covariance)
