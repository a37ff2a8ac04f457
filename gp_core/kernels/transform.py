"""Transforms of the inputs that compose with every kernel on vectors: k(T x, T z) is a kernel if k is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from gp_core.arrays import Array, Table, as_float, as_table, integer_at_least, looks_like_objects
from gp_core.kernels.base import Domain, Kernel
from gp_core.kernels.compose import _Wrapper
from gp_core.parameters import POSITIVE, SIGNED, Bounds, Parameter, Values
from gp_core.scales import DataScale


@dataclass(frozen=True, repr=False)
class _Projected(_Wrapper):
    """k(J x, J z) for a linear map J (E, D)."""

    _keeps_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel.domain in ("objects", "table") and not self.chooses_columns:
            raise ValueError(f"{type(self).__name__} transforms vectors; {self.kernel!r} takes objects")

    def _jacobian(self, D: int) -> Array:
        """J (E, D)."""
        raise NotImplementedError

    def _child_scales(self, data: DataScale) -> list[DataScale]:
        return [data.about(self._map(data.X, None)[0])]

    def _check(self, X: Any, name: str = "X") -> Any:
        return Kernel._check(self, X, name)

    def _map(self, X: Array, Z: Array | None) -> tuple[Array, Array | None, Array]:
        J = self._jacobian(X.shape[1])
        return X @ J.T, None if Z is None else Z @ J.T, J

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        U, V, _ = self._map(X, Z)
        return self.kernel._matrix(U, V)

    def _sparse(self, X: Array, Z: Array | None) -> csr_array:
        U, V, _ = self._map(X, Z)
        return self.kernel._sparse(U, V)

    def _diag(self, X: Array) -> Array:
        return self.kernel._diag(self._map(X, None)[0])

    def _latent_diag(self, X: Array) -> Array:
        return self.kernel._latent_diag(self._map(X, None)[0])

    def _log_matrix(self, X: Array, Z: Array | None) -> Array:
        U, V, _ = self._map(X, Z)
        return self.kernel._log_matrix(U, V)

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        U, V, _ = self._map(X, Z)
        return self.kernel._gradient_theta(U, V)

    def _contract(self, X: Array, Z: Array | None, W: Array, upper: bool = False) -> tuple[float, Array]:
        U, V, _ = self._map(X, Z)
        return self.kernel._contract(U, V, W, upper)

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        U, V, J = self._map(X, Z)
        return self.kernel._gradient_x(U, V) @ J

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        U, V, J = self._map(X, Z)
        return J.T @ self.kernel._gradient_xz(U, V) @ J

    def _gradient_xz_diag(self, X: Array) -> Array:
        U, _, J = self._map(X, None)
        return J.T @ self.kernel._gradient_xz_diag(U) @ J

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        U, V, J = self._map(X, Z)
        return self.kernel._input_vjp(U, V, W) @ J


@dataclass(frozen=True, repr=False)
class Metric(_Projected):
    """k in the metric M = L'L + diag(l)^-2: the inputs become (x / l, L x), so s = (x - z)' M (x - z).

    Without L this is the diagonal metric (ARD) for any kernel, also one of inner products. A stationary
    kernel inside should keep its own length scale fixed at 1, or the two scales compete.

    kernel: the kernel of the transformed inputs
    length_scale: l, a number or one per input
    factor: L (R, D), R directions that couple the inputs; its entries are learned as they are, with sign. Rows of
        zeros are learned, too: the gradient vanishes there by symmetry, so a fit first moves them a little.
    """

    length_scale: Values = 1.0
    factor: Values = None
    length_scale_bounds: Bounds = POSITIVE
    factor_bounds: Bounds = SIGNED

    parameters = (
        Parameter("length_scale", ndim=1, role="length"),
        Parameter("factor", kind="signed", ndim=2),
    )

    def __post_init__(self) -> None:
        if self.factor is None or (np.ndim(self.factor) == 0 and self.factor == 0.0):
            self._set("factor", 0.0)
            self._set("factor_bounds", "fixed")
        elif np.ndim(self.factor) != 2:
            raise ValueError(f"Metric: factor must be a matrix (R, D), got shape {np.shape(self.factor)}")
        super().__post_init__()

    def _prefix(self) -> str:
        return "metric."

    def _units(self, parameter: Parameter, value: Array, data: DataScale) -> Array:
        if parameter.name != "factor":
            return super()._units(parameter, value, data)
        return np.tile(1.0 / data.spreads, value.size // len(data.spreads))

    def off_saddles(self, data: DataScale) -> Self:
        moved = super().off_saddles(data)
        if not moved._is_free("factor"):
            return moved
        L = np.array(moved.factor)
        idle = np.flatnonzero(~L.any(axis=1))
        if not idle.size:
            return moved
        # Rows of a cosine transform: different directions, so that no two rows learn the same.
        inputs = np.arange(L.shape[1]) + 0.5
        L[idle] = 0.1 * np.cos(np.pi * np.outer(idle, inputs) / L.shape[1]) / data.spreads
        return dataclasses.replace(moved, factor=L)

    def _jacobian(self, D: int) -> Array:
        scale = np.asarray(self.length_scale)
        if scale.ndim == 1 and len(scale) != D:
            raise ValueError(f"Metric: {len(scale)} length scales but the points have {D} inputs")
        J = np.diag(np.broadcast_to(1.0 / scale, (D,)))
        L = np.asarray(self.factor)
        if L.ndim == 0:
            return J
        if L.shape[1] != D:
            raise ValueError(f"Metric: factor has {L.shape[1]} columns but the points have {D} inputs")
        return np.concatenate([J, L])

    def matrix(self, D: int) -> Array:
        """M (D, D)."""
        J = self._jacobian(D)
        return J.T @ J

    def _own_gradient(self, J_gradient: Array) -> Array:
        """(..., P) derivative by the own free parameters from the derivative by J (..., E, D)."""
        *lead, _, D = J_gradient.shape
        parts = []
        if self._is_free("length_scale"):
            diagonal = np.einsum("...dd->...d", J_gradient[..., :D, :])
            per_input = -diagonal / np.asarray(self.length_scale)  # dJ_dd/dlog l_d = -1/l_d
            parts.append(per_input if np.ndim(self.length_scale) else per_input.sum(axis=-1, keepdims=True))
        if self._is_free("factor"):
            parts.append(J_gradient[..., D:, :].reshape(*lead, -1))
        return np.concatenate(parts, axis=-1) if parts else np.zeros((*lead, 0))

    def _contract(self, X: Array, Z: Array | None, W: Array, upper: bool = False) -> tuple[float, Array]:
        U, V, _ = self._map(X, Z)
        value, inner = self.kernel._contract(U, V, W, upper)
        # K depends on J through u = J x and v = J z.
        other = X if Z is None else Z
        J_gradient = self.kernel._input_vjp(U, V, W).T @ X
        J_gradient += self.kernel._input_vjp(U if V is None else V, U, W.T).T @ other
        return value, np.concatenate([self._own_gradient(J_gradient), inner])

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        U, V, _ = self._map(X, Z)
        other = X if Z is None else Z
        J_gradient = self.kernel._gradient_x(U, V)[..., None] * X[:, None, None, :]
        J_gradient += self.kernel._gradient_z(U, V)[..., None] * other[None, :, None, :]
        return np.concatenate([self._own_gradient(J_gradient), self.kernel._gradient_theta(U, V)], axis=2)


@dataclass(frozen=True, repr=False)
class Columns(_Projected):
    """k of some of the inputs: of some numbers of each point, or of the object in one column of a table.

    So a product can compare a word by one kernel and numbers by another:
    `Columns(EditDistance(), 0) * Columns(RBF(), (1, 2))`, on rows like ["rock", 1.5, 0.2].

    kernel: the kernel of the chosen inputs
    columns: their indices; one for a kernel on objects
    """

    columns: tuple[int, ...] = (0,)

    chooses_columns: ClassVar[bool] = True

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return "table" if self.kernel.domain == "objects" else self.kernel.domain

    def _check(self, X: Any, name: str = "X") -> Any:
        if self.domain == "table" or (self.domain == "any" and looks_like_objects(X)):
            return as_table(X, name)
        return super()._check(X, name)

    def _map(self, X: Any, Z: Any) -> tuple[Any, Any, Array]:
        if not isinstance(X, Table):
            return super()._map(X, Z)
        return self._read(X), None if Z is None else self._read(Z), np.zeros((0, 0))

    def _read(self, table: Table) -> Any:
        """The chosen columns of a table as the kernel takes them."""

        def check(cells: Any) -> Any:
            domain = self.kernel.domain
            objects = domain == "objects" or (domain == "any" and not _are_numbers(cells))
            return self.kernel._check(cells if objects else as_float(cells, "X"))

        return table.columns((type(self.kernel), self.kernel.domain, self.columns), self.columns, check)

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = tuple(integer_at_least(c, 0, "Columns: an index") for c in np.atleast_1d(self.columns))
        if not columns:
            raise ValueError("Columns: name at least one column")
        if self.kernel.domain == "table" or (self.kernel.domain == "objects" and len(columns) > 1):
            raise ValueError(f"Columns: {self.kernel!r} takes one object, so choose one column for it")
        self._set("columns", columns)

    def _jacobian(self, D: int) -> Array:
        if max(self.columns) >= D:
            raise ValueError(
                f"Columns: column {max(self.columns)} does not exist, the points have {D} inputs"
            )
        return np.eye(D)[list(self.columns)]


def _are_numbers(cells: Any) -> bool:
    return all(isinstance(cell, Real) for cell in cells.flat)


def full_metric(kernel: Kernel, M: Any) -> Metric:
    """`kernel` in a given metric M, positive definite, held fixed: M = L'L + diag(l)^-2 is solved for.

    M: (D, D)
    """
    M = as_float(M, "M")
    if M.ndim != 2 or M.shape[0] != M.shape[1]:
        raise ValueError(f"M must be square, got shape {M.shape}")
    values, vectors = np.linalg.eigh((M + M.T) / 2.0)
    if values[0] <= 0.0:
        raise ValueError(f"M must be positive definite (smallest eigenvalue {values[0]:.3g})")
    inverse_square = values[0] / 2.0
    L = np.sqrt(values - inverse_square)[:, None] * vectors.T
    scale = np.full(len(M), 1.0 / np.sqrt(inverse_square))
    return Metric(kernel, scale, L, "fixed", "fixed")
