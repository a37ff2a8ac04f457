"""The algebra of kernels: scaling, sum, product, power, exponential. Each keeps a kernel a kernel."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from functools import cached_property, reduce
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from gp_core.arrays import Array, as_table, integer_at_least, looks_like_objects
from gp_core.kernels.base import Domain, Kernel
from gp_core.kernels.dot_product import Constant
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values, expression
from gp_core.scales import DataScale


def add(left: Any, right: Any) -> Any:
    """k1 + k2; a number becomes a Constant, 0 adds nothing."""
    if _is_zero(left) or _is_zero(right):  # so that sum([k1, k2]) works, which begins at 0
        return left if _is_zero(right) else right
    a, b = _promote(left), _promote(right)
    if a is None or b is None:
        return NotImplemented
    return Sum((a, b))


def multiply(left: Any, right: Any) -> Any:
    """k1 k2; a number scales."""
    if isinstance(left, Kernel) and isinstance(right, Kernel):
        return Product((left, right))
    kernel, number = (left, right) if isinstance(left, Kernel) else (right, left)
    if not isinstance(number, Real) or isinstance(number, bool):
        return NotImplemented
    if isinstance(kernel, Scaled):
        return Scaled(kernel.kernel, float(number) * kernel.scale, kernel.scale_bounds)
    return Scaled(kernel, float(number))


def exp(kernel: Kernel) -> Kernel:
    """exp(k): the series of all powers of k, so again a kernel."""
    return Exp(kernel)


@dataclass(frozen=True, repr=False)
class _Wrapper(Kernel):
    """A kernel made from one other."""

    kernel: Kernel

    _keeps_zeros: ClassVar[bool] = False

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.kernel.domain

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        return self.kernel.continuous

    @property
    def compact(self) -> bool:  # type: ignore[override]
        return self.kernel.compact and self._keeps_zeros

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"{type(self).__name__} needs a kernel, got {self.kernel!r}")

    def _children(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return dataclasses.replace(self, kernel=children[0])

    def why_not_differentiable(self) -> str:
        return self.kernel.why_not_differentiable()

    def _conditional(self) -> str:
        return self.kernel._conditional()

    def _check(self, X: Any, name: str = "X") -> Any:
        return self.kernel._check(X, name)


@dataclass(frozen=True, repr=False)
class Scaled(_Wrapper):
    """c k(x, z), written `c * k`: amplitude, the variance of the function if k(x, x) = 1.

    scale: c > 0
    """

    scale: Values = 1.0
    scale_bounds: Bounds = POSITIVE

    parameters = (Parameter("scale"),)
    _keeps_zeros: ClassVar[bool] = True

    def __repr__(self) -> str:
        if self.scale_bounds != POSITIVE:
            return f"Scaled({self.kernel!r}, {self.scale!r}, {expression(self.scale_bounds)})"
        if isinstance(self.kernel, Scaled):  # the product of two numbers would be one scale
            return f"Scaled({self.kernel!r}, {self.scale!r})"
        inner = f"({self.kernel!r})" if isinstance(self.kernel, _Combination) else repr(self.kernel)
        return f"{self.scale!r} * {inner}"

    def _units(self, parameter: Parameter, value: Array, data: DataScale) -> Array:
        return np.full(1, data.variance / _mean_diagonal(self.kernel, data))

    def _child_scales(self, data: DataScale) -> list[DataScale]:
        return [data.about(data.X, variance=1.0)]

    @property
    def _c(self) -> float:
        return float(self.scale)

    def _matrix(self, X: Any, Z: Any) -> Array:
        K = self.kernel._matrix(X, Z)
        K *= self._c
        return K

    def _sparse(self, X: Any, Z: Any) -> csr_array:
        return self._c * self.kernel._sparse(X, Z)

    def _diag(self, X: Any) -> Array:
        return self._c * self.kernel._diag(X)

    def _latent_diag(self, X: Any) -> Array:
        return self._c * self.kernel._latent_diag(X)

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        log_k: Array = np.log(self._c) + self.kernel._log_matrix(X, Z)
        return log_k

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        inner = self._c * self.kernel._gradient_theta(X, Z)
        if not self._is_free("scale"):
            return inner
        return np.concatenate([self._matrix(X, Z)[:, :, None], inner], axis=2)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        value, gradient = self.kernel._contract(X, Z, W, upper)
        value *= self._c
        own = np.full(int(self._is_free("scale")), value)
        return value, np.concatenate([own, self._c * gradient])

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return self._c * self.kernel._gradient_x(X, Z)

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        return self._c * self.kernel._gradient_xz(X, Z)

    def _gradient_xz_diag(self, X: Array) -> Array:
        return self._c * self.kernel._gradient_xz_diag(X)

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return self._c * self.kernel._input_vjp(X, Z, W)


@dataclass(frozen=True, repr=False)
class _Combination(Kernel):
    """A kernel made from several; nested ones of the same kind are flattened, so + and * are associative."""

    kernels: tuple[Kernel, ...]

    sign: ClassVar[str] = ""

    def __post_init__(self) -> None:
        flat: list[Kernel] = []
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise ValueError(f"{type(self).__name__} needs kernels, got {kernel!r}")
            flat += kernel.kernels if isinstance(kernel, type(self)) else (kernel,)
        if not flat:
            raise ValueError(f"{type(self).__name__} needs at least one kernel")
        domains = {kernel.domain for kernel in flat} - {"any"}
        if len(domains) > 1 and not ("table" in domains and all(_reads_columns(kernel) for kernel in flat)):
            raise ValueError(
                "kernels on vectors and kernels on objects can't be combined: choose the columns of each by Columns"
            )
        self._set("kernels", tuple(flat))

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        if any(kernel.domain == "table" for kernel in self.kernels):
            return "table"
        if self._may_read_table:
            return "any"
        return next((kernel.domain for kernel in self.kernels if kernel.domain != "any"), "any")

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        return all(kernel.continuous for kernel in self.kernels)

    @property
    def compact(self) -> bool:  # type: ignore[override]
        return all(kernel.compact for kernel in self.kernels)

    @cached_property
    def _may_read_table(self) -> bool:
        """Whether a column of objects may be given to one of the kernels, and all choose columns."""
        return any(map(_reads_any_column, self.kernels)) and all(map(_reads_columns, self.kernels))

    def __repr__(self) -> str:
        if len(self.kernels) == 1:
            return f"{type(self).__name__}(({self.kernels[0]!r},))"
        return self.sign.join(
            f"({kernel!r})" if self._needs_brackets(kernel, first=i == 0) else repr(kernel)
            for i, kernel in enumerate(self.kernels)
        )

    def _needs_brackets(self, kernel: Kernel, first: bool) -> bool:
        """Whether the printed kernel would be read otherwise next to the sign."""
        return False

    def _children(self) -> tuple[Kernel, ...]:
        return self.kernels

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(children)

    def why_not_differentiable(self) -> str:
        return next(filter(None, (kernel.why_not_differentiable() for kernel in self.kernels)), "")

    def _conditional(self) -> str:
        return next(filter(None, (kernel._conditional() for kernel in self.kernels)), "")

    def _check(self, X: Any, name: str = "X") -> Any:
        if self.domain == "table" or (self._may_read_table and looks_like_objects(X)):
            return as_table(X, name)
        strict = [kernel for kernel in self.kernels if kernel.domain != "any"]
        for kernel in strict or self.kernels[:1]:
            X = kernel._check(X, name)
        return X


@dataclass(frozen=True, repr=False)
class Sum(_Combination):
    """k1(x, z) + k2(x, z) + ...: independent functions added."""

    sign: ClassVar[str] = " + "

    def _matrix(self, X: Any, Z: Any) -> Array:
        K = self.kernels[0]._matrix(X, Z)
        for kernel in self.kernels[1:]:
            kernel._add_to(K, X, Z)
        return K

    def _sparse(self, X: Any, Z: Any) -> csr_array:
        return reduce(operator.add, (kernel._sparse(X, Z) for kernel in self.kernels))

    def _diag(self, X: Any) -> Array:
        return reduce(np.add, (kernel._diag(X) for kernel in self.kernels))

    def _latent_diag(self, X: Any) -> Array:
        return reduce(np.add, (kernel._latent_diag(X) for kernel in self.kernels))

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        return reduce(np.logaddexp, (kernel._log_matrix(X, Z) for kernel in self.kernels))

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        return np.concatenate([kernel._gradient_theta(X, Z) for kernel in self.kernels], axis=2)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        parts = [kernel._contract(X, Z, W, upper) for kernel in self.kernels]
        return sum(part[0] for part in parts), np.concatenate([part[1] for part in parts])

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return reduce(np.add, (kernel._gradient_x(X, Z) for kernel in self.kernels))

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        return reduce(np.add, (kernel._gradient_xz(X, Z) for kernel in self.kernels))

    def _gradient_xz_diag(self, X: Array) -> Array:
        return reduce(np.add, (kernel._gradient_xz_diag(X) for kernel in self.kernels))

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return reduce(np.add, (kernel._input_vjp(X, Z, W) for kernel in self.kernels))


@dataclass(frozen=True, repr=False)
class Product(_Combination):
    """k1(x, z) k2(x, z) ...: similar only where all factors say so."""

    sign: ClassVar[str] = " * "

    def _needs_brackets(self, kernel: Kernel, first: bool) -> bool:
        return isinstance(kernel, Sum) or (isinstance(kernel, Scaled) and not first)

    def _child_scales(self, data: DataScale) -> list[DataScale]:
        """The first factor carries the variance, the others the shape."""
        others = [data.about(data.X, variance=1.0)] * (len(self.kernels) - 1)
        return [data, *others]

    def _split(self) -> tuple[Kernel, Kernel]:
        """The first factor and the product of the others."""
        rest = self.kernels[1:]
        return self.kernels[0], rest[0] if len(rest) == 1 else Product(rest)

    def _matrix(self, X: Any, Z: Any) -> Array:
        K = self.kernels[0]._matrix(X, Z)
        for kernel in self.kernels[1:]:
            K *= kernel._matrix(X, Z)
        return K

    def _sparse(self, X: Any, Z: Any) -> csr_array:
        return reduce(operator.mul, (kernel._sparse(X, Z) for kernel in self.kernels))

    def _diag(self, X: Any) -> Array:
        return reduce(np.multiply, (kernel._diag(X) for kernel in self.kernels))

    def _latent_diag(self, X: Any) -> Array:
        return reduce(np.multiply, (kernel._latent_diag(X) for kernel in self.kernels))

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        return reduce(np.add, (kernel._log_matrix(X, Z) for kernel in self.kernels))

    def _others(self, X: Any, Z: Any, i: int) -> Array | float:
        """The product of all factors but the i-th."""
        others: list[Array] = [k._matrix(X, Z) for j, k in enumerate(self.kernels) if j != i]
        return reduce(np.multiply, others) if others else 1.0

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        parts = []
        for i, kernel in enumerate(self.kernels):
            part = kernel._gradient_theta(X, Z)
            parts.append(part * np.asarray(self._others(X, Z, i))[..., None])
        return np.concatenate(parts, axis=2)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        parts = [kernel._contract(X, Z, W * self._others(X, Z, i)) for i, kernel in enumerate(self.kernels)]
        return parts[0][0], np.concatenate([part[1] for part in parts])

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return reduce(
            np.add,
            (
                kernel._gradient_x(X, Z) * np.asarray(self._others(X, Z, i))[..., None]
                for i, kernel in enumerate(self.kernels)
            ),
        )

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        if len(self.kernels) == 1:
            return self.kernels[0]._gradient_xz(X, Z)
        a, b = self._split()
        # d2(ab)/dx dz = a_xz b + a_x b_z + b_x a_z + a b_xz
        return (
            a._gradient_xz(X, Z) * b._matrix(X, Z)[:, :, None, None]
            + a._gradient_x(X, Z)[:, :, :, None] * b._gradient_z(X, Z)[:, :, None, :]
            + b._gradient_x(X, Z)[:, :, :, None] * a._gradient_z(X, Z)[:, :, None, :]
            + a._matrix(X, Z)[:, :, None, None] * b._gradient_xz(X, Z)
        )

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return reduce(
            np.add,
            (k._input_vjp(X, Z, W * self._others(X, Z, i)) for i, k in enumerate(self.kernels)),
        )


@dataclass(frozen=True, repr=False)
class _Mapped(_Wrapper):
    """g(k(x, z)) for an entire g with non-negative coefficients."""

    def _g(self, K: Array, order: int) -> Array:
        """The derivative of g of the given order (0, 1, 2)."""
        raise NotImplementedError

    def _matrix(self, X: Any, Z: Any) -> Array:
        return self._g(self.kernel._matrix(X, Z), 0)

    def _diag(self, X: Any) -> Array:
        return self._g(self.kernel._diag(X), 0)

    def _latent_diag(self, X: Any) -> Array:
        return self._g(self.kernel._latent_diag(X), 0)

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        slope = self._g(self.kernel._matrix(X, Z), 1)
        return slope[:, :, None] * self.kernel._gradient_theta(X, Z)

    def _contract(self, X: Any, Z: Any, W: Array, upper: bool = False) -> tuple[float, Array]:
        K = self.kernel._matrix(X, Z)
        value = float(np.vdot(W, self._g(K, 0)))
        if not self.n_theta:
            return value, np.zeros(0)
        return value, self.kernel._contract(X, Z, W * self._g(K, 1), upper)[1]

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return self._g(self.kernel._matrix(X, Z), 1)[:, :, None] * self.kernel._gradient_x(X, Z)

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        K = self.kernel._matrix(X, Z)
        # d2g(k)/dx dz = g' k_xz + g'' k_x k_z
        return (
            self._g(K, 1)[:, :, None, None] * self.kernel._gradient_xz(X, Z)
            + self._g(K, 2)[:, :, None, None]
            * self.kernel._gradient_x(X, Z)[:, :, :, None]
            * self.kernel._gradient_z(X, Z)[:, :, None, :]
        )

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        return self.kernel._input_vjp(X, Z, W * self._g(self.kernel._matrix(X, Z), 1))


@dataclass(frozen=True, repr=False)
class Power(_Mapped):
    """k(x, z)^p, written `k ** p`.

    exponent: p, a positive integer (other powers of a kernel need not be kernels)
    """

    exponent: int = 2

    _keeps_zeros: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("exponent", integer_at_least(self.exponent, 1, "Power: exponent"))

    def __repr__(self) -> str:
        inner = repr(self.kernel)
        if isinstance(self.kernel, (_Combination, Scaled, Power)):  # ** binds tighter, and to the right
            inner = f"({inner})"
        return f"{inner} ** {self.exponent}"

    def _g(self, K: Array, order: int) -> Array:
        p = self.exponent
        if order == 0:
            return K**p
        if order == 1:
            return p * K ** (p - 1)
        return p * (p - 1) * K ** (p - 2) if p > 1 else np.zeros_like(K)

    def _sparse(self, X: Any, Z: Any) -> csr_array:
        return self.kernel._sparse(X, Z).power(self.exponent)

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        return self.exponent * self.kernel._log_matrix(X, Z)


@dataclass(frozen=True, repr=False)
class Exp(_Mapped):
    """exp(k(x, z)), written `exp(k)`."""

    def __repr__(self) -> str:
        return f"exp({self.kernel!r})"

    def _g(self, K: Array, order: int) -> Array:
        return np.exp(K)

    def _log_matrix(self, X: Any, Z: Any) -> Array:
        return self.kernel._matrix(X, Z)


def _reads_columns(kernel: Kernel) -> bool:
    """Whether a kernel can take a table: it chooses columns, or what it takes does not matter."""
    children = [child for child in kernel._children() if isinstance(child, Kernel)]
    if isinstance(kernel, (_Wrapper, _Combination)) and not kernel.chooses_columns:
        return all(_reads_columns(child) for child in children)
    return kernel.chooses_columns or kernel.domain == "any"


def _reads_any_column(kernel: Kernel) -> bool:
    """Whether it chooses columns for a kernel that takes numbers as well as objects."""
    if kernel.chooses_columns:
        return kernel.domain == "any"
    return any(_reads_any_column(child) for child in kernel._children() if isinstance(child, Kernel))


def _is_zero(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) == 0.0


def _mean_diagonal(kernel: Kernel, data: DataScale) -> float:
    """Mean variance of the kernel on the data, 1 if it has none."""
    mean = float(kernel._diag(data.X).mean())
    return mean if mean > 0.0 else 1.0


def _promote(value: Any) -> Kernel | None:
    if isinstance(value, Kernel):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        return Constant(float(value))
    return None
