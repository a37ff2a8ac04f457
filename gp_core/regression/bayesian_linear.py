"""Bayesian linear regression: a Gaussian prior on the weights, the whole posterior after the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_covariance, as_float, as_points, integer_at_least
from gp_core.basis import Basis, PolynomialBasis
from gp_core.estimators import Inputs, fit_inputs_and_targets, generator, query_inputs, report, sample_weights
from gp_core.gaussian import Gaussian
from gp_core.linalg import cholesky
from gp_core.optimize import Optimum
from gp_core.parameters import POSITIVE, Bounds, Parameter, Parametrised, Values
from gp_core.regression.noise import Noise
from gp_core.search import SearchSettings, check_optimizer, count_iterations, maximize_likelihood


@dataclass(frozen=True, repr=False)
class _Hyperparameters(Parametrised):
    """What type-2 maximum likelihood chooses: the noise, the scale of the prior, the features."""

    basis: Basis
    noise_variance: Values
    prior_scale: Values = 1.0
    noise_variance_bounds: Bounds = POSITIVE
    prior_scale_bounds: Bounds = POSITIVE

    part_of_estimator: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("noise_variance"), Parameter("prior_scale"))

    def _children(self) -> tuple[Basis, ...]:
        return (self.basis,)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(children[0], self.noise_variance, self.prior_scale, *self._bounds())

    def _bounds(self) -> tuple[Bounds, Bounds]:
        return self.noise_variance_bounds, self.prior_scale_bounds


@dataclass(frozen=True)
class _Weights:
    """w ~ N(mean, root root'), the same covariance for every output.

    mean: (F, O)
    root: (F, F), any square root of the covariance, so that a singular prior is as good as any
    """

    mean: Array
    root: Array

    def update(self, Phi: Array, Y: Array, noise: Noise) -> tuple[_Weights, float]:
        """The posterior after Y = Phi w + e, and log p(Y).

        With w = mean + root u, u ~ N(0, I) and B = Phi root, the posterior precision of u is I + B'R^-1 B.
        """
        B = Phi @ self.root
        precision = B.T @ noise.solve(B)
        precision.flat[:: len(precision) + 1] += 1.0
        factor = cholesky(
            precision, overwrite=True, what="the posterior precision", remedy="scale the features"
        )
        u = factor.solve(B.T @ noise.solve(Y - Phi @ self.mean))
        mean = self.mean + self.root @ u
        rest = Y - Phi @ mean
        n, outputs = noise.n_observations, Y.shape[1]
        log_evidence = -0.5 * (
            float(np.vdot(rest, noise.solve(rest))) + float(np.vdot(u, u))
        ) - 0.5 * outputs * (factor.log_determinant + noise.log_determinant + n * np.log(2.0 * np.pi))
        return _Weights(mean, factor.half_solve(self.root.T).T), log_evidence

    @property
    def covariance(self) -> Array:
        product: Array = self.root @ self.root.T
        return product

    def sample(self, n_samples: int, random_state: Any) -> Array:
        """(F, O, n_samples) draws of the weights."""
        size, outputs = self.mean.shape
        white = generator(random_state).standard_normal((size, outputs * n_samples))
        draws: Array = self.mean[:, :, None] + (self.root @ white).reshape(size, outputs, n_samples)
        return draws


class BayesianLinearRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """y = phi(x)'w + e, w ~ N(m0, S0), e ~ N(0, R), R = noise_variance I + Lambda.

        S = (S0^-1 + Phi'R^-1 Phi)^-1            posterior covariance of w
        m = m0 + S Phi'R^-1 (y - Phi m0)         posterior mean of w
        f(x) ~ N(phi(x)'m, phi(x)'S phi(x))      prediction; an observation adds noise_variance

    O(N F^2 + F^3). It is the Gaussian process with kernel phi(x)'S0 phi(z) and mean phi(x)'m0; with m0 = 0
    and S0 = I the posterior mean is ridge regression with alpha = noise_variance.

    Parameters
    ----------
    basis : Basis or None
        phi; None for (1, x), see `gp_core.basis`.
    prior_mean : number or array (F,) or (F, O)
        m0.
    prior_covariance : number, array (F,) or (F, F)
        S0: a variance, variances or a covariance, possibly singular.
    noise_variance : float
        Of independent noise, > 0.
    optimizer : "lbfgs" or None
        None keeps all this as given; "lbfgs" for type-2 maximum likelihood: noise_variance, a factor on S0
        and the free parameters of the basis (learned features) maximise log p(y).
    n_restarts_optimizer : int
        Further starts, drawn within the bounds.
    max_iter : int
        Iterations per start.
    random_state : None, int or numpy Generator
        Seed of the restarts.

    Attributes
    ----------
    weight_posterior_ : Gaussian, or a tuple of them
        N(m, S) with its marginals, conditionals and draws; for several outputs one per output.
    weights_mean_, weights_covariance_ : arrays (F,) or (F, O), and (F, F)
        m and S.
    basis_ : Basis
        With its learned parameters.
    noise_variance_, prior_scale_ : float
        As learned; prior_scale_ is the factor on S0.
    log_marginal_likelihood_value_ : float
        log p(y).
    optimum_ : Optimum or None
        How the search went.
    n_iter_ : int
        Its iterations, at least 1.

    References
    ----------
    Lecture "Dual Linear Regression": "Linear Regression", "Predictive Posterior".
    Lecture "Gaussian inference, from problem definition to GP classification":
        "2. Vanilla Gaussian Inference (Gaussian Regression)", "3. (Gaussian) Hierarchical Bayesian Inference".

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import BayesianLinearRegression
    >>> model = BayesianLinearRegression(noise_variance=0.01)
    >>> model.sample_y([[0.0], [1.0]], n_samples=3, random_state=0).shape  # from the prior
    (2, 3)
    >>> model.fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).weight_posterior_.mean.round(1)
    array([1., 2.])
    """

    def __init__(
        self,
        basis: Basis | None = None,
        *,
        prior_mean: Any = 0.0,
        prior_covariance: Any = 1.0,
        noise_variance: float = 1.0,
        optimizer: str | None = None,
        n_restarts_optimizer: int = 0,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.basis = basis
        self.prior_mean = prior_mean
        self.prior_covariance = prior_covariance
        self.noise_variance = noise_variance
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(
        self,
        X: Inputs,
        y: npt.ArrayLike,
        noise_covariance: Any = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> BayesianLinearRegression:
        """The posterior from X (N, D) and y (N,) or (N, O).

        noise_covariance: Lambda, the known part of the noise: variances (N,) or a covariance (N, N)
        sample_weight: (N,) how often each point counts, not negative; a weight of 2 is the point twice, with noise of
            its own each time
        """
        check_optimizer(self.optimizer)
        points, targets = fit_inputs_and_targets(self, X, y)
        Y = targets[:, None] if targets.ndim == 1 else targets
        model = self._hyperparameters()
        known = Noise.known(noise_covariance, len(Y))
        points, Y, known, counts = _counted(points, Y, known, sample_weight)
        self.optimum_: Optimum | None = None
        if self.optimizer is not None:
            model, self.optimum_ = self._learn(model, points, Y, known, counts)
        self.basis_ = model.basis
        self.noise_variance_, self.prior_scale_ = float(model.noise_variance), float(model.prior_scale)
        self._single_output = targets.ndim == 1
        prior = self._prior(model, points, Y.shape[1])
        self._weights, value = prior.update(
            model.basis(points), Y, Noise.total(self.noise_variance_, known, counts)
        )
        self.log_marginal_likelihood_value_ = value
        self._publish()
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, 0.0)
        return self

    def partial_fit(
        self,
        X: Inputs,
        y: npt.ArrayLike,
        noise_covariance: Any = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> BayesianLinearRegression:
        """Take the posterior so far as the prior and add further data as `fit` does; the result is that of one batch.

        Hyperparameters stay as they are: those of `fit`, or those given if there was none.
        """
        if not hasattr(self, "_weights"):
            given = self.get_params() | {"optimizer": None}
            first = type(self)(**given).fit(X, y, noise_covariance, sample_weight)
            self.__dict__.update({k: v for k, v in vars(first).items() if k not in given})
            return self
        points = query_inputs(self, X)
        Y = as_float(y, "y")
        expected = (len(points),) if self._single_output else (len(points), self._weights.mean.shape[1])
        if Y.shape != expected:
            raise ValueError(f"y must have shape {expected} to go on from the data before, got {Y.shape}")
        known = Noise.known(noise_covariance, len(points))
        points, Y, known, counts = _counted(points, Y.reshape(len(points), -1), known, sample_weight)
        noise = Noise.total(self.noise_variance_, known, counts)
        self._weights, value = self._weights.update(self.basis_(points), Y, noise)
        self.log_marginal_likelihood_value_ += value  # p(y1, y2) = p(y1) p(y2 | y1)
        self._publish()
        return self

    def _hyperparameters(self) -> _Hyperparameters:
        basis = PolynomialBasis(1) if self.basis is None else self.basis
        if not isinstance(basis, Basis):
            raise ValueError(f"basis must be a gp_core Basis, got {basis!r}")
        return _Hyperparameters(basis, self.noise_variance)

    def _prior(self, model: _Hyperparameters, X: Array, outputs: int) -> _Weights:
        size = model.basis(X[:1]).shape[1]
        mean = as_float(self.prior_mean, "prior_mean")
        if mean.ndim == 1:
            mean = mean[:, None]
        if mean.ndim == 2 and mean.shape not in ((size, 1), (size, outputs)):
            raise ValueError(
                f"prior_mean must be a number, ({size},) or ({size}, {outputs}), got {mean.shape}"
            )
        covariance = as_covariance(self.prior_covariance, size, "prior_covariance")
        root = np.sqrt(float(model.prior_scale)) * _square_root(covariance)
        return _Weights(np.broadcast_to(mean, (size, outputs)).copy(), root)

    def _learn(
        self, start: _Hyperparameters, X: Array, Y: Array, known: Array | None, counts: Array
    ) -> tuple[_Hyperparameters, Optimum]:
        return maximize_likelihood(
            start, lambda model, _: self._evidence(model, X, Y, known, counts), SearchSettings.of(self)
        )

    def _evidence(
        self, model: _Hyperparameters, X: Array, Y: Array, known: Array | None, counts: Array
    ) -> tuple[float, Array]:
        """log p(Y) and its gradient by (noise_variance, prior_scale, basis), in the space of weights.

        With A = R + Phi S0 Phi' and a = A^-1 (Y - Phi m0) = R^-1 (Y - Phi m), the gradient by A is
        W = (a a' - A^-1) / 2, and A^-1 Phi S0 = R^-1 Phi S takes every product with W to F columns.
        """
        variance = float(model.noise_variance)
        noise = Noise.total(variance, known, counts)
        prior = self._prior(model, X, Y.shape[1])
        Phi = model.basis(X)
        posterior, value = prior.update(Phi, Y, noise)
        outputs = Y.shape[1]
        a = noise.solve(Y - Phi @ posterior.mean)
        whitened = noise.solve(Phi) @ posterior.root  # R^-1 Phi S = whitened root'
        by_noise = 0.5 * (noise.square(a) - outputs * (noise.trace_inverse - noise.square(whitened)))
        explained = np.vdot(Phi @ (posterior.mean - prior.mean), a)  # a'Phi S0 Phi'a
        by_scale = 0.5 * (explained - outputs * np.vdot(whitened, Phi @ posterior.root))
        by_phi = a @ posterior.mean.T - outputs * whitened @ posterior.root.T
        gradient = np.concatenate([[variance * by_noise, by_scale], model.basis.theta_vjp(X, by_phi)])
        return value, gradient

    def _publish(self) -> None:
        mean = self._weights.mean
        self.weights_mean_ = mean[:, 0] if self._single_output else mean
        self.weights_covariance_ = self._weights.covariance

    @property
    def weight_posterior_(self) -> Gaussian | tuple[Gaussian, ...]:
        """N(m, S); for several outputs one per output."""
        check_is_fitted(self)
        each = tuple(Gaussian(mean, self.weights_covariance_) for mean in self._weights.mean.T)
        return each[0] if self._single_output else each

    def predict(
        self, X: Inputs, return_std: bool = False, return_cov: bool = False, include_noise: bool = False
    ) -> Any:
        """Posterior mean (M,) or (M, O) of f at X, then its deviation (same shape) or its covariance.

        The covariance is (M, M), or (M, M, O) for several outputs.


        include_noise: deviation or covariance of new observations, with noise_variance, instead of f
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both")
        Phi = self.basis_(query_inputs(self, X))
        mean = Phi @ self.weights_mean_
        if not (return_std or return_cov):
            return mean
        noise = self.noise_variance_ if include_noise else 0.0
        V = Phi @ self._weights.root
        if return_cov:
            covariance = V @ V.T
            covariance.flat[:: len(covariance) + 1] += noise
            if self._single_output:
                return mean, covariance
            return mean, np.repeat(covariance[:, :, None], mean.shape[1], axis=2)
        std = np.sqrt(np.einsum("mf,mf->m", V, V) + noise)
        return mean, std if self._single_output else np.repeat(std[:, None], mean.shape[1], axis=1)

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions drawn at X: (M, n_samples) or (M, O, n_samples); before `fit` from the prior, then posterior.

        random_state: seed: None, an int or a numpy Generator
        """
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        if hasattr(self, "_weights"):
            weights, single = self._weights, self._single_output
            Phi = self.basis_(query_inputs(self, X))
        else:
            points, model = as_points(X), self._hyperparameters()
            outputs = np.shape(self.prior_mean)[1] if np.ndim(self.prior_mean) == 2 else 1
            weights, single = self._prior(model, points, outputs), np.ndim(self.prior_mean) < 2
            Phi = model.basis(points)
        draws: Array = np.einsum("mf,fos->mos", Phi, weights.sample(n_samples, random_state))
        return draws[:, 0] if single else draws


def _counted(
    X: Array, Y: Array, known: Array | None, sample_weight: Any
) -> tuple[Array, Array, Array | None, Array]:
    """Points, targets and known noise of what counts at all, and how often."""
    counts = sample_weights(sample_weight, len(Y))
    used = np.flatnonzero(counts)
    if len(used) == len(Y):
        return X, Y, known, counts
    if known is not None:
        known = known[used] if known.ndim == 1 else known[np.ix_(used, used)]
    return X[used], Y[used], known, counts[used]


def _square_root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    size = max(float(np.abs(values).max()), np.finfo(float).tiny)
    if values[0] < -1e-10 * size:
        raise ValueError(f"prior_covariance is not positive semi-definite (eigenvalue {values[0]:.3g})")
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
