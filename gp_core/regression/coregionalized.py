"""Gaussian process regression of several outputs that depend on each other, with noise of any covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_covariance, as_float, integer_at_least
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
from gp_core.linalg import Cholesky, cholesky, require_semidefinite
from gp_core.parameters import AUTO, SIGNED, Bounds, Parameter, Parametrised, Values
from gp_core.scales import DataScale
from gp_core.search import check_optimizer, count_iterations, learn_hyperparameters


@dataclass(frozen=True, repr=False)
class Coregionalization(Parametrised):
    """B = F F' + diag(v), the covariance between outputs.

    factor: F (O, R), learned as it is, with sign
    variances: v (O,), what each output has of its own
    """

    factor: Values = ((1.0,),)
    variances: Values = (1.0,)
    factor_bounds: Bounds = SIGNED
    variances_bounds: Bounds = AUTO

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("factor", kind="signed", ndim=2),
        Parameter("variances", ndim=1, role=""),
    )

    @property
    def matrix(self) -> Array:
        """B (O, O)."""
        F = np.asarray(self.factor)
        B: Array = F @ F.T + np.diag(self.variances)
        return B

    def theta_vjp(self, G: Array) -> Array:
        """(P,) with sum_op G_op dB_op / dtheta, for a symmetric G (O, O)."""
        parts = []
        if self._is_free("factor"):
            parts.append((2.0 * G @ np.asarray(self.factor)).ravel())
        if self._is_free("variances"):
            parts.append(np.diagonal(G) * np.asarray(self.variances))
        return np.concatenate(parts) if parts else np.zeros(0)


@dataclass(frozen=True, repr=False)
class _Model(Parametrised):
    """The noise, the covariance between outputs and the kernel between inputs."""

    outputs: Coregionalization
    kernel: Kernel
    noise_variance: Values
    noise_variance_bounds: Bounds

    part_of_estimator: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("noise_variance", zero=True, role="noise"),)

    def _children(self) -> tuple[Parametrised, ...]:
        return (self.outputs, self.kernel)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(children[0], children[1], self.noise_variance, self.noise_variance_bounds)

    def _child_scales(self, data: DataScale) -> list[DataScale]:
        return [data, data.about(data.X, variance=1.0)]


class CoregionalizedGaussianProcessRegressor(
    NamedKernelParameters,
    MultiOutputMixin,  # type: ignore[misc]
    RegressorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """y_o(x) = f_o(x) + e_o, cov(f_o(x), f_p(z)) = B_op k(x, z): intrinsic coregionalisation (Goovaerts 1997).

    With the outputs stacked one after another, y (N O,), and Lambda the covariance of the noise:

        A            = B (x) K + Lambda + noise_variance I
        mean of f(x) = (B (x) k(x, X)) A^-1 y
        cov of f(x)  = B k(x, x) - (B (x) k(x, X)) A^-1 (B (x) k(X, x))

    What one output shows helps where another has no data or much noise. With B = I and noise that is the same for all
    outputs it is `GaussianProcessRegressor`, which then costs N^3 instead of (N O)^3.

    Parameters
    ----------
    kernel : Kernel or None
        k, of unit amplitude: B holds the variances. None for an RBF in the scale of the data.
    rank : int >= 1
        Columns of F in B = F F' + diag(v).
    coregionalization : (O, O) or None
        B, held fixed; None to learn it.
    noise_variance : float >= 0
        Of independent noise, the same for all outputs, learned within its bounds.
    noise_variance_bounds : (low, high), "auto" or "fixed"
    normalize_y : bool
        Centre each output first. Outputs are not scaled: B does that.
    optimizer : "lbfgs" or None
    n_restarts_optimizer : int
    max_iter : int
    random_state : None, int or Generator

    Attributes
    ----------
    kernel_, noise_variance_, theta_, theta_names_ : what was learned
    model_ : kernel, B and noise as one object with theta
    coregionalization_ : B (O, O)
    log_marginal_likelihood_value_ : float
    optimum_ : Optimum or None
    n_iter_ : iterations of the search, at least 1
    X_train_, y_train_ : the data

    References
    ----------
    Lecture "Gaussian inference, from problem definition to GP classification": "4. Gaussian Process".
    Alvarez, Rosasco and Lawrence (2012), Kernels for vector-valued functions, section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import CoregionalizedGaussianProcessRegressor
    >>> x = np.linspace(0.0, 6.0, 25)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=(25, 2))
    >>> Y = np.stack([np.sin(x[:, 0]), -2.0 * np.sin(x[:, 0])], axis=1) + noise
    >>> gp = CoregionalizedGaussianProcessRegressor().fit(x, Y)
    >>> B = gp.coregionalization_
    >>> bool(B[0, 1] / np.sqrt(B[0, 0] * B[1, 1]) < -0.8)  # the outputs go against each other
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        rank: int = 1,
        coregionalization: Any = None,
        noise_variance: float = 1e-2,
        noise_variance_bounds: Bounds = AUTO,
        normalize_y: bool = False,
        optimizer: str | None = "lbfgs",
        n_restarts_optimizer: int = 0,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.rank = rank
        self.coregionalization = coregionalization
        self.noise_variance = noise_variance
        self.noise_variance_bounds = noise_variance_bounds
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(
        self,
        X: Inputs,
        y: npt.ArrayLike,
        noise_variances: Any = None,
        output_noise: Any = None,
        noise_covariance: Any = None,
    ) -> CoregionalizedGaussianProcessRegressor:
        """Learn from X (N, D) and y (N, O). The known parts of the noise are added to each other and to noise_variance.

        Parameters
        ----------
        noise_variances : (N, O)
            Per observation.
        output_noise : (O, O)
            Between the outputs of one point, the same at all points.
        noise_covariance : (N O, N O)
            Between all observations; the points of the first output first, then those of the second.
        """
        check_optimizer(self.optimizer)
        kernel = default_kernel(self.kernel)
        points, values = fit_inputs_and_targets(self, X, y, kernel)
        self._single_output = values.ndim == 1
        Y = values[:, None] if values.ndim == 1 else values
        self.X_train_, self.y_train_ = points, values
        self._offset = Y.mean(axis=0) if self.normalize_y else np.zeros(Y.shape[1])
        self._stacked = (Y - self._offset).T.ravel()
        self._known = _stack_noise(len(Y), Y.shape[1], noise_variances, output_noise, noise_covariance)
        model = _Model(self._outputs(Y), kernel, self.noise_variance, self.noise_variance_bounds)
        model, self.optimum_ = learn_hyperparameters(
            self,
            model,
            lambda trial, gradient: self._evidence(trial, gradient)[:2],
            DataScale.of(points, Y - self._offset),
        )
        self.model_, self.kernel_ = model, model.kernel
        self.coregionalization_ = model.outputs.matrix
        self.noise_variance_ = float(model.noise_variance)
        self.theta_, self.theta_names_ = model.theta, model.theta_names
        self.log_marginal_likelihood_value_, _, self._factor, dual = self._evidence(model, gradient=False)
        self._dual = dual.reshape(Y.shape[1], Y.shape[0])
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, self._factor.jitter, model)
        return self

    def _outputs(self, Y: Array) -> Coregionalization:
        """B to begin with: each output's variance, half of it shared."""
        outputs = Y.shape[1]
        rank = integer_at_least(self.rank, 1, "rank")
        if self.coregionalization is not None:
            return self._given_outputs(self.coregionalization, outputs)
        deviation = np.sqrt(np.maximum(np.mean(np.square(Y - self._offset), axis=0), np.finfo(float).tiny))
        centred = Y - Y.mean(axis=0)
        signs = np.where(
            centred.T @ centred[:, 0] < 0.0, -1.0, 1.0
        )  # towards the correlation with the first output
        pattern = np.cos(np.pi * np.outer(np.arange(outputs) + 0.5, np.arange(rank)) / outputs)
        F = np.sqrt(0.5 / rank) * (deviation * signs)[:, None] * pattern
        return Coregionalization(F, 0.5 * deviation**2)

    @staticmethod
    def _given_outputs(coregionalization: Any, outputs: int) -> Coregionalization:
        """B as it was given, held fixed."""
        B = as_covariance(coregionalization, outputs, "coregionalization")
        values, vectors = np.linalg.eigh(B)
        if values[0] < -1e-10 * max(abs(values[-1]), np.finfo(float).tiny):
            raise ValueError(f"coregionalization has a negative eigenvalue ({values[0]:.3g})")
        tiny = np.full(outputs, max(1e-12 * abs(values[-1]), np.finfo(float).tiny))
        return Coregionalization(vectors * np.sqrt(np.maximum(values, 0.0)), tiny, "fixed", "fixed")

    def _evidence(self, model: _Model, gradient: bool) -> tuple[float, Array, Cholesky, Array]:
        """log p(y), its gradient (P,), the factor of A and A^-1 y."""
        B, K = model.outputs.matrix, model.kernel(self.X_train_)
        n, outputs = len(K), len(B)
        A = np.asarray(np.kron(B, K), dtype=np.float64)
        if self._known is not None:
            A += self._known
        A.flat[:: len(A) + 1] += float(model.noise_variance)
        factor = cholesky(A, overwrite=True)
        dual = factor.solve(self._stacked)
        value = -0.5 * (float(self._stacked @ dual) + factor.log_determinant + len(A) * np.log(2.0 * np.pi))
        if not gradient:
            return value, np.zeros(0), factor, dual
        W = 0.5 * (np.outer(dual, dual) - factor.inverse())  # d log p / dA
        blocks = W.reshape(outputs, n, outputs, n)
        parts = []
        if model._is_free("noise_variance"):
            parts.append(np.array([float(model.noise_variance) * np.trace(W)]))
        parts.append(model.outputs.theta_vjp(np.einsum("onpm,nm->op", blocks, K)))
        if model.kernel.n_theta:
            parts.append(model.kernel._contract(self.X_train_, None, np.einsum("onpm,op->nm", blocks, B))[1])
        return value, np.concatenate(parts), factor, dual

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """log p(y) at theta (of the fitted model unless given), with its gradient (P,) if asked for."""
        check_is_fitted(self)
        model = self.model_ if theta is None else self.model_.with_theta(theta)
        value, gradient, _, _ = self._evidence(model, eval_gradient)
        return (value, gradient) if eval_gradient else value

    def predict(self, X: Inputs, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior mean (M, O) of f at X, then its deviation (M, O), or covariance (M, O, M, O)."""
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both")
        queries = query_inputs(self, X, self.kernel_)
        mean, covariance = self._joint(queries, return_std or return_cov)
        m, outputs = mean.shape
        mean = mean[:, 0] if self._single_output else mean
        if return_cov:
            spread = covariance.reshape(outputs, m, outputs, m).transpose(1, 0, 3, 2)
            return mean, spread[:, 0, :, 0] if self._single_output else spread
        if return_std:
            std = np.sqrt(np.maximum(np.diagonal(covariance), 0.0)).reshape(outputs, m).T
            return mean, std[:, 0] if self._single_output else std
        return mean

    def _joint(self, X: Any, with_covariance: bool) -> tuple[Array, Array]:
        """Mean (M, O) and covariance (O M, O M) of f, outputs one after another."""
        B = self.coregionalization_
        K = self.kernel_._matrix(X, self.X_train_)
        mean = (B @ self._dual @ K.T).T + self._offset
        if not with_covariance:
            return mean, np.zeros((0, 0))
        V = self._factor.half_solve(np.asfortranarray(np.kron(B, K).T))
        return mean, np.kron(B, self.kernel_._latent_matrix(X)) - V.T @ V

    def predict_gradient(self, X: Inputs, return_std: bool = False) -> Any:
        """Gradient of the posterior mean (M, O, D), and its deviation of the same shape if asked for."""
        check_is_fitted(self)
        reason = self.kernel_.why_not_differentiable()
        if reason:
            raise ValueError(reason)
        queries = query_inputs(self, X, self.kernel_)
        B = self.coregionalization_
        G = self.kernel_._gradient_x(queries, self.X_train_)  # (M, N, D)
        mean: Array = np.einsum("mnd,pn,op->mod", G, self._dual, B)
        if not return_std:
            return mean[:, 0] if self._single_output else mean
        prior = np.einsum("mdd->md", self.kernel_._gradient_xz_diag(queries))
        m, n, D = G.shape
        variance = np.empty_like(mean)
        for o, row in enumerate(B):
            cross = np.einsum("p,mnd->pnmd", row, G).reshape(len(B) * n, m * D)
            V = self._factor.half_solve(np.asfortranarray(cross))
            variance[:, o] = row[o] * prior - np.square(V).sum(axis=0).reshape(m, D)
        std = np.sqrt(np.maximum(variance, 0.0))
        return (mean[:, 0], std[:, 0]) if self._single_output else (mean, std)

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions drawn jointly at X: (M, n_samples), or (M, O, n_samples).

        From the posterior after `fit`, from the prior before it, for which `coregionalization` must be given. They are
        functions, so without the noise of observations.
        """
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        fitted = hasattr(self, "model_")
        if fitted:
            mean, covariance = self._joint(query_inputs(self, X, self.kernel_), with_covariance=True)
            B, single = self.coregionalization_, self._single_output
        else:
            mean, covariance, B = self._prior(X)
            single = False
        size = float(np.trace(B)) / len(B)
        factor = cholesky(covariance, overwrite=True, scale=size, remedy="look at it with is_valid_kernel")
        white = generator(random_state).standard_normal((len(covariance), n_samples))
        draws = (factor.lower @ white).reshape(mean.shape[1], len(mean), n_samples).transpose(1, 0, 2)
        draws = draws + mean[:, :, None]
        return draws[:, 0] if single else draws

    def _prior(self, X: Any) -> tuple[Array, Array, Array]:
        """Mean (M, O) and covariance (O M, O M) of f before any data, and B."""
        if self.coregionalization is None:
            raise ValueError(
                "before a fit the outputs are known by coregionalization only: give it, or fit first"
            )
        B = as_float(self.coregionalization, "coregionalization")
        B = self._given_outputs(B, len(np.atleast_1d(B))).matrix
        kernel = default_kernel(self.kernel)
        points = kernel._check(X)
        covariance: Array = np.asarray(np.kron(B, kernel._latent_matrix(points)), dtype=np.float64)
        return np.zeros((len(points), len(B))), covariance, B


def _stack_noise(n: int, outputs: int, variances: Any, between: Any, full: Any) -> Array | None:
    """Lambda (N O, N O), outputs one after another; None if no part of it is known."""
    if variances is None and between is None and full is None:
        return None
    total = np.zeros((n * outputs, n * outputs))
    if variances is not None:
        values = as_float(variances, "noise_variances")
        values = values[:, None] if values.ndim == 1 and outputs == 1 else values
        if values.shape != (n, outputs) or (values < 0.0).any():
            least = "" if values.shape != (n, outputs) else f", least {values.min():.3g}"
            raise ValueError(
                f"noise_variances must be ({n}, {outputs}) and >= 0, got shape {values.shape}{least}"
            )
        total.flat[:: len(total) + 1] += values.T.ravel()
    if between is not None:
        covariance = as_covariance(between, outputs, "output_noise")
        require_semidefinite(covariance, "output_noise")
        total += np.kron(covariance, np.eye(n))
    if full is not None:
        size = n * outputs
        if np.shape(full) not in ((), (size,), (size, size)):
            raise ValueError(
                f"noise_covariance must be ({size}, {size}), got shape {np.shape(full)}: noise per point and output is "
                "noise_variances, noise between outputs is output_noise"
            )
        covariance = as_covariance(full, size, "noise_covariance")
        require_semidefinite(covariance, "noise_covariance")
        total += covariance
    return total
