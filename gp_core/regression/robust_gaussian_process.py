"""Gaussian process regression that outliers do not pull: noise with heavy tails."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    default_kernel,
    fit_inputs_and_one_target,
    query_inputs,
    report,
)
from gp_core.kernels import Kernel
from gp_core.optimize import Optimum
from gp_core.parallel import single_threaded_blas
from gp_core.parameters import AUTO, Bounds
from gp_core.quadrature import gaussian_expectation
from gp_core.regression.gaussian_process import GaussianProcessRegressor
from gp_core.regression.means import as_mean
from gp_core.regression.student_t import Bound, StudentTModel, log_density, variational_bound
from gp_core.scales import DataScale
from gp_core.search import check_optimizer, count_iterations, learn_hyperparameters

_BLOCK = 5000
"""Predictive intervals that are computed at a time."""
_MOST_STEPS = 500
"""Of Newton's method for the end of an interval."""


class RobustGaussianProcessRegressor(NamedKernelParameters, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """y = f(x) + e, f ~ GP(m, k), e ~ Student t with scale sqrt(noise_variance) and nu degrees of freedom.

        p(e) = Gamma((nu + 1) / 2) / (Gamma(nu / 2) sqrt(pi nu s)) (1 + e^2 / (nu s))^(-(nu + 1) / 2)

    with s = noise_variance. Seen as normal noise of unknown precision per point, lambda_i / s with lambda_i ~
    Gamma(nu / 2, nu / 2), it has the variational posterior of a Gaussian process with noise s / E[lambda_i], where

        E[lambda_i] = (nu + 1) / (nu + E[(y_i - f(x_i))^2] / s)

    so an observation far from the function counts little (Tipping and Lawrence 2005). Hyperparameters maximise the
    variational lower bound on log p(y). O(N^3) per step of the posterior, of which an evaluation of the bound takes
    about ten to fifty. For many degrees of freedom it is `GaussianProcessRegressor`.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for a scaled RBF that starts in the scale of the data.
    noise_variance : float > 0
        s, the square of the noise's scale; its variance is s nu / (nu - 2).
    noise_variance_bounds : (low, high), "auto" or "fixed"
        "auto" follows the variance of y.
    degrees_of_freedom : float > 0
        nu: 1 for Cauchy noise, 30 for nearly normal noise.
    degrees_of_freedom_bounds : (low, high), "auto" or "fixed"
        Where nu is learned. Few data say little of it, so it is fixed unless bounds are given.
    mean : None, number, callable on (N, D), or Mean
        m, in units of y; a `Mean` has parameters to learn.
    normalize_y : bool
        Centre y at its median, and scale it by 1.48 times the median distance from there, which outliers do not move.
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
    kernel_, mean_ : Kernel and Mean
        As learned.
    noise_variance_, degrees_of_freedom_ : float
        As learned.
    model_ : StudentTModel
        The four as one object with theta.
    X_train_, y_train_ : array (N, D) or N objects, and array (N,)
        The data.
    precisions_ : array (N,)
        E[lambda_i]: about 1 for an ordinary observation, near 0 for an outlier.
    theta_, theta_names_ : array (P,) and tuple of str
        The hyperparameters: noise, kernel, mean.
    log_marginal_likelihood_value_ : float
        The lower bound on log p(y).
    gaussian_process_ : GaussianProcessRegressor
        The process with noise s / E[lambda_i], whose posterior this is.
    optimum_ : Optimum or None
        How the search went.
    n_iter_ : int
        Its iterations, at least 1.

    References
    ----------
    Lecture "Kernel regression and gaussian processes": "Gaussian process regression: gaussian noise".
    Tipping and Lawrence (2005), Variational inference for Student-t models: the noise in its place.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import RobustGaussianProcessRegressor
    >>> x = np.linspace(0.0, 6.0, 40)[:, None]
    >>> y = np.sin(x[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=40)
    >>> y[20] += 10.0
    >>> gp = RobustGaussianProcessRegressor().fit(x, y)
    >>> bool(abs(gp.predict(x[[20]])[0] - np.sin(x[20, 0])) < 0.1)
    True
    >>> bool(gp.precisions_[20] < 0.01)
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise_variance: float = 1e-2,
        noise_variance_bounds: Bounds = AUTO,
        degrees_of_freedom: float = 4.0,
        degrees_of_freedom_bounds: Bounds = "fixed",
        mean: Any = None,
        normalize_y: bool = False,
        optimizer: str | None = "lbfgs",
        n_restarts_optimizer: int = 0,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.noise_variance_bounds = noise_variance_bounds
        self.degrees_of_freedom = degrees_of_freedom
        self.degrees_of_freedom_bounds = degrees_of_freedom_bounds
        self.mean = mean
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: npt.ArrayLike) -> RobustGaussianProcessRegressor:
        """Learn the hyperparameters from X (N, D), or N objects, and y (N,); find the posterior."""
        check_optimizer(self.optimizer)
        model = StudentTModel(
            default_kernel(self.kernel),
            as_mean(self.mean),
            self.noise_variance,
            self.degrees_of_freedom,
            self.noise_variance_bounds,
            self.degrees_of_freedom_bounds,
        )
        points, values = fit_inputs_and_one_target(self, X, y, model.kernel)
        self.X_train_, self.y_train_ = points, values
        self._offset = float(np.median(values)) if self.normalize_y and self.mean is None else 0.0
        self._scale = _spread(values) if self.normalize_y else 1.0
        with single_threaded_blas():
            model, self.optimum_ = self._learn(model)
            bound = self._bound(model, np.ones(len(values)))
        self._set_model(model, bound)
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, 0.0, model)
        if not bound.converged:
            warnings.warn(
                "the precisions of the noise did not converge: raise noise_variance or degrees_of_freedom",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _residuals(self, model: StudentTModel) -> Array:
        """(N,), in units of the scale."""
        m = np.asarray(model.mean(self.X_train_))
        if m.ndim != 1:
            raise ValueError(f"the mean must have shape ({len(self.y_train_)},), got {m.shape}")
        return np.asarray((self.y_train_ - self._offset - m) / self._scale)

    def _bound(self, model: StudentTModel, start: Array, gradient: bool = False) -> Bound:
        return variational_bound(
            model, self.X_train_, self._residuals(model), self._scale, start, gradient=gradient
        )

    def _learn(self, model: StudentTModel) -> tuple[StudentTModel, Optimum | None]:
        residuals = self._residuals(model)
        data = DataScale.of(self.X_train_, residuals[:, None])
        variance = max(_spread(residuals) ** 2, np.finfo(float).tiny)  # outliers do not say how large f is
        ordinary = np.ones(len(residuals))

        def likelihood(model: StudentTModel, gradient: bool) -> tuple[float, Array]:
            # Always from the same start: the value must not depend on what was asked for before.
            bound = self._bound(model, ordinary, gradient)
            return bound.value, bound.gradient

        robust_data = DataScale(data.X, variance, variance)
        return learn_hyperparameters(self, model, likelihood, robust_data, self.kernel is None)

    def _set_model(self, model: StudentTModel, bound: Bound) -> None:
        self.model_ = model
        self.kernel_, self.mean_ = model.kernel, model.mean
        self.noise_variance_ = float(model.noise_variance) * self._scale**2
        self.degrees_of_freedom_ = float(model.degrees_of_freedom)
        self.theta_, self.theta_names_ = model.theta, model.theta_names
        self.log_marginal_likelihood_value_ = bound.value
        self.precisions_ = bound.precisions
        kernel = model.kernel if self._scale == 1.0 else self._scale**2 * model.kernel
        self.gaussian_process_ = GaussianProcessRegressor(
            kernel,
            noise_variance=0.0,
            mean=self._offset if self.mean is None else model.mean,
            optimizer=None,
        ).fit(self.X_train_, self.y_train_, noise_covariance=self.noise_variance_ / bound.precisions)

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """The lower bound on log p(y) of the scaled targets at theta, with its gradient (P,) if asked for."""
        check_is_fitted(self)
        model = self.model_ if theta is None else self.model_.with_theta(theta)
        bound = self._bound(model, np.ones(len(self.y_train_)), gradient=eval_gradient)
        return (bound.value, bound.gradient) if eval_gradient else bound.value

    def predict(
        self, X: Inputs, return_std: bool = False, return_cov: bool = False, include_noise: bool = False
    ) -> Any:
        """Posterior mean (M,) of f at X, then its deviation (M,) or covariance (M, M).

        include_noise: deviation or covariance of new observations instead of f: with s nu / (nu - 2), which is infinite
            for nu <= 2; see `predict_interval` for intervals, which are always finite
        """
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        found = self.gaussian_process_.predict(queries, return_std=return_std, return_cov=return_cov)
        if not include_noise or not (return_std or return_cov):
            return found
        nu = self.degrees_of_freedom_
        noise = self.noise_variance_ * nu / (nu - 2.0) if nu > 2.0 else np.inf
        mean, spread = found
        if return_std:
            return mean, np.sqrt(spread**2 + noise)
        spread.flat[:: len(spread) + 1] += noise
        return mean, spread

    def predict_interval(self, X: Inputs, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper end (M,) of the interval that holds a new observation at X with probability `level`.

        y = f + e is symmetric about its mean, and P(y - mean > d) = int P(e > d - u) N(u; 0, var f) du by quadrature.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be in (0, 1), got {level}")
        mean, std = self.predict(X, return_std=True)
        distance = np.empty_like(mean)
        for start in range(0, len(mean), _BLOCK):
            rows = slice(start, start + _BLOCK)
            distance[rows] = self._half_width(std[rows], 0.5 * (1.0 - level))
        return mean - distance, mean + distance

    def _half_width(self, std: Array, above: float) -> Array:
        """(M,) d with P(y - mean > d) = above. This is convex in d >= 0, so Newton's steps from 0 never go too far."""
        scale, nu = np.sqrt(self.noise_variance_), self.degrees_of_freedom_
        d = np.zeros_like(std)
        for _ in range(_MOST_STEPS):
            tail, density = gaussian_expectation(
                lambda u: np.stack([stdtr(nu, u), np.exp(log_density(u, nu))]),
                -d / scale,
                np.square(std / scale),
            )
            step = scale * (tail - above) / density
            d += step
            if (step <= 1e-10 * d).all():
                break
        return d

    def predict_gradient(self, X: Inputs, return_std: bool = False, return_cov: bool = False) -> Any:
        """Gradient of the posterior mean (M, D), then its deviation (M, D) or covariance (M, D, D)."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        return self.gaussian_process_.predict_gradient(queries, return_std=return_std, return_cov=return_cov)

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions (M, n_samples) drawn from the posterior at X, without the noise of observations."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        return self.gaussian_process_.sample_y(queries, n_samples, random_state)


def _spread(values: Array) -> float:
    """1.48 times the median distance from the median, the deviation of normal data; else the deviation, or 1."""
    robust = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    return robust or float(values.std()) or 1.0
