"""The multivariate Gaussian distribution as a value: sums, means, marginals and conditionals are Gaussian again."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from operator import add
from typing import Any, ClassVar

import numpy as np

from gp_core.arrays import Array, as_covariance, as_float, as_vector, integer_at_least
from gp_core.linalg import cholesky


@dataclass(frozen=True, eq=False)
class Gaussian:
    """x ~ N(mean, covariance), p(x) = exp(-(x - mean)' covariance^-1 (x - mean) / 2) / sqrt(|2 pi covariance|).

    Parameters
    ----------
    mean : (D,)
    covariance : a variance, variances (D,) or a matrix (D, D)
        Symmetric, without negative eigenvalues.

    References
    ----------
    Lecture "Kernel regression and gaussian processes": "Recap: some properties of the Gaussian distribution".
    Lecture "Kernels and Gaussian processes": "Conditional Distribution".

    Examples
    --------
    >>> a, b = Gaussian([0.0, 1.0], [[2.0, 1.0], [1.0, 2.0]]), Gaussian([1.0, 1.0], 1.0)
    >>> (a + b).mean
    array([1., 2.])
    >>> a.marginal([1]).covariance
    array([[2.]])
    >>> a.conditional([0], [2.0]).mean.round(6)  # x_1 given x_0 = 2
    array([2.])
    """

    mean: Any
    covariance: Any

    __array_ufunc__: ClassVar[None] = None  # arrays leave `b + x` to the object

    def __post_init__(self) -> None:
        mean = np.atleast_1d(
            as_float(self.mean, "Gaussian: mean")
        ).copy()  # what is frozen is not the caller's
        as_vector(mean, "Gaussian: mean")
        if not mean.size:
            raise ValueError("Gaussian: mean is empty: give at least one entry")
        covariance = as_covariance(self.covariance, len(mean), "Gaussian: covariance").copy()
        smallest = float(np.linalg.eigvalsh(covariance)[0])
        if smallest < -1e-10 * max(float(np.abs(covariance).max()), np.finfo(float).tiny):
            raise ValueError(f"Gaussian: covariance has a negative eigenvalue ({smallest:.3g})")
        for array in (mean, covariance):
            array.setflags(write=False)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    def __repr__(self) -> str:
        return f"Gaussian(mean={self.mean.tolist()}, covariance={self.covariance.tolist()})"

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def std(self) -> Array:
        """(D,) standard deviations."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0)))

    def __add__(self, other: Any) -> Gaussian:
        """x + z for independent x and z, N(m_x + m_z, C_x + C_z); or x + c for a constant c."""
        if not isinstance(other, Gaussian):
            return Gaussian(self.mean + self._constant(other, "the constant"), self.covariance)
        if len(self) != len(other):
            raise ValueError(f"Gaussians of dimension {len(self)} and {len(other)} can't be added")
        return Gaussian(self.mean + other.mean, self.covariance + other.covariance)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Gaussian:
        """x - z for independent x and z, N(m_x - m_z, C_x + C_z); or x - c for a constant c."""
        return self + (-other if isinstance(other, Gaussian) else -as_float(other, "the constant"))

    def __rsub__(self, other: Any) -> Gaussian:
        """c - x, N(c - m, C), for a constant c."""
        return (-self).__add__(other)

    def __neg__(self) -> Gaussian:
        """-x, N(-m, C)."""
        return self * -1.0

    def __mul__(self, factor: float) -> Gaussian:
        """c x, N(c m, c^2 C), for a number c."""
        if not isinstance(factor, Real):
            return NotImplemented
        return Gaussian(factor * self.mean, factor**2 * self.covariance)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Gaussian:
        """x / c, N(m / c, C / c^2), for a number c."""
        if not isinstance(divisor, Real):
            return NotImplemented
        if divisor == 0:
            raise ValueError("a Gaussian can't be divided by 0")
        return self * (1.0 / float(divisor))

    def transform(self, A: Any, b: Any = 0.0) -> Gaussian:
        """A x + b, N(A m + b, A C A')."""
        A = as_float(A, "A")
        if A.ndim != 2 or A.shape[1] != len(self):
            raise ValueError(f"A must have {len(self)} columns, got shape {A.shape}")
        covariance = A @ self.covariance @ A.T
        moved = Gaussian(A @ self.mean, (covariance + covariance.T) / 2.0)
        return moved + moved._constant(b, "b")

    def transformed(self, A: Any, b: Any = 0.0) -> Gaussian:
        """Deprecated name of `transform`."""
        warnings.warn(
            "Gaussian.transformed is deprecated and will be removed in version 0.3: use Gaussian.transform",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.transform(A, b)

    def marginal(self, indices: Any) -> Gaussian:
        """Of some entries of x, in the order of `indices`."""
        at = self._indices(indices)
        return Gaussian(self.mean[at], self.covariance[np.ix_(at, at)])

    def conditional(self, indices: Any, values: Any) -> Gaussian:
        """Of the other entries of x, in their order, given that those at `indices` have these values.

        N(m_a + C_ab C_bb^-1 (x_b - m_b), C_aa - C_ab C_bb^-1 C_ba)
        """
        given = self._indices(indices)
        x = as_vector(np.atleast_1d(as_float(values, "values")), "values", len(given))
        rest = np.setdiff1d(np.arange(len(self)), given)
        if not rest.size:
            raise ValueError("conditional: every entry is given, none is left")
        factor = cholesky(
            self.covariance[np.ix_(given, given)],
            what="the covariance of what is given",
            remedy="give fewer entries",
        )
        cross = self.covariance[np.ix_(given, rest)]
        half = factor.half_solve(np.asfortranarray(cross))
        mean = self.mean[rest] + cross.T @ factor.solve(x - self.mean[given])
        return Gaussian(mean, self.covariance[np.ix_(rest, rest)] - half.T @ half)

    def log_density(self, x: Any) -> Array:
        """log N(x) for points (D,) or (N, D)."""
        points = np.atleast_1d(as_float(x, "x"))
        if points.ndim > 2 or points.shape[-1] != len(self):
            raise ValueError(f"x must have shape ({len(self)},) or (N, {len(self)}), got {np.shape(x)}")
        difference = np.atleast_2d(points) - self.mean
        factor = cholesky(self.covariance, what="the covariance", remedy="a singular Gaussian has no density")
        if factor.jitter:
            raise ValueError(
                "the covariance is singular: there is no density, take the marginal of fewer entries"
            )
        square = factor.quadratic(np.ascontiguousarray(difference))
        density: Array = -0.5 * (square + factor.log_determinant + len(self) * np.log(2.0 * np.pi))
        return density if np.ndim(x) == 2 else density[0]

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """(n_samples, D) draws; also of a singular Gaussian."""
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy Generator, got {rng!r}: use numpy.random.default_rng")
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws: Array = self.mean + rng.standard_normal((n_samples, len(self))) @ root.T
        return draws

    def _constant(self, value: Any, name: str) -> Array:
        """One number, or one per entry."""
        constant = as_float(value, name)
        if constant.shape not in ((), (len(self),)):
            raise ValueError(f"{name} must be a number or have shape ({len(self)},), got {constant.shape}")
        return constant

    def _indices(self, indices: Any) -> Any:
        at = np.atleast_1d(np.asarray(indices))
        if (
            at.ndim != 1
            or not at.size
            or at.dtype.kind not in "iu"
            or (at < 0).any()
            or (at >= len(self)).any()
        ):
            raise ValueError(f"indices must be integers from 0 to {len(self) - 1}, got {indices!r}")
        if len(set(at.tolist())) < at.size:
            raise ValueError(f"indices must be different, got {indices!r}")
        return at


def mean_of(gaussians: Iterable[Gaussian]) -> Gaussian:
    """The mean of n independent Gaussian variables, N(sum m_i / n, sum C_i / n^2)."""
    parts = list(gaussians)
    if not parts:
        raise ValueError("the mean of no Gaussians: give at least one")
    return reduce(add, parts) / len(parts)
