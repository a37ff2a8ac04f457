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
from gp_core.grid.normal_matrix import information, safe_inverse
from gp_core.grid.prior import Prior
from gp_core.grid.statistics import COUNT, LOG_VARIANCE, Mask, Statistics
from gp_core.grid.tiles import SAFE_ORDER, WEIGHT_MOMENTS, TileModel, lag_weights
from gp_core.grid.tiling import TileField
from gp_core.grid.trend import trend_moments, trend_products


@dataclass(frozen=True)
class Evidence:
    """What the points say about the trend and the hyperparameters.

    value: log p(z), with the trend at its best estimate
    trend: (k,) that estimate, of the coefficients of 1, x, y about the centre
    trend_covariance: (k, k)
    theta_gradient: (P,) derivative of value by the kernel's theta
    noise_gradient: derivative of value by the logarithm of a factor on all noise variances
    """

    value: float
    trend: Array
    trend_covariance: Array
    theta_gradient: Array = field(repr=False)
    noise_gradient: float


@dataclass(frozen=True)
class _Set:
    """Normal equations of one set of blocks, solved."""

    sign: float
    B: Array  # (r, K)
    eta: Array  # (r, K)
    data_energy: Array  # (K, K) eta' A eta
    log_determinant: float
    covariance: Array = field(repr=False)


def evidence(
    prior: Prior,
    model: TileModel,
    s: Statistics,
    *,
    trend: int = 0,
    center: tuple[float, float] = (0.0, 0.0),
    noise_factor: float = 1.0,
    tiles: Mask | None = None,
    gradient: bool = True,
) -> Evidence:
    """log p(z) and what follows from it.

    trend: number of basis functions, 0, 1 or 3
    noise_factor: on all noise variances
    tiles: (tiles_y, tiles_x) tiles whose cores to use, independently of each other; all tiles, each given the
        ones before it, if None
    """
    field_ = TileField(model, s.y, s.x)
    K = 1 + trend
    moments = [s.heights, *trend_moments(trend, s, center)]
    products = trend_products(trend, s, center) / noise_factor
    with_data = s.weights[:, :, 0, 0] > 0.0
    visited: Mask = np.zeros(with_data.shape, dtype=np.bool_)
    gram = np.zeros((K, K))
    totals = np.zeros(3)
    sets: list[_Set] = []
    for j in range(field_.tiling.shape[0]):
        for i in range(field_.tiling.shape[1]):
            if tiles is not None and not tiles[j, i]:
                continue
            own = _domain(field_, j, i, with_data.shape, core=True)
            if not with_data[own].any():
                continue
            gram += products[own].sum((0, 1))
            totals += s.totals[own].sum((0, 1))
            domain = _domain(field_, j, i, with_data.shape, core=False)
            if tiles is None:
                before = visited & with_data
                if before[domain].any():
                    sets.append(_solve_set(field_, j, i, s, moments, before, noise_factor, -1.0))
                visited[own] = True
                sets.append(_solve_set(field_, j, i, s, moments, visited & with_data, noise_factor, 1.0))
            else:
                alone: Mask = np.zeros_like(with_data)
                alone[own] = with_data[own]
                sets.append(_solve_set(field_, j, i, s, moments, alone, noise_factor, 1.0))
    for part in sets:
        gram -= part.sign * (part.B.T @ part.eta)
    log_prior = float(np.linalg.slogdet(model.covariance)[1])
    log_determinant = sum(part.sign * (part.log_determinant + log_prior) for part in sets)
    beta, beta_covariance = np.zeros(0), np.zeros((0, 0))
    if trend and totals[COUNT] > 0.0:
        beta_covariance = safe_inverse(gram[1:, 1:])
        beta = beta_covariance @ gram[1:, 0]
    y = np.concatenate([[1.0], -beta]) if trend and beta.size else np.eye(K)[0]
    count = totals[COUNT]
    value = -0.5 * float(
        y @ gram @ y + log_determinant + totals[LOG_VARIANCE] + count * np.log(2.0 * np.pi * noise_factor)
    )
    theta_gradient = np.zeros(prior.kernel.theta.size)
    noise_gradient = 0.0
    if gradient:
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
        w = lag_weights(model, 0.5 * G)
        theta_gradient = prior.torus.theta_gradient(prior.kernel, w)
    return Evidence(value, beta, beta_covariance, theta_gradient, noise_gradient)


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
