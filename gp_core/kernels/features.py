"""The kernel of explicit features: Bayesian linear regression seen as a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gp_core.arrays import Array
from gp_core.basis import Basis
from gp_core.kernels.base import Kernel


@dataclass(frozen=True, repr=False)
class BasisFunctions(Kernel):
    """k(x, z) = phi(x)'phi(z); `s1**2 * BasisFunctions(phi) + White(s2**2)` is the prior of a linear model.

    basis: phi; its free parameters are those of the kernel, so that features are learned with it
    """

    basis: Basis

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.basis, Basis):
            raise ValueError(f"BasisFunctions needs a Basis, got {self.basis!r}")

    def _children(self) -> tuple[Basis, ...]:
        return (self.basis,)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(children[0])

    def _pair(self, X: Array, Z: Array | None) -> tuple[Array, Array]:
        left = self.basis._features(X)
        return left, left if Z is None else self.basis._features(Z)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        left, right = self._pair(X, Z)
        K: Array = left @ right.T
        return K

    def _diag(self, X: Array) -> Array:
        squares: Array = np.square(self.basis._features(X)).sum(axis=1)
        return squares

    def _contract(self, X: Array, Z: Array | None, W: Array, upper: bool = False) -> tuple[float, Array]:
        left, right = self._pair(X, Z)
        weighted = W @ right
        value = float(np.vdot(left, weighted))
        gradient = self.basis._theta_vjp(X, weighted)
        return value, gradient + self.basis._theta_vjp(X if Z is None else Z, W.T @ left)

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        left, right = self._pair(X, Z)
        by_left = self.basis._gradient_theta(X)
        by_right = by_left if Z is None else self.basis._gradient_theta(Z)
        gradient: Array = np.einsum("nfp,mf->nmp", by_left, right) + np.einsum("nf,mfp->nmp", left, by_right)
        return gradient

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        right = self._pair(X, Z)[1]
        gradient: Array = np.einsum("nfd,mf->nmd", self.basis._gradient_x(X), right)
        return gradient

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        left = self.basis._gradient_x(X)
        right = left if Z is None else self.basis._gradient_x(Z)
        hessian: Array = np.einsum("nfd,mfe->nmde", left, right)
        return hessian

    def _gradient_xz_diag(self, X: Array) -> Array:
        J = self.basis._gradient_x(X)
        hessian: Array = np.einsum("nfd,nfe->nde", J, J)
        return hessian

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        right = self._pair(X, Z)[1]
        product: Array = np.einsum("nfd,nf->nd", self.basis._gradient_x(X), W @ right)
        return product
