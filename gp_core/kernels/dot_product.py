"""Kernels of the inner product, and the two that need none: constant and white noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from gp_core.arrays import Array, as_float, integer_at_least
from gp_core.kernels.base import Kernel
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values, _frozen


@dataclass(frozen=True, repr=False)
class Linear(Kernel):
    """k(x, z) = x'z: linear functions through the origin; `Linear() + 1.0` adds an offset."""

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K: Array = X @ (X if Z is None else Z).T
        return K

    def _diag(self, X: Array) -> Array:
        squares: Array = np.einsum("nd,nd->n", X, X)
        return squares

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        return np.repeat(other[None], len(X), axis=0)

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        D = X.shape[1]
        return np.broadcast_to(np.eye(D), (len(X), len(X if Z is None else Z), D, D)).copy()

    def _gradient_xz_diag(self, X: Array) -> Array:
        return np.repeat(np.eye(X.shape[1])[None], len(X), axis=0)

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        product: Array = W @ (X if Z is None else Z)
        return product


@dataclass(frozen=True, repr=False)
class Polynomial(Kernel):
    """k(x, z) = (x'z + c)^d: polynomials of degree d, all monomials up to d if c > 0.

    degree: d, a positive integer
    offset: c >= 0; 0 keeps only the monomials of degree d
    """

    degree: int = 2
    offset: Values = 1.0
    offset_bounds: Bounds = POSITIVE

    parameters = (Parameter("offset", zero=True, role="area"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("degree", integer_at_least(self.degree, 1, "Polynomial: degree"))

    def _base(self, X: Array, Z: Array | None) -> Array:
        inner: Array = X @ (X if Z is None else Z).T
        inner += float(self.offset)
        return inner

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return np.asarray(self._base(X, Z) ** self.degree)

    def _diag(self, X: Array) -> Array:
        return np.asarray((np.einsum("nd,nd->n", X, X) + float(self.offset)) ** self.degree)

    def _slope(self, X: Array, Z: Array | None) -> Array:
        return self.degree * self._base(X, Z) ** (self.degree - 1)

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        if not self.n_theta:
            return super()._gradient_theta(X, Z)
        return (float(self.offset) * self._slope(X, Z))[:, :, None]

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        return self._slope(X, Z)[:, :, None] * other[None]

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        D = X.shape[1]
        H = self._slope(X, Z)[:, :, None, None] * np.eye(D)
        if self.degree > 1:
            d = self.degree
            second = d * (d - 1) * self._base(X, Z) ** (d - 2)
            H += second[:, :, None, None] * other[None, :, :, None] * X[:, None, None, :]
        return H

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        product: Array = (W * self._slope(X, Z)) @ (X if Z is None else Z)
        return product


@dataclass(frozen=True, repr=False)
class Affine(Kernel):
    """k(x, z) = x'A z with A positive semi-definite: linear in other coordinates.

    A: (D, D), symmetric, no negative eigenvalue; not learned (the transform `Metric` of Linear is)
    """

    A: Any = ((1.0,),)

    def __post_init__(self) -> None:
        A = as_float(self.A, "Affine: A")
        if A.ndim != 2 or A.shape[0] != A.shape[1] or A.size == 0:
            raise ValueError(f"Affine: A must be square, got shape {A.shape}")
        size = float(np.abs(A).max())
        if not np.allclose(A, A.T, rtol=0.0, atol=1e-10 * size):
            raise ValueError("Affine: A must be symmetric: use (A + A.T) / 2")
        smallest = float(eigh(A, eigvals_only=True)[0])
        if smallest < -1e-10 * size:
            raise ValueError(f"Affine: A is not positive semi-definite (smallest eigenvalue {smallest:.3g})")
        self._set("A", _frozen((A + A.T) / 2.0))

    def _left(self, X: Array) -> Array:
        A = np.asarray(self.A)
        if X.shape[1] != len(A):
            raise ValueError(f"Affine: A is {A.shape} but the points have {X.shape[1]} inputs")
        left: Array = X @ A
        return left

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        K: Array = self._left(X) @ (X if Z is None else Z).T
        return K

    def _diag(self, X: Array) -> Array:
        squares: Array = np.einsum("nd,nd->n", self._left(X), X)
        return squares

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return np.repeat(self._left(X if Z is None else Z)[None], len(X), axis=0)

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        A = np.asarray(self.A)
        return np.broadcast_to(A, (len(X), len(X if Z is None else Z), *A.shape)).copy()

    def _gradient_xz_diag(self, X: Array) -> Array:
        return np.repeat(np.asarray(self.A)[None], len(X), axis=0)

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        product: Array = W @ self._left(X if Z is None else Z)
        return product


@dataclass(frozen=True, repr=False)
class Constant(Kernel):
    """k(x, z) = c: an unknown offset shared by all points.

    value: c > 0
    """

    value: Values = 1.0
    value_bounds: Bounds = POSITIVE

    domain = "any"
    parameters = (Parameter("value", role="variance"),)

    def _matrix(self, X: Any, Z: Any) -> Array:
        return np.full((len(X), len(X if Z is None else Z)), float(self.value))

    def _add_to(self, K: Array, X: Any, Z: Any) -> None:
        K += float(self.value)

    def _diag(self, X: Any) -> Array:
        return np.full(len(X), float(self.value))

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        return self._matrix(X, Z)[:, :, None] if self.n_theta else super()._gradient_theta(X, Z)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        value = float(self.value) * float(W.sum())
        return value, np.full(self.n_theta, value)

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return np.zeros((len(X), len(X if Z is None else Z), X.shape[1]))

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        D = X.shape[1]
        return np.zeros((len(X), len(X if Z is None else Z), D, D))

    def _gradient_xz_diag(self, X: Array) -> Array:
        return np.zeros((len(X), X.shape[1], X.shape[1]))

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return np.zeros_like(X)


@dataclass(frozen=True, repr=False)
class White(Kernel):
    """k(x_i, x_j) = variance [i = j]: independent noise on each observation.

    The delta is between observations, not between locations: k(X) is diagonal, and k(X, Z) is 0 since the
    points of Z are other observations, also where they coincide with points of X.

    variance: of the noise, > 0
    """

    variance: Values = 1.0
    variance_bounds: Bounds = POSITIVE

    domain = "any"
    parameters = (Parameter("variance", role="noise"),)

    def why_not_differentiable(self) -> str:
        return "White noise has no derivative: give the noise as noise_variance of the model instead"

    def _matrix(self, X: Any, Z: Any) -> Array:
        if Z is None:
            return np.diag(self._diag(X))
        return np.zeros((len(X), len(Z)))

    def _add_to(self, K: Array, X: Any, Z: Any) -> None:
        if Z is None:
            K.flat[:: len(K) + 1] += float(self.variance)

    def _diag(self, X: Any) -> Array:
        return np.full(len(X), float(self.variance))

    def _latent_diag(self, X: Any) -> Array:
        return np.zeros(len(X))

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        return self._matrix(X, Z)[:, :, None] if self.n_theta else super()._gradient_theta(X, Z)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        value = float(self.variance) * float(np.trace(W)) if Z is None else 0.0
        return value, np.full(self.n_theta, value)

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return np.zeros_like(X)
