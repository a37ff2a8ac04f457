"""Basis functions phi(x): fixed or learned features for linear models and for the basis-function kernel.

phi maps points (N, D) to features (N, F). What it learns is in theta, as for a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from gp_core.arrays import Array, as_float, as_points, integer_at_least
from gp_core.parameters import FIXED, POSITIVE, Bounds, Parameter, Parametrised, Values


@dataclass(frozen=True, repr=False)
class Basis(Parametrised):
    """phi(x) of F features."""

    def __call__(self, X: Any) -> Array:
        """Features (N, F) of points (N, D)."""
        return self._features(as_points(X))

    def gradient_x(self, X: Any) -> Array:
        """(N, F, D) with dphi_f/dx_d."""
        return self._gradient_x(as_points(X))

    def gradient_theta(self, X: Any) -> Array:
        """(N, F, P) with dphi_f(x_n)/dtheta_p."""
        return self._gradient_theta(as_points(X))

    def theta_vjp(self, X: Any, W: Array) -> Array:
        """(P,) with sum_nf W_nf dphi_f(x_n)/dtheta_p, for W (N, F)."""
        return self._theta_vjp(as_points(X), as_float(W, "W"))

    def _features(self, X: Array) -> Array:
        raise NotImplementedError

    def _gradient_x(self, X: Array) -> Array:
        raise NotImplementedError

    def _gradient_theta(self, X: Array) -> Array:
        return np.zeros((len(X), self._features(X[:1]).shape[1], 0))

    def _theta_vjp(self, X: Array, W: Array) -> Array:
        return np.zeros(0)


@dataclass(frozen=True, repr=False)
class PolynomialBasis(Basis):
    """phi(x) = all monomials of x of total degree 0 (if intercept) or 1 up to `degree`.

    degree: at least 0; 1 gives (1, x_1, ..., x_D)
    intercept: whether the constant 1 is a feature, the first
    """

    degree: int = 1
    intercept: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("degree", integer_at_least(self.degree, 0, "PolynomialBasis: degree"))
        if self.degree == 0 and not self.intercept:
            raise ValueError("PolynomialBasis: degree 0 without intercept has no features")

    def exponents(self, D: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        """(F, D) the power of each input in each monomial."""
        rows = []
        for degree in range(0 if self.intercept else 1, self.degree + 1):
            for chosen in combinations_with_replacement(range(D), degree):
                rows.append(np.bincount(np.array(chosen, dtype=np.intp), minlength=D))
        return np.array(rows, dtype=np.intp).reshape(-1, D)

    def _features(self, X: Array) -> Array:
        exponents = self.exponents(X.shape[1])
        phi = np.ones((len(X), len(exponents)))
        for d in range(X.shape[1]):
            powers = X[:, d, None] ** np.arange(self.degree + 1)
            phi *= powers[:, exponents[:, d]]
        return phi

    def _gradient_x(self, X: Array) -> Array:
        exponents = self.exponents(X.shape[1])
        out = np.empty((len(X), len(exponents), X.shape[1]))
        for e in range(X.shape[1]):
            lowered = exponents.copy()
            lowered[:, e] = np.maximum(lowered[:, e] - 1, 0)
            factors = [X[:, d, None] ** lowered[None, :, d] for d in range(X.shape[1])]
            out[:, :, e] = exponents[:, e] * np.prod(factors, axis=0)
        return out


@dataclass(frozen=True, repr=False)
class _Located(Basis):
    """Features with an optional leading constant."""

    def _bare(self, X: Array) -> Array:
        raise NotImplementedError

    def _bare_gradient_x(self, X: Array) -> Array:
        raise NotImplementedError

    def _has_intercept(self) -> bool:
        raise NotImplementedError

    def _with_constant(self, parts: list[Array], n: int, size: int) -> Array:
        """(N, F, P) from the derivatives of the bare features; that of a leading constant is 0."""
        bare = np.concatenate(parts, axis=2) if parts else np.zeros((n, size, 0))
        return np.pad(bare, ((0, 0), (1, 0), (0, 0))) if self._has_intercept() else bare

    def _features(self, X: Array) -> Array:
        bare = self._bare(X)
        return np.hstack([np.ones((len(X), 1)), bare]) if self._has_intercept() else bare

    def _gradient_x(self, X: Array) -> Array:
        bare = self._bare_gradient_x(X)
        if not self._has_intercept():
            return bare
        return np.concatenate([np.zeros((len(X), 1, X.shape[1])), bare], axis=1)


@dataclass(frozen=True, repr=False)
class GaussianBasis(_Located):
    """phi_f(x) = exp(-|x - c_f|^2 / (2 w^2)).

    centers: c (F, D); learned if centers_bounds are given
    width: w
    intercept: whether the constant 1 comes first
    """

    centers: Values = ((0.0,),)
    width: Values = 1.0
    intercept: bool = False
    centers_bounds: Bounds = FIXED
    width_bounds: Bounds = POSITIVE

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("centers", kind="signed", ndim=2),
        Parameter("width"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_matrix(self.centers, "GaussianBasis: centers")

    def _has_intercept(self) -> bool:
        return self.intercept

    def _offsets(self, X: Array) -> Array:
        """(N, F, D) with (x_n - c_f) / w."""
        centers = np.asarray(self.centers)
        if centers.shape[1] != X.shape[1]:
            raise ValueError(f"GaussianBasis: centers have {centers.shape[1]} inputs, points {X.shape[1]}")
        offsets: Array = (X[:, None, :] - centers[None]) / float(self.width)
        return offsets

    def _bare(self, X: Array) -> Array:
        phi: Array = np.exp(-0.5 * np.square(self._offsets(X)).sum(axis=2))
        return phi

    def _bare_gradient_x(self, X: Array) -> Array:
        u = self._offsets(X)
        phi = np.exp(-0.5 * np.square(u).sum(axis=2))
        gradient: Array = -phi[:, :, None] * u / float(self.width)
        return gradient

    def _gradient_theta(self, X: Array) -> Array:
        u = self._offsets(X)
        n, size, D = u.shape
        square = np.square(u).sum(axis=2)
        phi = np.exp(-0.5 * square)
        parts = []
        if self._is_free("centers"):
            by_own = phi[:, :, None] * u / float(self.width)  # phi_f depends on its own centre only
            parts.append((by_own[:, :, None, :] * np.eye(size)[None, :, :, None]).reshape(n, size, size * D))
        if self._is_free("width"):
            parts.append((phi * square)[:, :, None])
        return self._with_constant(parts, n, size)

    def _theta_vjp(self, X: Array, W: Array) -> Array:
        u = self._offsets(X)
        square = np.square(u).sum(axis=2)
        weighted = W[:, int(self.intercept) :] * np.exp(-0.5 * square)
        parts = []
        if self._is_free("centers"):
            parts.append((np.einsum("nf,nfd->fd", weighted, u) / float(self.width)).ravel())
        if self._is_free("width"):
            parts.append(np.array([np.einsum("nf,nf->", weighted, square)]))
        return np.concatenate(parts) if parts else np.zeros(0)


@dataclass(frozen=True, repr=False)
class SigmoidBasis(_Located):
    """phi_f(x) = 1 / (1 + exp(-(v_f'x + b_f))): a layer of soft steps.

    weights: v (F, D); learned if weights_bounds are given
    biases: b (F,); learned if biases_bounds are given
    intercept: whether the constant 1 comes first
    """

    weights: Values = ((1.0,),)
    biases: Values = (0.0,)
    intercept: bool = False
    weights_bounds: Bounds = FIXED
    biases_bounds: Bounds = FIXED

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("weights", kind="signed", ndim=2),
        Parameter("biases", kind="signed", ndim=1),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_matrix(self.weights, "SigmoidBasis: weights")
        if np.shape(self.biases) != (len(self.weights),):
            raise ValueError(f"SigmoidBasis: biases must have shape ({len(self.weights)},), one per feature")

    @classmethod
    def at(cls, centers: Any, width: float = 1.0, **options: Any) -> SigmoidBasis:
        """Steps along one input, phi_f(x) = sigma((x - c_f) / width)."""
        centers = np.atleast_1d(as_float(centers, "centers"))
        return cls(np.full((len(centers), 1), 1.0 / width), -centers / width, **options)

    def _has_intercept(self) -> bool:
        return self.intercept

    def _bare(self, X: Array) -> Array:
        weights = np.asarray(self.weights)
        if weights.shape[1] != X.shape[1]:
            raise ValueError(f"SigmoidBasis: weights have {weights.shape[1]} inputs, points {X.shape[1]}")
        phi: Array = expit(X @ weights.T + np.asarray(self.biases))
        return phi

    def _bare_gradient_x(self, X: Array) -> Array:
        phi = self._bare(X)
        gradient: Array = (phi * (1.0 - phi))[:, :, None] * np.asarray(self.weights)[None]
        return gradient

    def _gradient_theta(self, X: Array) -> Array:
        phi = self._bare(X)
        n, size = phi.shape
        by_own = (phi * (1.0 - phi))[:, :, None] * np.eye(size)  # phi_f depends on its own v_f and b_f only
        parts = []
        if self._is_free("weights"):
            parts.append((by_own[:, :, :, None] * X[:, None, None, :]).reshape(n, size, -1))
        if self._is_free("biases"):
            parts.append(by_own)
        return self._with_constant(parts, n, size)

    def _theta_vjp(self, X: Array, W: Array) -> Array:
        phi = self._bare(X)
        weighted = W[:, int(self.intercept) :] * phi * (1.0 - phi)
        parts = []
        if self._is_free("weights"):
            parts.append((weighted.T @ X).ravel())
        if self._is_free("biases"):
            parts.append(weighted.sum(axis=0))
        return np.concatenate(parts) if parts else np.zeros(0)


def _require_matrix(value: Any, name: str) -> None:
    if np.ndim(value) != 2:
        raise ValueError(f"{name} must have shape (F, D), got {np.shape(value)}")
