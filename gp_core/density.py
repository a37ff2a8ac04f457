"""Kernel density estimation with the kernels of gp_core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.bandwidth import scott_kernel
from gp_core.estimators import (
    NamedKernelParameters,
    fit_inputs,
    generator,
    query_inputs,
    report,
    sample_weights,
)
from gp_core.kernels import Kernel, Scaled
from gp_core.kernels.compact import rows_per_sparse_block
from gp_core.kernels.stationary import Stationary
from gp_core.optimize import Optimum
from gp_core.parallel import map_blocks
from gp_core.search import SearchSettings, check_optimizer, count_iterations, maximize_likelihood

_BLOCK_ENTRIES = 500_000
_FAR = 1e4
"""A kernel is taken to be integrable if what lies beyond this many length scales does not count."""


class KernelDensity(NamedKernelParameters, BaseEstimator):  # type: ignore[misc]
    """p(x) = 1/N sum_i k(x, x_i) / Z, Z = integral of k(x, x_i) dx: a bump of k's shape at every point.

    With weights s_i of the points, p(x) = sum_i s_i k(x, x_i) / (Z sum_i s_i).

    The density behind Nadaraya-Watson regression (kernel density estimation in the lecture on kernel
    regression). O(N) per query, in blocks; O(neighbours) for a compact kernel. The kernel must be stationary and
    integrable: RBF, Matern, Exponential, Epanechnikov, or RationalQuadratic with alpha > D / 2.

    Parameters
    ----------
    kernel : Stationary kernel or None
        k; its length scale is the bandwidth, a factor on it cancels. None for an RBF with Scott's bandwidth per input.
    optimizer : "loo" or None
        "loo" chooses the length scales by the likelihood of left-out points; None keeps them.
    max_iter : int
        Iterations of the search.

    Attributes
    ----------
    kernel_ : Kernel
        With the bandwidth that was chosen.
    X_train_ : array (N, D)
        The points.
    loo_log_likelihood_ : float
        Mean log density of a point under the others, by their weights; NaN for N = 1, minus infinity where a compact
        kernel reaches none of them.
    n_iter_ : int
        Iterations of the search, at least 1.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Applications of Kernels: density estimation".

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import KernelDensity
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> np.exp(KernelDensity().fit(X).score_samples([[0.0]])).round(1)
    array([0.4])
    """

    def __init__(
        self, kernel: Kernel | None = None, *, optimizer: str | None = None, max_iter: int = 100
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.max_iter = max_iter

    def fit(
        self, X: npt.ArrayLike, y: Any = None, sample_weight: npt.ArrayLike | None = None
    ) -> KernelDensity:
        """Keep X (N, D) and choose the bandwidth; y is ignored.

        sample_weight: (N,) s, not negative; for the bandwidth a point is left out with all its weight
        """
        check_optimizer(self.optimizer, "loo")
        given_kernel = self.kernel.kernel if isinstance(self.kernel, Scaled) else self.kernel
        if given_kernel is not None and not isinstance(given_kernel, Stationary):
            raise ValueError(
                f"a density needs a stationary kernel such as RBF or Matern, got {self.kernel!r}"
            )
        points = fit_inputs(self, X, given_kernel)
        given = None if sample_weight is None else sample_weights(sample_weight, len(points))
        kernel = scott_kernel(points, given) if given_kernel is None else given_kernel
        weights = np.ones(len(points)) if given is None else given
        several = np.count_nonzero(weights) > 1
        log_shape = _log_integral(kernel, points.shape[1])
        optimum: Optimum | None = None
        if self.optimizer == "loo" and kernel.n_theta and several:
            kernel, optimum = self._learn(kernel, points, weights, log_shape)
        self.kernel_, self.X_train_, self._weights = kernel, points, weights
        self._log_Z = log_shape + _log_volume(kernel, points.shape[1])
        self.loo_log_likelihood_ = (
            _left_out(kernel, points, weights, gradient=False)[0] - self._log_Z if several else np.nan
        )
        self.n_iter_ = count_iterations(optimum)
        report(optimum, 0.0)
        return self

    def _learn(
        self, kernel: Stationary, X: Array, weights: Array, log_shape: float
    ) -> tuple[Stationary, Optimum]:
        size = np.size(kernel.length_scale)
        if kernel.n_theta != size:
            raise ValueError(
                f"only length scales are learned here: fix the other hyperparameters of {kernel!r}"
            )
        per_entry = X.shape[1] / size  # d log Z / d log length scale

        def likelihood(trial: Stationary, gradient: bool) -> tuple[float, Array]:
            value, slope = _left_out(trial, X, weights, gradient)
            return value - log_shape - _log_volume(trial, X.shape[1]), slope - per_entry

        return maximize_likelihood(
            kernel, likelihood, SearchSettings(integer_at_least(self.max_iter, 1, "max_iter"))
        )

    def score_samples(self, X: npt.ArrayLike) -> Array:
        """log p(x) (M,) at X (M, D); minus infinity beyond the reach of a compact kernel."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        step = rows_per_sparse_block(self.kernel_, self.X_train_)

        def log_sum(rows: slice) -> Array:
            with np.errstate(divide="ignore"):  # p(x) = 0 where no point is near
                if step:
                    return np.asarray(
                        np.log(self.kernel_._sparse(queries[rows], self.X_train_) @ self._weights)
                    )
                log_k = self.kernel_.log(queries[rows], self.X_train_)
                return np.asarray(logsumexp(log_k, axis=1, b=self._weights))

        blocks = _blocks(len(queries), len(self.X_train_), step)
        return np.asarray(
            np.concatenate(map_blocks(log_sum, blocks)) - np.log(self._weights.sum()) - self._log_Z
        )

    def score(self, X: npt.ArrayLike, y: Any = None) -> float:
        """Sum of log p(x) over X (M, D); y is ignored."""
        return float(self.score_samples(X).sum())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Points (n_samples, D) drawn from the density."""
        check_is_fitted(self)
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        rng = generator(random_state)
        D = self.X_train_.shape[1]
        # A compact kernel ends at 1, and so must the draws.
        r = (
            np.linspace(0.0, 1.0, 4001)
            if self.kernel_.compact
            else np.append(0.0, np.geomspace(1e-4, _FAR, 4000))
        )
        log_shell = _log_shell(self.kernel_, D, r)
        shell = np.exp(log_shell - log_shell.max())
        mass = np.append(0.0, np.cumsum(0.5 * (shell[1:] + shell[:-1]) * np.diff(r)))
        radius = np.interp(rng.uniform(size=n_samples) * mass[-1], mass, r)
        direction = rng.standard_normal((n_samples, D))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        share = self._weights / self._weights.sum()
        centres = self.X_train_[rng.choice(len(self.X_train_), size=n_samples, p=share)]
        return np.asarray(centres + radius[:, None] * direction * np.asarray(self.kernel_.length_scale))


def _log_integral(kernel: Stationary, D: int) -> float:
    """log of the integral of f(|u|^2) over D inputs in units of the length scale."""

    peak = float(
        _log_shell(kernel, D, np.geomspace(1e-4, _FAR, 4000)).max()
    )  # for many inputs exp(peak) overflows

    def integrand(r: float) -> float:
        return float(np.exp(_log_shell(kernel, D, np.array([r]))[0] - peak))

    near = quad(integrand, 0.0, 10.0, limit=200)[0]
    far = sum(quad(integrand, a, 10.0 * a, limit=200)[0] for a in (10.0, 100.0, 1000.0))
    beyond = quad(integrand, _FAR, 10.0 * _FAR, limit=200)[0]
    if not np.isfinite(near + far) or beyond > 1e-6 * (near + far):
        raise ValueError(
            f"{kernel!r} has no finite integral over {D} inputs: use a kernel that decays faster"
        )
    surface = np.log(2.0) + 0.5 * D * np.log(np.pi) - gammaln(0.5 * D)
    return float(surface + peak + np.log(near + far))


def _log_shell(kernel: Stationary, D: int, r: Array) -> Array:
    """log of r^(D - 1) f(r^2) at distances r, in units of the length scale: what a shell of radius r holds."""
    with np.errstate(divide="ignore"):
        area = (D - 1) * np.log(r) if D > 1 else np.zeros_like(r)
        return np.asarray(area + kernel._log_profile(np.square(r)))


def _log_volume(kernel: Stationary, D: int) -> float:
    scales = np.broadcast_to(np.asarray(kernel.length_scale, dtype=np.float64), (D,))
    return float(np.log(scales).sum())


def _left_out(kernel: Kernel, X: Array, weights: Array, gradient: bool) -> tuple[float, Array]:
    """Mean over i, by weights s_i, of log sum_{j != i} s_j k(x_i, x_j) / sum_{j != i} s_j.

    Its gradient by theta (P,) too if asked for.
    """
    n, size = len(X), float(weights.sum())

    def contribution(rows: slice) -> tuple[float, Array]:
        log_k = kernel.log(X[rows], X)
        own = np.arange(len(log_k)), np.arange(rows.start, rows.stop)
        others = np.tile(weights, (len(log_k), 1))
        others[own] = 0.0
        with np.errstate(divide="ignore"):
            total = logsumexp(log_k, axis=1, b=others)
        if gradient and not np.isfinite(total).all():
            raise ValueError("a point has no density under the others: give a kernel that decays more slowly")
        counted = weights[rows] > 0.0  # 0 times minus infinity is nothing
        value = float(weights[rows][counted] @ (total - np.log(size - weights[rows]))[counted])
        if not gradient:
            return value, np.zeros(0)
        # d log sum k = sum dk / sum k; where that underflows nothing representable changes.
        W = others * (weights[rows] * np.exp(-np.maximum(total, -700.0)))[:, None]
        return value, kernel.theta_vjp(X[rows], W, X)

    parts = map_blocks(contribution, _blocks(n, n))
    value = sum(part[0] for part in parts) / size
    return float(value), np.asarray(np.sum([part[1] for part in parts], axis=0) / size)


def _blocks(m: int, n: int, step: int = 0) -> Iterator[slice]:
    step = step or max(1, _BLOCK_ENTRIES // n)
    for start in range(0, m, step):
        yield slice(start, min(m, start + step))
