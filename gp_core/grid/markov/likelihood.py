"""The likelihood of the points under a rough kernel, strip by strip, each given the one on its left.

    log p(z) = sum over strips of log p(z_core, z_left) - log p(z_left),

z_left: the points of the columns of the halo on the left of the core (Vecchia, 1988). Both are taken on the same
coefficients, so the prior's own determinant cancels. With the chain's precision Q, P = Q + W' R^-1 W and
B = W' R^-1 Y, Y = (z, H) the heights and the trend's functions,

    Y' S^-1 Y = Y' R^-1 Y - B' P^-1 B,      log |S| = log |R| + log |P| - log |Q|,
    d log p = 1/2 d log |Q| - 1/2 tr dQ E[x x'],       x ~ N(m, P^-1).

Q is the same in every group of rows, so that only sums of E[x x'] over the groups are needed, and dQ is the difference
of two chains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.marginal_likelihood import MarginalLikelihood
from gp_core.grid.markov.chain import Chain
from gp_core.grid.markov.elimination import weigh_strip
from gp_core.grid.markov.splines import DEGREE
from gp_core.grid.markov.strips import StripModel
from gp_core.grid.normal_matrix import safe_inverse
from gp_core.grid.statistics import COUNT, LOG_VARIANCE, Mask, Statistics
from gp_core.grid.trend import trend_moments, trend_products
from gp_core.grid.workers import Workers, single_threaded_blas

_STEP: Final = 1e-4
"""Of theta, for the difference of two chains."""


@dataclass(frozen=True)
class _Part:
    """One term of the sum: blocks of columns first ... last - 1 on the coefficients from column `left` on."""

    sign: float
    left: int
    first: int
    last: int


def strip_evidence(
    model: StripModel,
    s: Statistics,
    workers: Workers,
    *,
    trend: int = 0,
    center: tuple[float, float] = (0.0, 0.0),
    noise_factor: float = 1.0,
    strips: Mask | None = None,
    gradient: bool = True,
) -> MarginalLikelihood:
    """log p(z) and what follows from it; as `gp_core.grid.likelihood.tile_likelihood`.

    model: strips with a halo on the left only, of `halo` columns of blocks (`StripModel.for_likelihood`)
    strips: (strips,) cores to use, independently of each other; all of them, each given the one before, if None
    """
    with_data = s.weights[..., 0, 0] > 0.0
    filled: Mask = np.any(with_data, axis=0)
    parts, used = _parts(model, filled, strips)
    sides = 1 + trend
    moments = np.stack([s.heights, *trend_moments(trend, s, center)])
    gram = trend_products(trend, s, center)[:, used].sum((0, 1)) / noise_factor
    totals = s.totals[:, used].sum((0, 1))

    chain = model.chain
    results = _weigh(model, s, moments, parts, 1.0 / noise_factor, workers, gradient=False)
    log_prior = _log_determinant(chain, s)
    log_determinant = 0.0
    for part, (log_p, energy, _) in zip(parts, results, strict=True):
        log_determinant += part.sign * (log_p - log_prior)
        gram -= part.sign * energy
    beta, beta_covariance = np.zeros(0), np.zeros((0, 0))
    if trend and totals[COUNT] > 0.0:
        beta_covariance = safe_inverse(gram[1:, 1:])
        beta = beta_covariance @ gram[1:, 0]
    y = np.concatenate([[1.0], -beta]) if beta.size else np.eye(sides)[0]
    count = totals[COUNT]
    value = -0.5 * float(
        y @ gram @ y + log_determinant + totals[LOG_VARIANCE] + count * np.log(2.0 * np.pi * noise_factor)
    )
    if not gradient:
        return MarginalLikelihood(value, beta, beta_covariance, np.zeros(0), 0.0)
    best = np.tensordot(y, moments, 1)[None]
    results = _weigh(model, s, best, parts, 1.0 / noise_factor, workers, gradient=True)
    sums = sum(part.sign * found[2] for part, found in zip(parts, results, strict=True))
    signs = sum(part.sign for part in parts)
    theta_gradient = _theta_gradient(model, s, np.asarray(sums), signs)
    # tr P^-1 A = n - tr Q S and m' A m = B' m - m' Q m: both from E[x x'] as well.
    prior_energy = _energy(chain, np.asarray(sums))
    size = signs * chain.first.shape[0] * _groups(chain, s)
    fitted = sum(part.sign * float(found[1][0, 0]) for part, found in zip(parts, results, strict=True))
    own = float(y @ gram @ y) + fitted
    # E[(z - f)' R^-1 (z - f)] = own - 2 B'm + m'Am + tr P^-1 A, with m'Am + tr P^-1 A = B'm + n - tr Q E[x x'].
    squares = own - fitted + size - prior_energy
    return MarginalLikelihood(value, beta, beta_covariance, theta_gradient, 0.5 * (squares - count))


def _parts(model: StripModel, filled: Mask, strips: Mask | None) -> tuple[list[_Part], Mask]:
    """The terms of the sum, and the columns of blocks that they cover."""
    parts: list[_Part] = []
    used = np.zeros_like(filled)
    for m, first in enumerate(range(0, filled.size, model.core)):
        last = min(first + model.core, filled.size)
        if not filled[first:last].any() or (strips is not None and not strips[m]):
            continue
        used[first:last] = True
        left = first - model.halo
        before = strips is None and filled[max(left, 0) : first].any()
        parts.append(_Part(1.0, left, left if before else first, last))
        if before:
            parts.append(_Part(-1.0, left, left, first))
    return parts, used


def _weigh(
    model: StripModel,
    s: Statistics,
    moments: Array,
    parts: list[_Part],
    gain: float,
    workers: Workers,
    *,
    gradient: bool,
) -> list[tuple[float, Array, Array]]:
    chain = model.chain
    n = chain.first.shape[0]

    def weigh(part: _Part) -> tuple[float, Array, Array]:
        sums = np.zeros((4 if gradient else 0, n, n))
        log_p, energy = weigh_strip(
            s.weights, moments, gain, part.left, part.first, part.last,
            chain.first, chain.arriving, chain.leaving, chain.coupling, chain.rows, sums,
        )  # fmt: skip
        if np.isnan(log_p):
            raise ValueError("the kernel is not positive definite on this lattice: raise the noise variance")
        return log_p, energy, sums

    with single_threaded_blas():
        return workers.run(weigh, [(part,) for part in parts])


def _groups(chain: Chain, s: Statistics) -> int:
    return -(-(s.y.count + DEGREE) // chain.rows)


def _log_determinant(chain: Chain, s: Statistics) -> float:
    """log |Q|: of the first group and of the innovations of the others."""
    first, arriving = (float(np.linalg.slogdet(matrix)[1]) for matrix in (chain.first, chain.arriving))
    return first + (_groups(chain, s) - 1) * arriving


def _energy(chain: Chain, sums: Array) -> float:
    """tr Q E[x x'] from the sums of `weigh_strip`."""
    parts = (chain.first, chain.arriving, chain.leaving, 2.0 * chain.coupling)
    return float(sum(np.vdot(q, e) for q, e in zip(parts, sums, strict=True)))


def _theta_gradient(model: StripModel, s: Statistics, sums: Array, signs: float) -> Array:
    kernel = model.prior.kernel
    out = np.zeros(kernel.theta.size)
    for k in range(out.size):
        value = [0.0, 0.0]
        for side, step in enumerate((_STEP, -_STEP)):
            theta = kernel.theta.copy()
            theta[k] += step
            chain = model.with_kernel(kernel.with_theta(theta)).chain
            value[side] = 0.5 * signs * _log_determinant(chain, s) - 0.5 * _energy(chain, sums)
        out[k] = (value[0] - value[1]) / (2.0 * _STEP)
    return out
