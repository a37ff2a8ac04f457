"""Kernels on any object: a base to derive from, a kernel from a function of two objects, a precomputed matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from gp_core.arrays import Array, Objects, as_float, as_objects, as_points, looks_like_objects
from gp_core.kernels.base import Domain, Kernel
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values

_STEP = 1e-5
"""Step in theta of central differences: an error of about 1e-10 relative to k."""
_SYMMETRY_PAIRS = 64
_SHOWN = 100
"""Numbers up to which a matrix is printed."""


@dataclass(frozen=True, repr=False)
class ObjectKernel(Kernel):
    """A kernel on objects that are no vectors: derive from it and write `compare`.

    A subclass is a frozen dataclass. It states its hyperparameters as every kernel does (see `gp_core.parameters`) and
    k(x, z) for one pair. Matrices, the derivative by theta (central differences) and the check of validity on the data
    follow from that; a subclass that knows better overrides `_matrix`, `_diag` or `_gradient_theta`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class SharedLetters(ObjectKernel):
    ...     def compare(self, x, z):
    ...         return float(len(set(x) & set(z)))
    >>> SharedLetters()(["rock", "crop"])
    array([[4., 3.],
           [3., 4.]])
    """

    domain: ClassVar[Domain] = "objects"

    def compare(self, x: Any, z: Any) -> float:
        """k(x, z) for two objects; must be symmetric."""
        raise NotImplementedError(f"{type(self).__name__} must define compare(x, z)")

    def why_not_differentiable(self) -> str:
        return f"{type(self).__name__} is a kernel on objects: there is no derivative by them"

    def _check(self, X: Any, name: str = "X") -> Objects:
        return as_objects(X, name)

    def _conditional(self) -> str:
        return f"{self!r} is no kernel there; is_valid_kernel says what breaks"

    def _matrix(self, X: Any, Z: Any) -> Array:
        if Z is not None:
            return np.array([[self.compare(x, z) for z in Z] for x in X], dtype=np.float64).reshape(
                len(X), len(Z)
            )
        n = len(X)
        K = np.empty((n, n))
        for i in range(n):
            for j in range(i, n):
                K[i, j] = K[j, i] = self.compare(X[i], X[j])
        for i in range(0, n, max(1, n // _SYMMETRY_PAIRS)):
            j = n - 1 - i
            back = self.compare(X[max(i, j)], X[min(i, j)])
            if abs(back - K[i, j]) > 1e-10 * max(1.0, abs(back)):
                raise ValueError(
                    f"{self!r} is not symmetric: k(x_{min(i, j)}, x_{max(i, j)}) = {K[i, j]:.6g} "
                    f"but k(x_{max(i, j)}, x_{min(i, j)}) = {back:.6g}"
                )
        return K

    def _diag(self, X: Any) -> Array:
        return np.array([self.compare(x, x) for x in X], dtype=np.float64)

    def _gradient_theta(self, X: Any, Z: Any) -> Array:
        theta = self.theta
        parts = []
        for step in _STEP * np.eye(len(theta)):
            up, down = self.with_theta(theta + step), self.with_theta(theta - step)
            parts.append((up._matrix(X, Z) - down._matrix(X, Z)) / (2.0 * _STEP))
        return np.stack(parts, axis=-1) if parts else super()._gradient_theta(X, Z)


@dataclass(frozen=True, repr=False)
class FunctionKernel(ObjectKernel):
    """k(x, z) = function(x, z, **params): a kernel from a function of two objects, of any type, or of two vectors.

    Whether it is a kernel is checked on the data: a Gram matrix with a negative eigenvalue, or a function that is not
    symmetric, is a ValueError.

    Parameters
    ----------
    function : callable
        Of two objects, returns a number; of all objects of X and Z, returns a matrix (N, M), if `vectorized`.
    params : mapping of str to float > 0
        Passed to the function by name. They are the hyperparameters: learned by their logarithms, with the derivative
        by central differences.
    params_bounds : (low, high), one pair per parameter, "auto" or "fixed"
    vectorized : bool
        Whether the function takes all objects at once.

    Examples
    --------
    >>> import math
    >>> def similarity(a, b, decay):
    ...     return math.exp(-abs(len(a) - len(b)) / decay)
    >>> k = 2.0 * FunctionKernel(similarity, {"decay": 3.0})
    >>> k.theta_names
    ('scale', 'decay')
    >>> k(["rock", "sandstone"]).round(3)
    array([[2.   , 0.378],
           [0.378, 2.   ]])
    """

    domain: ClassVar[Domain] = "any"

    function: Callable[..., Any]
    params: Values = None
    params_bounds: Bounds = POSITIVE
    vectorized: bool = False
    names: tuple[str, ...] = ()

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("params", ndim=1),)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"FunctionKernel: function must be callable, got {self.function!r}")
        if self.params is None or (isinstance(self.params, Mapping) and not self.params):
            self._set("params", (1.0,))
            self._set("params_bounds", "fixed")
            self._set("names", ())
        elif isinstance(self.params, Mapping):
            self._set("names", tuple(str(name) for name in self.params))
            self._set("params", tuple(self.params.values()))
        super().__post_init__()

    def _by_name(self) -> dict[str, float]:
        return dict(zip(self.names, self.params, strict=False))

    @property
    def theta_names(self) -> tuple[str, ...]:
        """The names of the parameters, as they were given."""
        return self.names if self.n_theta else ()

    def values(self) -> dict[str, Any]:
        """Every parameter by name."""
        return dict(self._by_name())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return dict(self._by_name())

    def with_params(self, **params: Any) -> Self:
        """The same function with some parameters replaced."""
        for name in params:
            if name not in self.names:
                raise ValueError(
                    f"FunctionKernel has no parameter {name!r}; there are {', '.join(self.names) or 'none'}"
                )
        values = tuple((self._by_name() | params).values())
        return type(self)(self.function, values, self.params_bounds, self.vectorized, self.names)

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        shown = f"FunctionKernel({name}" + (f", {self._by_name()!r}" if self.names else "")
        return shown + (
            f", {self.params_bounds!r})" if self.names and self.params_bounds != POSITIVE else ")"
        )

    def compare(self, x: Any, z: Any) -> float:
        value = self.function(x, z, **self._by_name())
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self!r} must return a number, got {value!r}") from None

    def _check(self, X: Any, name: str = "X") -> Any:
        rows_of_numbers = isinstance(X, list) and X and isinstance(X[0], list) and not looks_like_objects(X)
        if rows_of_numbers or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf"):
            return as_points(X, name)
        return as_objects(X, name)

    def _matrix(self, X: Any, Z: Any) -> Array:
        if not self.vectorized:
            K = super()._matrix(X, Z)
        else:
            other = X if Z is None else Z
            K = np.array(self.function(X, other, **self._by_name()), dtype=np.float64)
            if K.shape != (len(X), len(other)):
                raise ValueError(
                    f"{self!r} must return a matrix ({len(X)}, {len(other)}), got shape {K.shape}"
                )
            if Z is None and not np.allclose(K, K.T, rtol=1e-10, atol=1e-12 * float(np.abs(K).max())):
                raise ValueError(f"{self!r} is not symmetric on these points")
        if not np.isfinite(K).all():
            raise ValueError(f"{self!r} returned NaN or infinity")
        return K

    def _diag(self, X: Any) -> Array:
        if not self.vectorized:
            return super()._diag(X)
        return np.array(
            [self.function(X[i : i + 1], X[i : i + 1], **self._by_name()) for i in range(len(X))]
        ).reshape(-1)


class FrozenMatrix:
    """A matrix that can't be changed, compared and hashed by its numbers."""

    def __init__(self, array: Array) -> None:
        self.array = array.copy()
        self.array.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMatrix) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))

    def __repr__(self) -> str:
        """The numbers, or only the size of a matrix that would fill a screen."""
        n, m = self.array.shape
        return repr(self.array.tolist()) if self.array.size <= _SHOWN else f"<{n} x {m} matrix>"


