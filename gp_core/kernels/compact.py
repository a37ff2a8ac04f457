"""Kernels that are exactly 0 beyond a distance, and the sparse matrices that follow.

Only Wendland's are kernels, each up to a stated number of inputs. The tricube and Epanechnikov functions have Fourier
transforms with negative parts, so they are positive definite in no dimension: they weigh neighbours in smoothers, and a
Gaussian process refuses them wherever the Gram matrix of its data has a negative eigenvalue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from gp_core.arrays import Array, integer_at_least
from gp_core.kernels.base import Kernel
from gp_core.kernels.stationary import Stationary
from gp_core.parameters import POSITIVE, Bounds

_SPARSE_SHARE = 0.1
"""Share of pairs within the support up to which a sparse matrix is faster than a dense one."""
_SPARSE_ENTRIES = 2_000_000
"""Entries that a block of rows of a sparse matrix holds, about."""
_PROBES = 50


def rows_per_sparse_block(kernel: Kernel, X: Any) -> int:
    """How many rows of k(queries, X) to work on at a time as a sparse matrix; 0 where a dense one is faster.

    The queries are taken to lie where X does: some points of X tell how many others are within the support.
    """
    if not kernel.compact or len(X) < _PROBES:
        return 0
    probes = np.linspace(0, len(X) - 1, _PROBES).astype(np.intp)
    near = np.count_nonzero(kernel._matrix(X[probes], X)) / _PROBES
    return 0 if near > _SPARSE_SHARE * len(X) else max(1, int(_SPARSE_ENTRIES / max(near, 1.0)))


@dataclass(frozen=True, repr=False)
class Compact(Stationary):
    """f(r) for r = sqrt(s) < 1, and 0 from there on; what the kernels below share.

    length_scale: the radius of the support, a number or one per input
    """

    compact: ClassVar[bool] = True

    def _sparse(self, X: Array, Z: Array | None) -> csr_array:
        A = self._scale_points(X)
        B = A if Z is None else self._scale_points(Z)
        pairs = cKDTree(A).sparse_distance_matrix(cKDTree(B), 1.0, output_type="coo_matrix")
        values = self._profile(np.square(pairs.data))
        K = csr_array((values, (pairs.row, pairs.col)), shape=(len(A), len(B)))
        K.eliminate_zeros()
        return K

    def _require_valid(self, X: Array) -> None:
        """Refuse points with more inputs than the kernel is positive definite in."""

    def _scale_points(self, X: Array) -> Array:
        self._require_valid(X)
        return super()._scale_points(X)

    def _log_profile(self, s: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self._profile(s))


@dataclass(frozen=True, repr=False)
class Wendland(Compact):
    """Piecewise polynomials of r with support r < 1, the smoothest of their degree (Wendland 1995).

    With j = floor(dimension / 2) + smoothness + 1 and (.)_+ the positive part:

        smoothness 0:  (1 - r)_+^j                                                continuous
        smoothness 1:  (1 - r)_+^(j+1) ((j + 1) r + 1)                            one derivative
        smoothness 2:  (1 - r)_+^(j+2) ((j^2 + 4 j + 3) r^2 + (3 j + 6) r + 3) / 3    two derivatives

    Positive definite for points of up to `dimension` inputs, and refused for more.

    Parameters
    ----------
    length_scale : float or one per input
        Radius of the support.
    smoothness : 0, 1 or 2
        Derivatives of sample paths; not learned.
    dimension : int >= 1
        The largest number of inputs it must be a kernel for; a larger one falls off faster.

    Examples
    --------
    >>> Wendland(2.0)([[0.0]], [[0.0], [1.0], [2.0]])
    array([[1.    , 0.1875, 0.    ]])
    >>> Wendland(0.1).sparse([[0.0], [0.05], [1.0]]).nnz
    5
    """

    smoothness: int = 1
    dimension: int = 3
    length_scale_bounds: Bounds = field(default=POSITIVE, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("smoothness", integer_at_least(self.smoothness, 0, "Wendland: smoothness"))
        self._set("dimension", integer_at_least(self.dimension, 1, "Wendland: dimension"))
        if self.smoothness > 2:
            raise ValueError(f"Wendland: smoothness must be 0, 1 or 2, got {self.smoothness}")

    @property
    def _j(self) -> int:
        return self.dimension // 2 + self.smoothness + 1

    def _require_valid(self, X: Array) -> None:
        if X.shape[1] > self.dimension:
            raise ValueError(
                f"Wendland with dimension {self.dimension} is a kernel for up to {self.dimension} inputs, the points "
                f"have {X.shape[1]}: use Wendland(dimension={X.shape[1]})"
            )

    def why_not_differentiable(self) -> str:
        return (
            ""
            if self.smoothness
            else "sample paths of Wendland with smoothness 0 have no derivative: use 1 or 2"
        )

    def _profile(self, s: Array) -> Array:
        j, r = self._j, np.sqrt(s)
        rest = np.maximum(1.0 - r, 0.0)
        if self.smoothness == 0:
            return np.asarray(rest**j)
        if self.smoothness == 1:
            return np.asarray(rest ** (j + 1) * ((j + 1) * r + 1.0))
        polynomial = (j * j + 4 * j + 3) * s + (3 * j + 6) * r + 3.0
        return np.asarray(rest ** (j + 2) * polynomial / 3.0)

    def _slope(self, s: Array) -> Array:
        j, r = self._j, np.sqrt(s)
        rest = np.maximum(1.0 - r, 0.0)
        if self.smoothness == 0:
            return np.divide(-0.5 * j * rest ** (j - 1), r, out=np.zeros_like(s), where=r > 0.0)
        if self.smoothness == 1:
            return np.asarray(-0.5 * (j + 1) * (j + 2) * rest**j)
        return np.asarray(-(j + 3) * (j + 4) / 6.0 * (1.0 + (j + 1) * r) * rest ** (j + 1))

    def _curvature(self, s: Array) -> Array:
        j, r = self._j, np.sqrt(s)
        rest = np.maximum(1.0 - r, 0.0)
        if self.smoothness == 1:
            bend = 0.25 * j * (j + 1) * (j + 2) * rest ** (j - 1)
            return np.divide(bend, r, out=np.zeros_like(s), where=r > 0.0)
        return np.asarray((j + 1) * (j + 2) * (j + 3) * (j + 4) / 12.0 * rest**j)


@dataclass(frozen=True, repr=False)
class _Weight(Compact):
    """A function of the distance that is no kernel in any dimension."""

    def _conditional(self) -> str:
        return f"{type(self).__name__} is positive definite in no dimension: use Wendland"

    def why_not_differentiable(self) -> str:
        return self._conditional()


@dataclass(frozen=True, repr=False)
class Tricube(_Weight):
    """(1 - r^3)_+^3: the weights of LOESS (Cleveland 1979). No kernel in any dimension.

    length_scale: the radius of the support, a number or one per input

    Examples
    --------
    >>> Tricube(1.0)([[0.0]], [[0.5], [1.0]]).round(3)
    array([[0.67, 0.  ]])
    """

    def _profile(self, s: Array) -> Array:
        return np.asarray(np.maximum(1.0 - s**1.5, 0.0) ** 3)

    def _slope(self, s: Array) -> Array:
        return np.asarray(-4.5 * np.sqrt(s) * np.maximum(1.0 - s**1.5, 0.0) ** 2)


@dataclass(frozen=True, repr=False)
class Epanechnikov(_Weight):
    """(1 - r^2)_+: the most efficient weights of a density estimate (1969). No kernel in any dimension.

    length_scale: the radius of the support, a number or one per input

    Examples
    --------
    >>> Epanechnikov(1.0)([[0.0]], [[0.5], [1.0]])
    array([[0.75, 0.  ]])
    """

    def _profile(self, s: Array) -> Array:
        return np.maximum(1.0 - s, 0.0)

    def _slope(self, s: Array) -> Array:
        return np.where(s < 1.0, -1.0, 0.0)
