"""Gaussian process regression with structured kernel interpolation: inducing points on a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    default_kernel,
    fit_inputs_and_one_target,
    generator,
    query_inputs,
    report,
)
from gp_core.kernels import (
    Columns,
    Constant,
    Kernel,
    Metric,
    Periodic,
    Power,
    Product,
    Scaled,
    Stationary,
    Sum,
)
from gp_core.kernels.compose import Exp
from gp_core.linalg import Cholesky, cholesky
from gp_core.parameters import AUTO, Bounds
from gp_core.regression.evidence import GPModel
from gp_core.regression.means import as_mean
from gp_core.scales import DataScale
from gp_core.search import check_optimizer, count_iterations, learn_hyperparameters

DEFAULT_NODES = {1: 200, 2: 25, 3: 10}
"""Nodes per input, by the number of inputs: at most 1000 in all."""
MOST_NODES = 20_000
"""K_UU is a full matrix: this many nodes take 3 GB."""
_MARGIN = 0.05
"""Share of the width of the data that the grid extends beyond them, on each side."""


@dataclass(frozen=True)
class InducingGrid:
    """Inducing points U on a regular grid.

    axes: the coordinates along each input, (n_1,), ..., (n_D,)
    """

    axes: tuple[Array, ...]

    @classmethod
    def over(cls, X: Array, nodes: tuple[int, ...]) -> InducingGrid:
        """A grid over the bounding box of X and a little beyond, with that many nodes per input."""
        axes = []
        for x, n in zip(X.T, nodes, strict=True):
            low, high = float(x.min()), float(x.max())
            width = high - low if high > low else max(1.0, abs(low))
            axes.append(np.linspace(low - _MARGIN * width, low + (1.0 + _MARGIN) * width, n))
        return cls(tuple(axes))

    @property
    def points(self) -> Array:
        """U (M, D), the last input changing fastest."""
        mesh = np.meshgrid(*self.axes, indexing="ij")
        return np.stack([part.ravel() for part in mesh], axis=1)

    def contains(self, X: Array) -> npt.NDArray[np.bool_]:
        """(N,) whether a point lies within the grid."""
        low, high = (np.array([axis[i] for axis in self.axes]) for i in (0, -1))
        return np.asarray(((low <= X) & (high >= X)).all(axis=1))

    def weights(self, X: Array) -> csr_array:
        """W (N, M) with 2^D weights per row, those of linear interpolation in each input; 0 outside the grid."""
        n = len(X)
        inside = self.contains(X)
        columns, values = np.zeros((n, 1), dtype=np.intp), np.where(inside, 1.0, 0.0)[:, None]
        for x, axis in zip(X.T, self.axes, strict=True):
            step = axis[1] - axis[0]
            position = np.clip((x - axis[0]) / step, 0.0, len(axis) - 1.0)
            left = np.minimum(position.astype(np.intp), len(axis) - 2)
            right_weight = position - left
            pair = np.stack([1.0 - right_weight, right_weight], axis=1)
            columns = (columns[:, :, None] * len(axis) + left[:, None, None] + np.arange(2)).reshape(n, -1)
            values = (values[:, :, None] * pair[:, None, :]).reshape(n, -1)
        starts = np.arange(n + 1) * columns.shape[1]
        size = int(np.prod([len(axis) for axis in self.axes]))
        return csr_array((values.ravel(), columns.ravel(), starts), shape=(n, size))


@dataclass(frozen=True)
class _Statistics:
    """What the likelihood needs of the data: W'W (M, M), W'y (M,), y'y and N."""

    gram: Array
    projected: Array
    square: float
    n: int


@dataclass(frozen=True)
class _Posterior:
    """Of the values u at the inducing points: u ~ N(mean, root root'), and log p(y)."""

    mean: Array
    root: Array
    value: float
    gradient: Array
    jitter: float