@dataclass(frozen=True, repr=False)
class Precomputed(Kernel):
    """k(i, j) = K_ij: a matrix of similarities that was computed elsewhere; the inputs are indices into it.

    X is (N, 1), the rows of K that the points are. So training and test points, folds and grids are chosen by index,
    and the kernel combines with others like any kernel.

    Parameters
    ----------
    matrix : (n, n)
        K, symmetric and without negative eigenvalues (to rounding); checked.

    Examples
    --------
    >>> k = Precomputed([[1.0, 0.5], [0.5, 1.0]])
    >>> k([[1], [0]], [[1]])
    array([[1. ],
           [0.5]])
    """

    matrix: Any = ((1.0,),)

    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.matrix, FrozenMatrix):
            return
        K = as_float(self.matrix, "Precomputed: matrix")
        if K.ndim != 2 or K.shape[0] != K.shape[1] or K.size == 0:
            raise ValueError(f"Precomputed: matrix must be square, got shape {K.shape}")
        size = max(float(np.abs(K).max()), np.finfo(float).tiny)
        if np.abs(K - K.T).max() > 1e-8 * size:
            raise ValueError("Precomputed: matrix must be symmetric: use (K + K.T) / 2")
        smallest = float(np.linalg.eigvalsh(K)[0])
        if smallest < -1e-8 * size * len(K):
            raise ValueError(
                f"Precomputed: matrix is not positive semi-definite (smallest eigenvalue {smallest:.3g}): "
                "add a constant to its diagonal, or compute it by another similarity"
            )
        self._set("matrix", FrozenMatrix((K + K.T) / 2.0))

    def why_not_differentiable(self) -> str:
        return "Precomputed is a kernel of indices: there is no derivative by them"

    def _check(self, X: Any, name: str = "X") -> Array:
        array = as_float(X, name)
        points: Array = super()._check(array[:, None] if array.ndim == 1 else array, name)
        self._indices(points, name)
        return points

    def _indices(self, X: Array, name: str = "X") -> Any:
        n = len(self.matrix.array)
        index = X[:, 0].astype(np.intp)
        if X.shape[1] != 1 or (index != X[:, 0]).any() or (index < 0).any() or (index >= n).any():
            raise ValueError(
                f"{name} must hold indices from 0 to {n - 1} of the precomputed matrix, shape (N, 1)"
            )
        return index

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        rows = self._indices(X)
        K: Array = self.matrix.array[np.ix_(rows, rows if Z is None else self._indices(Z))]
        return K

    def _diag(self, X: Array) -> Array:
        rows = self._indices(X)
        diagonal: Array = self.matrix.array[rows, rows]
        return diagonal
