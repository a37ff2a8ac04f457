"""Exact Gaussian process regression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, Table, as_targets, integer_at_least
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    default_kernel,
    fit_inputs_and_targets,
    generator,
    query_inputs,
    report,
)
from gp_core.kernels import Kernel
from gp_core.linalg import cholesky, extend_factor, product
from gp_core.optimize import Optimum
from gp_core.parallel import available_threads, map_blocks, single_threaded_blas
from gp_core.parameters import AUTO, Bounds
from gp_core.priors import Prior, log_prior
from gp_core.regression.evidence import Evidence, GPModel, Targets, condition_on, evidence
from gp_core.regression.means import as_mean
from gp_core.regression.noise import Noise
from gp_core.scales import DataScale
from gp_core.search import check_optimizer, count_iterations, learn_hyperparameters

_BATCH_ENTRIES = 500_000
"""Entries of K(X*, X) that prediction holds at a time, per thread."""
_SHARED_ENTRIES = 200_000
"""From so many entries of K(X*, X) on, prediction uses several threads."""


class GaussianProcessRegressor(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """y = f(x) + e, f ~ GP(m, k), e ~ N(0, noise_variance I + Lambda).

    With A = K + Lambda + noise_variance I and k_* = k(X, x_*):

        mean(x_*) = m(x_*) + k_*' A^-1 (y - m(X))
        var(x_*)  = k(x_*, x_*) - k_*' A^-1 k_*

    Hyperparameters maximise log p(y) (plus the log of their priors). Several outputs share them and are
    independent given them. Cost: O(N^3) per evaluation of the likelihood, O(N) per predicted mean, O(N^2) per
    predicted variance.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for a scaled RBF that starts in the scale of the data.
    noise_variance : float >= 0
        Of independent noise, learned within its bounds; 0 for noise-free interpolation.
    noise_variance_bounds : (low, high), "auto" or "fixed"
        "auto" follows the variance of y.
    mean : None, number, callable on (N, D), or Mean
        m, in units of y; a `Mean` has parameters to learn.
    normalize_y : bool
        Scale y to unit variance first, per output, and centre it if there is no mean.
    optimizer : "lbfgs" or None
        None keeps the hyperparameters as given.
    n_restarts_optimizer : int
        Further starts, drawn in the scale of the data.
    priors : mapping of hyperparameter name to Prior
        See `gp_core.priors`.
    max_iter : int
        Iterations per start.
    random_state : None, int or Generator
        Seed of the restarts.

    Attributes
    ----------
    kernel_, noise_variance_, mean_ : what was learned
    model_ : the three as one object with theta
    theta_, theta_names_ : noise, kernel, mean
    log_marginal_likelihood_value_ : float
    optimum_ : how the search went
    n_iter_ : int
    jitter_ : what had to be added to the diagonal
    X_train_, y_train_ : the data

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Conditional Distribution", "Estimating Hyperparameters".
    Lecture "Kernel regression and gaussian processes":
        "Gaussian process regression: no noise", "Gaussian process regression: gaussian noise".
    Rasmussen and Williams (2006), equations 2.23, 2.24 and 5.8.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import GaussianProcessRegressor
    >>> x = np.linspace(0.0, 6.0, 40)[:, None]
    >>> y = 1000.0 + np.sin(x[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=40)
    >>> gp = GaussianProcessRegressor(normalize_y=True).fit(x, y)
    >>> bool(abs(gp.predict([[1.0]])[0] - 1000.0 - np.sin(1.0)) < 0.1)
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise_variance: float = 1e-2,
        noise_variance_bounds: Bounds = AUTO,
        mean: Any = None,
        normalize_y: bool = False,
        optimizer: str | None = "lbfgs",
        n_restarts_optimizer: int = 0,
        priors: Mapping[str, Prior] | None = None,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.noise_variance_bounds = noise_variance_bounds
        self.mean = mean
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.priors = priors
        self.max_iter = max_iter
        self.random_state = random_state

    # -- learning --------------------------------------------------------------------------------------

    def fit(self, X: Inputs, y: npt.ArrayLike, noise_covariance: Any = None) -> GaussianProcessRegressor:
        """Learn the hyperparameters from X (N, D) and y (N,) or (N, O), and factorise A.

        noise_covariance: Lambda, the known part of the noise: variances (N,) or a covariance (N, N), in
            units of y^2; it comes on top of noise_variance
        """
        model = self._model()
        check_optimizer(self.optimizer)
        points, values = fit_inputs_and_targets(self, X, y, model.kernel)
        self._single_output = values.ndim == 1
        Y = values[:, None] if values.ndim == 1 else values
        self.X_train_, self.y_train_ = points, values
        centred = self.normalize_y and self.mean is None
        self._offset = Y.mean(axis=0) if centred else np.zeros(Y.shape[1])
        self._scale = _deviation(Y) if self.normalize_y else np.ones(Y.shape[1])
        self._targets = Targets(Y - self._offset, self._scale)
        self._noise = self._known_noise(noise_covariance, len(Y))
        model, self.optimum_ = self._learn(model)
        state = evidence(model, points, self._targets, self._noise)
        self._set_model(model, state)
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, self.jitter_, model)
        return self

    def _model(self) -> GPModel:
        kernel = default_kernel(self.kernel)
        return GPModel(kernel, as_mean(self.mean), self.noise_variance, self.noise_variance_bounds)

    def _learn(self, model: GPModel) -> tuple[GPModel, Optimum | None]:
        data = DataScale.of(self.X_train_, model.residuals(self.X_train_, self._targets))
        start = model if self.optimizer is None else model.off_saddles(data)
        return learn_hyperparameters(self, start, self._posterior_density, data, self.kernel is None)

    def _posterior_density(self, model: GPModel, gradient: bool) -> tuple[float, Array]:
        """log p(y) + log p(theta), and the gradient if asked for."""
        likelihood = evidence(model, self.X_train_, self._targets, self._noise, gradient=gradient)
        prior, prior_gradient = log_prior(self.priors, model)
        return likelihood.value + prior, likelihood.gradient + prior_gradient if gradient else prior_gradient

    def _set_model(self, model: GPModel, state: Evidence) -> None:
        assert state.factor is not None
        self.model_ = model
        self.kernel_, self.mean_ = model.kernel, model.mean
        self.noise_variance_ = float(model.noise_variance)
        self.theta_, self.theta_names_ = model.theta, model.theta_names
        self.log_marginal_likelihood_value_ = state.value
        self.jitter_ = state.jitter
        self._factor, self._dual = state.factor, state.dual

    def _known_noise(self, noise: Any, n: int) -> Array | None:
        known = Noise.known(noise, n)
        if known is None or not self.normalize_y:
            return known
        if self._scale.size > 1:
            raise ValueError("noise_covariance with normalize_y and several outputs: scale y yourself")
        return np.asarray(known / self._scale[0] ** 2)

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """log p(y) at theta (of the fitted model unless given), with its gradient (P,) if asked for.

        It is that of the residuals the model works with, so after scaling if normalize_y is set. Priors on
        hyperparameters are not in it.
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        model = self.model_ if theta is None else self.model_.with_theta(theta)
        state = evidence(model, self.X_train_, self._targets, self._noise, gradient=eval_gradient)
        return (state.value, state.gradient) if eval_gradient else state.value

    def append(self, X: Inputs, y: npt.ArrayLike, noise_covariance: Any = None) -> GaussianProcessRegressor:
        """Add M points to a fitted process and keep its hyperparameters: O(N^2 M) instead of O(N^3).

        The result is that of `fit` on all points with these hyperparameters; the scale of normalize_y is kept as well.

        Parameters
        ----------
        X, y : (M, D) and (M,) or (M, O)
        noise_covariance : None or (M,)
            Variances of the known noise of the new points, if `fit` got variances.
        """
        check_is_fitted(self)
        points = query_inputs(self, X, self.kernel_)
        y = as_targets(y, len(points))
        if y.shape[1:] != self.y_train_.shape[1:]:
            raise ValueError(
                f"y must have shape {(len(points), *self.y_train_.shape[1:])} as in fit, got {y.shape}"
            )
        known = Noise.known(noise_covariance, len(points))
        if (known is None) != (self._noise is None) or (self._noise is not None and self._noise.ndim == 2):
            raise ValueError(
                "append takes noise_covariance as variances (M,), and only where fit got variances (N,)"
            )
        corner = self.kernel_(points)
        corner.flat[:: len(corner) + 1] += self.noise_variance_
        if known is not None and self._noise is not None:
            known = known / self._scale[0] ** 2
            corner.flat[:: len(corner) + 1] += known
            self._noise = np.concatenate([self._noise, known])
        cross = self.kernel_._matrix(self.X_train_, points)
        factor = extend_factor(self._factor, cross, corner)
        self.X_train_ = _join(self.X_train_, points, self.kernel_)
        self.y_train_ = np.concatenate([self.y_train_, y])
        Y = self.y_train_[:, None] if self.y_train_.ndim == 1 else self.y_train_
        self._targets = Targets(Y - self._offset, self._scale)
        self._set_model(self.model_, condition_on(self.model_, self.X_train_, self._targets, factor))
        return self

    def leave_one_out(self) -> LeaveOneOut:
        """What the process says of each observation from all others, in closed form: O(N^3) once, not N times.

            mean_i = y_i - a_i / (A^-1)_ii,   var_i = 1 / (A^-1)_ii,   a = A^-1 (y - m(X))

        (Rasmussen and Williams, equation 5.12.) The hyperparameters are those learned from all points.
        """
        check_is_fitted(self)
        variance = 1.0 / np.diagonal(self._factor.inverse_lower())[:, None]
        error = self._dual * variance * self._scale
        Y = self.y_train_[:, None] if self._single_output else self.y_train_
        std = np.sqrt(variance) * self._scale
        density = -0.5 * np.square(error / std) - np.log(std) - 0.5 * np.log(2.0 * np.pi)
        if self._single_output:
            return LeaveOneOut((Y - error)[:, 0], std[:, 0], error[:, 0], density[:, 0])
        return LeaveOneOut(Y - error, std, error, density)

    # -- prediction --------------------------------------------------------------------------------------

    def predict(
        self, X: Inputs, return_std: bool = False, return_cov: bool = False, include_noise: bool = False
    ) -> Any:
        """Posterior mean (M,) or (M, O) of f at X, then its deviation (same shape) or covariance.

        return_cov: the covariance (M, M), or (M, M, O) for several outputs
        include_noise: deviation or covariance of new observations instead of f: with noise_variance, and with what
            White adds to the kernel, which is noise as well
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both")
        queries = query_inputs(self, X, self.kernel_)
        if return_cov:
            mean, covariance = self._joint(queries)
            if include_noise:
                covariance.flat[:: len(covariance) + 1] += self._noise_at(queries)
            spread = covariance[:, :, None] * self._scale**2
            return self._reshape(mean), spread[:, :, 0] if self._single_output else spread
        mean = np.empty((len(queries), self._dual.shape[1]))
        variance = np.empty(len(queries))

        def fill(rows: slice) -> None:
            batch = queries[rows]
            K = self.kernel_._matrix(batch, self.X_train_)
            mean[rows] = K @ self._dual
            if return_std:
                variance[rows] = self.kernel_._latent_diag(batch) - self._factor.quadratic(K)

        with single_threaded_blas():
            if return_std:
                self._factor.prepare_quadratic()
            map_blocks(fill, self._batches(len(queries)))
        mean = mean * self._scale + self._prior_mean(queries)
        if not return_std:
            return self._reshape(mean)
        noise = self._noise_at(queries) if include_noise else 0.0
        std = np.sqrt(np.maximum(variance, 0.0) + noise)[:, None] * self._scale
        return self._reshape(mean), std[:, 0] if self._single_output else std

    def _batches(self, m: int, entries_per_point: int = 1) -> Iterator[slice]:
        row = len(self.X_train_) * entries_per_point
        step = max(1, _BATCH_ENTRIES // row)
        if m * row >= _SHARED_ENTRIES:  # enough work for every thread to get two batches
            step = max(1, min(step, -(-m // (2 * available_threads()))))
        for start in range(0, m, step):
            yield slice(start, start + step)

    def _noise_at(self, X: Any) -> Array:
        """(M,) variance of the noise of new observations, in units of the scaled targets."""
        white: Array = self.kernel_._diag(X) - self.kernel_._latent_diag(X)
        return white + self.noise_variance_

    def _prior_mean(self, X: Any) -> Array:
        """(M, 1) or (M, O), in units of y."""
        m = self.mean_(X)
        return (m[:, None] if m.ndim == 1 else m) + self._offset

    def _reshape(self, mean: Array) -> Array:
        return mean[:, 0] if self._single_output else mean

    def _joint(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean (M, O), in units of y, and covariance (M, M) of f, in those of the scaled targets."""
        K = self.kernel_._matrix(X, self.X_train_)
        mean = product(K, self._dual) * self._scale + self._prior_mean(X)
        V = self._factor.half_solve(K.T, overwrite=True)
        covariance = self.kernel_._latent_matrix(X)
        covariance -= product(np.ascontiguousarray(V.T), V)
        diagonal = np.einsum("ii->i", covariance)
        np.maximum(diagonal, 0.0, out=diagonal)
        return mean, covariance

    def predict_gradient(self, X: Inputs, return_std: bool = False, return_cov: bool = False) -> Any:
        """Gradient of the posterior mean (M, D) or (M, O, D), then its deviation or covariance.

        mean: dm/dx + (dk(x, X)/dx)' A^-1 (y - m(X))
        covariance: d2k(x, z)/dx dz at z = x, minus (dk(x, X)/dx)' A^-1 (dk(X, x)/dx)

        return_std: the shape of the mean
        return_cov: (M, D, D) or (M, O, D, D)
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both")
        reason = self.kernel_.why_not_differentiable()
        if reason:
            raise ValueError(reason)
        if not isinstance(self.X_train_, np.ndarray):
            raise ValueError("there is no gradient by sets or strings")
        queries = query_inputs(self, X, self.kernel_)
        D = queries.shape[1]
        prior = self.mean_.gradient_x(queries)
        prior = prior[:, None, :] if prior.ndim == 2 else prior
        mean = np.empty((len(queries), self._dual.shape[1], D))
        covariance = np.empty((len(queries), D, D))
        for points in self._batches(len(queries), entries_per_point=D):
            batch = queries[points]
            G = self.kernel_._gradient_x(batch, self.X_train_)  # (m, N, D)
            mean[points] = np.einsum("mnd,no->mod", G, self._dual)
            if return_std or return_cov:
                G_rows = np.ascontiguousarray(G.transpose(0, 2, 1)).reshape(-1, G.shape[1])  # (m D, N)
                V = self._factor.half_solve(G_rows.T, overwrite=True).T.reshape(len(batch), D, -1)
                covariance[points] = self.kernel_._gradient_xz_diag(batch) - V @ V.transpose(0, 2, 1)
        mean = mean * self._scale[:, None] + prior
        mean = mean[:, 0] if self._single_output else mean
        if return_cov:
            spread = covariance[:, None] * self._scale[:, None, None] ** 2
            return mean, spread[:, 0] if self._single_output else spread
        if return_std:
            variance = np.maximum(np.einsum("mdd->md", covariance), 0.0)
            std = np.sqrt(variance)[:, None, :] * self._scale[:, None]
            return mean, std[:, 0] if self._single_output else std
        return mean

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions drawn at X: (M, n_samples), or (M, O, n_samples) for several outputs.

        From the posterior after `fit`, from the prior before it; functions, so without the noise of observations.
        """
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        rng = generator(random_state)
        fitted = hasattr(self, "model_")
        model = self.model_ if fitted else self._model()
        queries = query_inputs(self, X, model.kernel) if fitted else model.kernel._check(X)
        size = float(model.kernel._diag(queries).mean())
        if fitted:
            mean, covariance = self._joint(queries)
        else:
            m = model.mean(queries)
            mean, covariance = (m[:, None] if m.ndim == 1 else m), model.kernel._latent_matrix(queries)
        factor = cholesky(covariance, overwrite=True, scale=size, remedy="look at it with is_valid_kernel")
        white = rng.standard_normal((mean.shape[1], len(mean), n_samples))
        draws = np.stack([factor.lower @ w for w in white], axis=1)
        if fitted:
            draws *= self._scale[:, None]
        draws = draws + mean[:, :, None]
        return draws[:, 0] if draws.shape[1] == 1 and (not fitted or self._single_output) else draws

    # -- reading the model ---------------------------------------------------------------------------------

    @property
    def relevance_(self) -> Array:
        """(D,) relevance of each input: eta_d Var(x_d) with eta_d = 1 / l_d^2, near 0 where it is idle.

        For a kernel with ARD, that is one length scale per input.
        """
        check_is_fitted(self)
        scales = [v for name, v in self.kernel_.values().items() if name.split(".")[-1] == "length_scale"]
        scales = [v for v in scales if np.ndim(v) == 1]
        if (
            len(scales) != 1
        ):  # AttributeError, so that hasattr is False and the display in a notebook leaves it out
            raise AttributeError(
                "relevance is read from one length scale per input: give the kernel exactly one such"
            )
        eta = np.asarray(scales[0]) ** -2.0
        return np.asarray(eta * self.X_train_.var(axis=0))


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of each observation from all others, (N,) or (N, O).

    mean, std: of the observation, with its noise
    error: y - mean
    log_density: of the observation; its sum is the log pseudo-likelihood, which compares models
    """

    mean: Array
    std: Array
    error: Array
    log_density: Array

    @property
    def standardized(self) -> Array:
        """error / std: about N(0, 1) if the model is right; beyond 3 or 4 an outlier."""
        return np.asarray(self.error / self.std)


def _join(old: Any, new: Any, kernel: Kernel) -> Any:
    """Training inputs of both, as the kernel takes them."""
    if isinstance(old, np.ndarray):
        return np.concatenate([old, new])
    if isinstance(old, Table):
        return Table(np.concatenate([old.cells, new.cells]))
    return kernel._check([*old, *new])


def _deviation(Y: Array) -> Array:
    scale = Y.std(axis=0)
    return np.where(scale > 0.0, scale, 1.0)
