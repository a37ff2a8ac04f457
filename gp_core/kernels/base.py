"""What every kernel offers, and the algebra that builds new ones from old ones.

Public methods check their input and call the private ones, which work on checked arrays; a composite calls
the private ones of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array

from gp_core.arrays import Array, as_float, as_objects, as_points, looks_like_objects
from gp_core.parameters import Parametrised

Domain = Literal["vectors", "objects", "table", "any"]
"""What a kernel takes: points (N, D), N objects, rows with objects and numbers in columns, or any of them."""


@dataclass(frozen=True, repr=False)
class Kernel(Parametrised):
    """A symmetric positive semi-definite function k(x, z), immutable, with hyperparameters theta.

    Every kernel has unit amplitude; scaling sets another: `2.0 * RBF(0.5)` has variance 2. Kernels combine by
    `+`, `*`, `**` (a positive integer) and `exp`; a number promotes to a constant. Points are rows of
    X (N, D) and Z (M, D); kernels on objects take sequences of length N and M.
    """

    domain: ClassVar[Domain] = "vectors"
    chooses_columns: ClassVar[bool] = False
    continuous: ClassVar[bool] = True
    """Whether k takes every vector, not only those of a list, so that a mean of inputs is an input."""
    compact: ClassVar[bool] = False
    """Whether k is exactly 0 beyond a distance, so that `sparse` stores less than all pairs."""

    # -- values ----------------------------------------------------------------------------------------

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """K (N, M) with K_ij = k(x_i, z_j); without Z, the Gram matrix (N, N) of X with itself."""
        X, Z = self._check_pair(X, Z)
        K = self._matrix(X, Z)
        if Z is None and self._conditional():
            _require_semidefinite(K, self._conditional())
        return K

    def diag(self, X: Any) -> Array:
        """(N,) with k(x_i, x_i), the diagonal of k(X), in O(N)."""
        return self._diag(self._check(X))

    def sparse(self, X: Any, Z: Any = None) -> csr_array:
        """K (N, M) as a sparse matrix, for kernels that are 0 beyond a distance: O(pairs) memory and time."""
        X, Z = self._check_pair(X, Z)
        return self._sparse(X, Z)

    def log(self, X: Any, Z: Any = None) -> Array:
        """(N, M) with log k(x_i, z_j), without underflow where k is a decaying exponential."""
        X, Z = self._check_pair(X, Z)
        return self._log_matrix(X, Z)

    # -- derivatives by hyperparameters ------------------------------------------------------------------

    def gradient_theta(self, X: Any, Z: Any = None) -> Array:
        """(N, M, P) with dk(x_i, z_j)/dtheta_p. N M P numbers: for a sum over i, j use `theta_vjp`."""
        X, Z = self._check_pair(X, Z)
        return self._gradient_theta(X, Z)

    def theta_vjp(self, X: Any, W: Any, Z: Any = None) -> Array:
        """(P,) with sum_ij W_ij dk(x_i, z_j)/dtheta_p, without forming the (N, M, P) derivative.

        W: (N, M) weights, any matrix
        """
        X, Z = self._check_pair(X, Z)
        W = as_float(W, "W")
        shape = (len(X), len(X if Z is None else Z))
        if W.shape != shape:
            raise ValueError(f"W must have the shape of the kernel matrix {shape}, got {W.shape}")
        return self._contract(X, Z, W)[1]

    # -- derivatives by inputs ---------------------------------------------------------------------------

    def gradient_x(self, X: Any, Z: Any = None) -> Array:
        """(N, M, D) with dk(x_i, z_j)/dx_i: the covariance of the gradient at x_i with the value at z_j."""
        X, Z = self._check_differentiable(X, Z)
        return self._gradient_x(X, Z)

    def gradient_z(self, X: Any, Z: Any = None) -> Array:
        """(N, M, D) with dk(x_i, z_j)/dz_j."""
        X, Z = self._check_differentiable(X, Z)
        return self._gradient_z(X, Z)

    def gradient_xz(self, X: Any, Z: Any = None) -> Array:
        """(N, M, D, D) with d2k(x_i, z_j)/dx_id dz_je: the covariance between gradients."""
        X, Z = self._check_differentiable(X, Z)
        return self._gradient_xz(X, Z)

    def gradient_xz_diag(self, X: Any) -> Array:
        """(N, D, D) with d2k(x, z)/dx_d dz_e at x = z = x_i: the prior covariance of the gradient."""
        X, _ = self._check_differentiable(X, None)
        return self._gradient_xz_diag(X)

    def why_not_differentiable(self) -> str:
        """Empty if sample paths have a (mean-square) derivative, else the reason why they have none."""
        return ""

    # -- algebra -----------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        from gp_core.kernels import compose

        return compose.add(self, other)

    def __radd__(self, other: Any) -> Any:
        from gp_core.kernels import compose

        return compose.add(other, self)

    def __mul__(self, other: Any) -> Any:
        from gp_core.kernels import compose

        return compose.multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        from gp_core.kernels import compose

        return compose.multiply(other, self)

    def __pow__(self, exponent: Any) -> Kernel:
        from gp_core.kernels import compose

        return compose.Power(self, exponent)

    # -- what a kernel implements, on checked input --------------------------------------------------------

    def _matrix(self, X: Any, Z: Any) -> Array:
        raise NotImplementedError

    def _sparse(self, X: Any, Z: Any) -> csr_array:
        raise ValueError(
            f"{self!r} is not 0 beyond any distance, so a sparse matrix of it saves nothing: use k(X, Z)"
        )

    def _add_to(self, K: Array, X: Any, Z: Any) -> None:
        """K += k(X, Z), in place."""
        K += self._matrix(X, Z)

    def _diag(self, X: Any) -> Array:
        raise NotImplementedError

    def _latent_diag(self, X: Any) -> Array:
        """(N,) with k(x_i, z_i) for z_i another observation at x_i: the diagonal without noise of observations."""
        return self._diag(X)

    def _latent_matrix(self, X: Any) -> Array:
        """(N, N) covariance of f at X: k(X) without the noise of observations."""
        K = self(X)
        K.flat[:: len(K) + 1] += self._latent_diag(X) - self._diag(X)
        return K

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        K = self._matrix(X, Z)
        if (K < 0.0).any():
            raise ValueError(f"{self!r} takes negative values on these points: it has no logarithm")
        with np.errstate(divide="ignore"):
            return np.log(K)

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        if self.n_theta:
            raise NotImplementedError
        return np.zeros((len(X), len(X if Z is None else Z), 0))

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        """sum_ij W_ij K_ij and its derivative by theta: both fall out of one pass over K.

        upper: W is upper triangular (and Z is None), so that the lower half of K can be skipped
        """
        value = float(np.vdot(W, self._matrix(X, Z)))
        if not self.n_theta:
            return value, np.zeros(0)
        return value, np.einsum("ij,ijp->p", W, self._gradient_theta(X, Z))

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        raise NotImplementedError

    def _gradient_z(self, X: Array, Z: Array | None) -> Array:
        other = X if Z is None else Z
        return self._gradient_x(other, X).transpose(1, 0, 2)  # k is symmetric

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        raise NotImplementedError

    def _gradient_xz_diag(self, X: Array) -> Array:
        return np.stack([self._gradient_xz(x[None], x[None])[0, 0] for x in X])

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        """(N, D) with sum_j W_ij dk(x_i, z_j)/dx_i."""
        product: Array = np.einsum("ij,ijd->id", W, self._gradient_x(X, Z))
        return product

    def _conditional(self) -> str:
        """Empty if k is a kernel on every data set, else what to do where it is not."""
        return ""

    # -- checks ------------------------------------------------------------------------------------------

    def _check(self, X: Any, name: str = "X") -> Any:
        """X as this kernel takes it: points (N, D), or a sequence of objects."""
        if self.domain == "any" and looks_like_objects(X):
            return as_objects(X, name)
        return as_points(X, name)

    def _check_pair(self, X: Any, Z: Any) -> tuple[Any, Any]:
        X = self._check(X, "X")
        if Z is None:
            return X, None
        Z = self._check(Z, "Z")
        if isinstance(X, np.ndarray) and isinstance(Z, np.ndarray) and X.shape[1] != Z.shape[1]:
            raise ValueError(f"X has {X.shape[1]} inputs but Z has {Z.shape[1]}: they must match")
        return X, Z

    def _check_differentiable(self, X: Any, Z: Any) -> tuple[Array, Array | None]:
        reason = self.why_not_differentiable()
        if reason:
            raise ValueError(reason)
        X, Z = self._check_pair(X, Z)
        if not isinstance(X, np.ndarray):
            raise ValueError("there is no derivative by sets or strings: give points of shape (N, D)")
        return X, Z


def _require_semidefinite(K: Array, remedy: str) -> None:
    smallest = float(np.linalg.eigvalsh(K)[0])
    if smallest < -1e-10 * max(1.0, float(np.trace(K))):
        raise ValueError(f"not a valid kernel on these points (smallest eigenvalue {smallest:.3g}): {remedy}")
