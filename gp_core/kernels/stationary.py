"""Kernels of the distance: k(x, z) = f(s), s = sum_d (x_d - z_d)^2 / l_d^2.

With one length scale l the metric is M = I / l^2; with one per input it is diag(l)^-2, automatic relevance
determination (ARD). The full metric is the transform `Metric`.

Everything follows from the profile f and its first two derivatives by s, f' and f'':

    dk/dlog l_d       = -2 f' (x_d - z_d)^2 / l_d^2
    dk/dx_d           =  2 f' (x_d - z_d) / l_d^2
    d2k/dx_d dz_e     = -4 f'' (x_d - z_d)(x_e - z_e) / (l_d l_e)^2 - 2 f' [d = e] / l_d^2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.kernels.base import Kernel
from gp_core.kernels.bessel import log_matern_profile, matern_profile
from gp_core.kernels.distances import (
    GAUSSIAN,
    is_large,
    profile_matrix,
    squared_distances,
    sum_over_pairs,
    symmetric_matrix,
)
from gp_core.parallel import map_blocks
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values

_BLOCK_ENTRIES = 65536
"""Entries of a block of rows of K that is worked on at a time, so that temporaries stay in cache."""


@dataclass(frozen=True, repr=False)
class Stationary(Kernel):
    """f(s); what the kernels below share.

    length_scale: l, a number or one per input
    """

    length_scale: Values = 1.0
    length_scale_bounds: Bounds = POSITIVE

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("length_scale", ndim=1, role="length"),)

    def _profile(self, s: Array) -> Array:
        raise NotImplementedError

    def _slope(self, s: Array) -> Array:
        """f'(s); 0 at s = 0 where f' is singular, since it is multiplied by a distance of 0 there."""
        raise NotImplementedError

    def _curvature(self, s: Array) -> Array:
        """f''(s); 0 at s = 0 where f'' is singular, for the same reason."""
        raise NotImplementedError

    def _compiled_profile(self) -> int | None:
        """The number by which the compiled loops know f, if they do (see `gp_core.kernels.loops`)."""
        return None

    def _profile_in_place(self, s: Array) -> None:
        s[...] = self._profile(s)

    def _profile_and_slope(self, s: Array) -> tuple[Array, Array]:
        return self._profile(s), self._slope(s)

    def _log_profile(self, s: Array) -> Array:
        raise NotImplementedError

    def _shape_gradient(self, s: Array) -> list[Array]:
        """dk/dtheta for the free hyperparameters after the length scale."""
        return []

    def profile(self, distance: Any) -> Array:
        """f(r^2), the kernel at scaled distances r >= 0 of any shape."""
        return self._profile(np.square(np.asarray(distance, dtype=np.float64)))

    # -- values ----------------------------------------------------------------------------------------

    def _scale_points(self, X: Array) -> Array:
        scale = np.asarray(self.length_scale)
        if scale.ndim == 1 and scale.shape[0] != X.shape[1]:
            raise ValueError(
                f"{type(self).__name__} has {scale.shape[0]} length scales but the points have "
                f"{X.shape[1]} inputs: give one per input, or a single one"
            )
        scaled: Array = X / scale
        return scaled

    def _centre(self, X: Array, Z: Array | None) -> tuple[Array, Array]:
        """Scaled points about a common centre: differences are the same, their products lose fewer digits."""
        A = self._scale_points(X)
        centre = A.mean(axis=0)
        A -= centre
        return A, A if Z is None else self._scale_points(Z) - centre

    def _squared_distances(self, X: Array, Z: Array | None) -> Array:
        A = self._scale_points(X)
        B = A if Z is None else self._scale_points(Z)
        return squared_distances(A, B)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        A = self._scale_points(X)
        if Z is None:
            return symmetric_matrix(A, self._profile_in_place, self._compiled_profile())
        B = self._scale_points(Z)
        K = np.empty((len(A), len(B)))
        profile = self._compiled_profile() if is_large(*K.shape) else None

        def fill(rows: slice) -> None:
            if profile is None:
                self._profile_in_place(squared_distances(A[rows], B, out=K[rows]))
            else:
                profile_matrix(A[rows], B, profile, K[rows])

        map_blocks(fill, _blocks(len(A), len(B)))
        return K

    def _diag(self, X: Array) -> Array:
        self._scale_points(X[:1])
        return np.ones(len(X))

    def _log_matrix(self, X: Array, Z: Array | None) -> Array:
        return self._log_profile(self._squared_distances(X, Z))

    # -- by hyperparameters ------------------------------------------------------------------------------

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        s = self._squared_distances(X, Z)
        parts: list[Array] = []
        if self._is_free("length_scale"):
            slope = self._slope(s)
            if np.ndim(self.length_scale) == 0:
                parts.append(-2.0 * slope * s)
            else:
                parts += [-2.0 * slope * difference**2 for difference in self._differences(X, Z)]
        parts += self._shape_gradient(s)
        return np.stack(parts, axis=-1) if parts else np.zeros((*s.shape, 0))

    def _contract(self, X: Array, Z: Array | None, W: Array, upper: bool = False) -> tuple[float, Array]:
        A, B = self._centre(X, Z)
        per_input = np.ndim(self.length_scale) == 1
        free_scale = self._is_free("length_scale")
        known = self._compiled_profile() if is_large(*W.shape) else None
        if known is not None:
            n_sums = 1 + (np.size(self.length_scale) if free_scale else 0)
            sums = sum_over_pairs(A, B, W, upper, known, n_sums)
            return float(sums[0]), -2.0 * sums[1:]

        def contract(rows: slice) -> Array:
            """The value, then the derivatives, of one block of rows."""
            columns = slice(rows.start if upper else 0, None)
            w, a, b = W[rows, columns], A[rows], B[columns]
            s = squared_distances(a, b)
            profile, slope = self._profile_and_slope(s)
            parts = [np.array([_dot(w, profile)])]
            if free_scale:
                g = np.multiply(slope, w, out=slope)
                if per_input:  # sum_ij g_ij (a_i - b_j)^2 per input, as one matrix product
                    square = g.sum(axis=1) @ a**2 + g.sum(axis=0) @ b**2
                    parts.append(4.0 * np.einsum("id,id->d", a, g @ b) - 2.0 * square)
                else:
                    parts.append(np.array([-2.0 * _dot(g, s)]))
            parts += [np.array([_dot(w, part)]) for part in self._shape_gradient(s)]
            return np.concatenate(parts)

        total = reduce(np.add, map_blocks(contract, _blocks(len(A), len(B))))
        return float(total[0]), total[1:]

    # -- by inputs ---------------------------------------------------------------------------------------

    def _differences(self, X: Array, Z: Array | None) -> Iterator[Array]:
        """(N, M) scaled differences, one input at a time."""
        A = self._scale_points(X)
        B = A if Z is None else self._scale_points(Z)
        for d in range(A.shape[1]):
            yield np.subtract.outer(A[:, d], B[:, d])

    def _inverse_scales(self, D: int) -> Array:
        return np.broadcast_to(1.0 / np.asarray(self.length_scale), (D,))

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        slope = self._slope(self._squared_distances(X, Z))
        difference = np.stack(list(self._differences(X, Z)), axis=-1)
        difference *= 2.0 * self._inverse_scales(X.shape[1])
        difference *= slope[:, :, None]
        return difference

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        s = self._squared_distances(X, Z)
        scale = self._inverse_scales(X.shape[1])
        u = np.stack(list(self._differences(X, Z)), axis=-1) * scale
        H = (-4.0 * self._curvature(s))[:, :, None, None] * u[:, :, :, None] * u[:, :, None, :]
        d = np.arange(X.shape[1])
        H[:, :, d, d] -= 2.0 * self._slope(s)[:, :, None] * scale**2
        return H

    def _gradient_xz_diag(self, X: Array) -> Array:
        slope = float(self._slope(np.zeros(1))[0])
        one = np.diag(-2.0 * slope * self._inverse_scales(X.shape[1]) ** 2)
        return np.repeat(one[None], len(X), axis=0)

    def _input_vjp(self, X: Array, Z: Array | None, W: Array) -> Array:
        A, B = self._centre(X, Z)
        out = np.empty_like(A)
        for rows in _blocks(len(A), len(B)):
            g = W[rows] * self._slope(squared_distances(A[rows], B))
            out[rows] = g.sum(axis=1)[:, None] * A[rows] - g @ B  # sum_j g_ij (a_i - b_j)
        return 2.0 * out * self._inverse_scales(X.shape[1])


@dataclass(frozen=True, repr=False)
class RBF(Stationary):
    """k(x, z) = exp(-s / 2): squared exponential, infinitely smooth.

    length_scale: l, a number or one per input
    """

    def _compiled_profile(self) -> int:
        return GAUSSIAN

    def _profile(self, s: Array) -> Array:
        out = np.multiply(s, -0.5)
        return np.exp(out, out=out)

    def _profile_in_place(self, s: Array) -> None:
        s *= -0.5
        np.exp(s, out=s)

    def _slope(self, s: Array) -> Array:
        return -0.5 * self._profile(s)

    def _curvature(self, s: Array) -> Array:
        return 0.25 * self._profile(s)

    def _profile_and_slope(self, s: Array) -> tuple[Array, Array]:
        profile = self._profile(s)
        return profile, -0.5 * profile

    def _log_profile(self, s: Array) -> Array:
        return -0.5 * s


@dataclass(frozen=True, repr=False)
class Matern(Stationary):
    """k(x, z) = 2^(1-nu) / Gamma(nu) t^nu K_nu(t), t = sqrt(2 nu s): paths with ceil(nu) - 1 derivatives.

    length_scale: l, a number or one per input
    nu: smoothness > 0, not learned; 1/2, 3/2, 5/2 and infinity (the RBF) have closed forms
    """

    nu: float = 1.5
    length_scale_bounds: Bounds = field(default=POSITIVE, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu != np.inf:
            self._set("nu", positive(self.nu, "Matern: nu"))

    def why_not_differentiable(self) -> str:
        if self.nu > 1.0:
            return ""
        return f"sample paths of Matern with nu = {self.nu} have no derivative: use nu > 1, for example 1.5"

    def _compiled_profile(self) -> int | None:
        if self.nu == np.inf:
            return GAUSSIAN
        return int(2.0 * self.nu) if self.nu in (0.5, 1.5, 2.5) else None

    def _profile(self, s: Array) -> Array:
        return matern_profile(self.nu, s)[0]

    def _slope(self, s: Array) -> Array:
        return matern_profile(self.nu, s, 1)[1]

    def _profile_and_slope(self, s: Array) -> tuple[Array, Array]:
        profile, slope = matern_profile(self.nu, s, 1)
        return profile, slope

    def _curvature(self, s: Array) -> Array:
        return matern_profile(self.nu, s, 2)[2]

    def _log_profile(self, s: Array) -> Array:
        return log_matern_profile(self.nu, s)


@dataclass(frozen=True, repr=False)
class Exponential(Stationary):
    """k(x, z) = exp(-sqrt(s)): Ornstein-Uhlenbeck, continuous and nowhere differentiable; Matern 1/2.

    length_scale: l, a number or one per input; the lectures' rate is 1 / l
    """

    def why_not_differentiable(self) -> str:
        return (
            "sample paths of Exponential (Ornstein-Uhlenbeck) have no derivative: "
            "use a smoother kernel, for example Matern(nu=1.5)"
        )

    def _compiled_profile(self) -> int:
        return 1  # Matern's with nu = 1/2

    def _profile(self, s: Array) -> Array:
        return np.exp(-np.sqrt(s))

    def _slope(self, s: Array) -> Array:
        return self._profile_and_slope(s)[1]

    def _profile_and_slope(self, s: Array) -> tuple[Array, Array]:
        r = np.sqrt(s)
        profile = np.exp(-r)
        return profile, np.divide(-0.5 * profile, r, out=np.zeros_like(s), where=r > 0.0)

    def _log_profile(self, s: Array) -> Array:
        return -np.sqrt(s)


@dataclass(frozen=True, repr=False)
class RationalQuadratic(Stationary):
    """k(x, z) = (1 + s / (2 alpha))^-alpha: a mixture of RBFs over length scales; the RBF as alpha grows.

    length_scale: l, a number or one per input
    alpha: weight of long against short scales
    """

    alpha: Values = 1.0
    length_scale_bounds: Bounds = field(default=POSITIVE, kw_only=True)
    alpha_bounds: Bounds = field(default=POSITIVE, kw_only=True)

    parameters = (Parameter("length_scale", ndim=1, role="length"), Parameter("alpha"))

    def _log_profile(self, s: Array) -> Array:
        alpha = float(self.alpha)
        return -alpha * np.log1p(s / (2.0 * alpha))

    def _profile(self, s: Array) -> Array:
        return np.exp(self._log_profile(s))

    def _slope(self, s: Array) -> Array:
        alpha = float(self.alpha)
        return -0.5 * np.exp((-alpha - 1.0) * np.log1p(s / (2.0 * alpha)))

    def _curvature(self, s: Array) -> Array:
        alpha = float(self.alpha)
        return 0.25 * (alpha + 1.0) / alpha * np.exp((-alpha - 2.0) * np.log1p(s / (2.0 * alpha)))

    def _shape_gradient(self, s: Array) -> list[Array]:
        if not self._is_free("alpha"):
            return []
        alpha = float(self.alpha)
        u = s / (2.0 * alpha)
        # log k = -alpha log(1 + u), so dk/dlog alpha = k alpha (u / (1 + u) - log(1 + u))
        return [self._profile(s) * alpha * (u / (1.0 + u) - np.log1p(u))]


def _dot(a: Array, b: Array) -> float:
    return float(np.einsum("ij,ij->", a, b))


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    step = max(1, _BLOCK_ENTRIES // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, start + step)