class InterpolatedGaussianProcessRegressor(NamedKernelParameters, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """GP regression with K ~ W K_UU W': inducing points U on a grid, W the weights of linear interpolation.

    With values u = f(U) at the M nodes, y = W u + e, u ~ N(0, K_UU) and e ~ N(0, noise_variance I). With K_UU = L L',
    G = W'W, b = W'y and B = I + L'G L / noise_variance:

        mean of u   = L B^-1 L'b / noise_variance
        cov of u    = L B^-1 L'
        f(x)        = w(x)'u
        log p(y)    = -1/2 (y'y - b'L B^-1 L'b / noise_variance) / noise_variance
                      - 1/2 log|B| - N/2 log(2 pi noise_variance)

    Structured kernel interpolation (Wilson and Nickisch 2015) as the lectures write it. Only G and b depend on the
    data: O(N 2^D) once, then O(M^3) whatever N is. It is the form to learn from; for terrain use `gp_core.grid`.

    Parameters
    ----------
    kernel : stationary Kernel or None
        Stationary, or made of such by sums, products, powers, exp, a metric or a choice of columns; None for a scaled
        RBF that suits the data.
    noise_variance : float > 0
        Of independent noise, learned within its bounds.
    noise_variance_bounds : (low, high), "auto" or "fixed"
    grid_size : int, one per input, or None
        Nodes per input, at least 2; None for 200, 25 or 10 with 1, 2 or 3 inputs. The distance between nodes should be
        at most half of a length scale.
    normalize_y : bool
        Centre y and scale it to unit variance first.
    optimizer : "lbfgs" or None
        None keeps the hyperparameters as given.
    n_restarts_optimizer : int
        Further starts, drawn in the scale of the data.
    max_iter : int
        Iterations per start.
    random_state : None, int or Generator
        Seed of the restarts.

    Attributes
    ----------
    kernel_, noise_variance_, theta_, theta_names_ : what was learned
    model_ : kernel and noise as one object with theta
    grid_ : InducingGrid
    inducing_mean_ : (M,) posterior mean at the nodes
    log_marginal_likelihood_value_ : float
    optimum_ : Optimum or None
    n_iter_ : iterations of the search, at least 1

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Sparse Kernel Interpolation".
    Wilson and Nickisch (2015), Kernel interpolation for scalable structured Gaussian processes.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import InterpolatedGaussianProcessRegressor
    >>> x = np.linspace(0.0, 10.0, 2000)[:, None]
    >>> gp = InterpolatedGaussianProcessRegressor(grid_size=60).fit(x, np.sin(x[:, 0]))
    >>> bool(abs(gp.predict([[5.05]])[0] - np.sin(5.05)) < 1e-2)
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise_variance: float = 1e-2,
        noise_variance_bounds: Bounds = AUTO,
        grid_size: Any = None,
        normalize_y: bool = False,
        optimizer: str | None = "lbfgs",
        n_restarts_optimizer: int = 0,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.noise_variance_bounds = noise_variance_bounds
        self.grid_size = grid_size
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: npt.ArrayLike) -> InterpolatedGaussianProcessRegressor:
        """Learn the hyperparameters from X (N, D), D <= 3, and y (N,)."""
        kernel = default_kernel(self.kernel)
        if not _is_stationary(kernel):
            raise ValueError(
                f"the kernel must be stationary (RBF, Matern, ..., and sums of them), got {kernel!r}"
            )
        check_optimizer(self.optimizer)
        model = GPModel(kernel, as_mean(None), self.noise_variance, self.noise_variance_bounds)
        if float(model.noise_variance) <= 0.0:
            raise ValueError(
                "noise_variance must be > 0: interpolation leaves errors that noise has to explain"
            )
        points, values = fit_inputs_and_one_target(self, X, y, kernel)
        self.grid_ = InducingGrid.over(points, self._nodes(points.shape[1]))
        self._offset = float(values.mean()) if self.normalize_y else 0.0
        deviation = float(values.std()) if self.normalize_y else 1.0
        self._scale = deviation if deviation > 0.0 else 1.0
        targets = (values - self._offset) / self._scale
        W = self.grid_.weights(points)
        gram: Array = (W.T @ W).toarray()
        statistics = _Statistics(gram, W.T @ targets, float(targets @ targets), len(values))
        U = self.grid_.points

        def likelihood(trial: GPModel, gradient: bool) -> tuple[float, Array]:
            found = _posterior(trial, U, statistics, gradient)
            return found.value, found.gradient

        data = DataScale.of(points, targets[:, None])
        model, self.optimum_ = learn_hyperparameters(self, model, likelihood, data, self.kernel is None)
        posterior = _posterior(model, U, statistics)
        self._statistics = statistics
        self.model_, self.kernel_ = model, model.kernel
        self.noise_variance_ = float(model.noise_variance)
        self.theta_, self.theta_names_ = model.theta, model.theta_names
        self.inducing_mean_ = posterior.mean * self._scale + self._offset
        self._posterior = posterior
        self.log_marginal_likelihood_value_ = posterior.value
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, 0.0, model)
        return self

    def _nodes(self, D: int) -> tuple[int, ...]:
        if D > 3:
            raise ValueError(f"a grid is for 1 to 3 inputs, got {D}: use GaussianProcessRegressor")
        size: Any = DEFAULT_NODES[D] if self.grid_size is None else self.grid_size
        sizes = (size,) * D if np.ndim(size) == 0 else tuple(size)
        if len(sizes) != D:
            raise ValueError(f"grid_size must be one number, or one per input ({D}), got {self.grid_size!r}")
        nodes = tuple(integer_at_least(n, 2, "grid_size") for n in sizes)
        if math.prod(nodes) > MOST_NODES:
            raise ValueError(
                f"grid_size gives {math.prod(nodes)} nodes, at most {MOST_NODES} fit in one matrix: use a smaller "
                "grid_size, or gp_core.grid, whose grids may be large"
            )
        return nodes

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """log p(y) of the scaled targets at theta (of the fitted model unless given), with its gradient if asked."""
        check_is_fitted(self)
        model = self.model_ if theta is None else self.model_.with_theta(theta)
        found = _posterior(model, self.grid_.points, self._statistics, eval_gradient)
        return (found.value, found.gradient) if eval_gradient else found.value

    def predict(
        self, X: Inputs, return_std: bool = False, return_cov: bool = False, include_noise: bool = False
    ) -> Any:
        """Posterior mean (M,) of f at X, then its deviation (M,) or covariance (M, M).

        Outside the grid nothing is known: the prior, independent of what is known inside.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both")
        queries = query_inputs(self, X, self.kernel_)
        W = self.grid_.weights(queries)
        mean = (W @ self._posterior.mean) * self._scale + self._offset
        if not (return_std or return_cov):
            return mean
        noise = self.noise_variance_ if include_noise else 0.0
        outside = np.flatnonzero(~self.grid_.contains(queries))
        V = W @ self._posterior.root
        if return_cov:
            covariance = V @ V.T
            if outside.size:
                covariance[np.ix_(outside, outside)] = self.kernel_(queries[outside])
            covariance.flat[:: len(covariance) + 1] += noise
            return mean, covariance * self._scale**2
        variance = np.einsum("mu,mu->m", V, V)
        if outside.size:
            variance[outside] = self.kernel_.diag(queries[outside])
        return mean, np.sqrt(variance + noise) * self._scale

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions drawn from the posterior at X: (M, n_samples); outside the grid from the prior."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        rng = generator(random_state)
        u = self._posterior.mean[:, None] + self._posterior.root @ rng.standard_normal(
            (self._posterior.root.shape[1], n_samples)
        )
        draws: Array = self.grid_.weights(queries) @ u
        outside = np.flatnonzero(~self.grid_.contains(queries))
        if outside.size:
            prior = cholesky(self.kernel_(queries[outside]), overwrite=True)
            draws[outside] = prior.lower @ rng.standard_normal((outside.size, n_samples))
        return draws * self._scale + self._offset


def _posterior(model: GPModel, U: Array, data: _Statistics, gradient: bool = False) -> _Posterior:
    """The posterior of u and log p(y), as in the class above."""
    noise = float(model.noise_variance)
    prior = cholesky(model.kernel(U), overwrite=True)
    L = prior.lower
    inner = L.T @ data.gram @ L
    B = inner / noise
    B.flat[:: len(B) + 1] += 1.0
    factor: Cholesky = cholesky(B, overwrite=True, what="the posterior")
    c = L.T @ data.projected
    a = factor.solve(c) / noise
    value = (
        -0.5 * (data.square - float(c @ a)) / noise
        - 0.5 * factor.log_determinant
        - 0.5 * data.n * np.log(2.0 * np.pi * noise)
    )
    mean = L @ a
    if not gradient:
        root = factor.half_solve(np.asfortranarray(L.T)).T
        return _Posterior(mean, root, value, np.zeros(0), prior.jitter)
    # d log p / dK_UU = (v v' - P) / 2 with v = W'A^-1 y and P = W'A^-1 W, by Woodbury's identity.
    parts = []
    if model._is_free("noise_variance"):
        dual_square = (data.square - 2.0 * float(c @ a) + float(a @ inner @ a)) / noise**2
        trace = (data.n - len(B) + float(np.trace(factor.inverse()))) / noise
        parts.append(np.array([0.5 * noise * (dual_square - trace)]))
    if model.kernel.n_theta:
        v = (data.projected - data.gram @ mean) / noise
        H = factor.half_solve(np.asfortranarray(L.T @ data.gram))
        P = (data.gram - H.T @ H / noise) / noise
        parts.append(model.kernel._contract(U, None, 0.5 * (np.outer(v, v) - P))[1])
    return _Posterior(mean, np.zeros((len(U), 0)), value, np.concatenate(parts), prior.jitter)


def _is_stationary(kernel: Kernel) -> bool:
    if isinstance(kernel, Scaled):
        return _is_stationary(kernel.kernel)
    if isinstance(kernel, (Sum, Product)):
        return all(_is_stationary(part) for part in kernel.kernels)
    if isinstance(kernel, (Power, Exp, Metric, Columns)):  # still functions of x - z
        return _is_stationary(kernel.kernel)
    return isinstance(kernel, (Stationary, Periodic, Constant))
