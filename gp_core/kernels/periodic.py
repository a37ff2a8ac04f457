"""The periodic kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gp_core.arrays import Array
from gp_core.kernels.base import Kernel
from gp_core.kernels.stationary import RBF
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values


@dataclass(frozen=True, repr=False)
class Periodic(Kernel):
    """k(x, z) = exp(-2 sum_d sin^2(pi (x_d - z_d) / p_d) / l^2): functions that repeat with period p, in each input.

    It is the RBF of points on circles, u(x) = (cos 2 pi x_d / p_d, sin 2 pi x_d / p_d), and so a kernel in every
    dimension (MacKay 1998); everything here follows from that by the chain rule.

    Parameters
    ----------
    length_scale : float
        l, relative to the circle: small for functions that change a lot within a period.
    period : float or one per input
        p.

    Examples
    --------
    >>> k = Periodic(1.0, period=2.0)
    >>> k([[0.0]], [[1.0], [2.0]]).round(4)
    array([[0.1353, 1.    ]])
    """

    length_scale: Values = 1.0
    period: Values = 1.0
    length_scale_bounds: Bounds = POSITIVE
    period_bounds: Bounds = POSITIVE

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("length_scale"),
        Parameter("period", ndim=1, role="length"),
    )

    def _rbf(self) -> RBF:
        return RBF(self.length_scale, self.length_scale_bounds)

    def _angles(self, X: Array) -> Array:
        period = np.asarray(self.period)
        if period.ndim == 1 and len(period) != X.shape[1]:
            raise ValueError(
                f"Periodic has {len(period)} periods but the points have {X.shape[1]} inputs: "
                "give one per input, or a single one"
            )
        angles: Array = 2.0 * np.pi * X / period
        return angles

    def _circle(self, X: Array | None) -> Array | None:
        """u (N, 2 D): cosines, then sines."""
        if X is None:
            return None
        angles = self._angles(X)
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    def _pair(self, X: Array, Z: Array | None) -> tuple[Array, Array | None]:
        left = self._circle(X)
        assert left is not None
        return left, self._circle(Z)

    def _velocity(self, X: Array) -> Array:
        """(N, 2, D) derivative of the cosine and the sine of each input by its angle."""
        angles = self._angles(X)
        return np.stack([-np.sin(angles), np.cos(angles)], axis=1)

    def _matrix(self, X: Array, Z: Array | None) -> Array:
        return self._rbf()._matrix(*self._pair(X, Z))

    def _log_matrix(self, X: Array, Z: Array | None) -> Array:
        return self._rbf()._log_matrix(*self._pair(X, Z))

    def _diag(self, X: Array) -> Array:
        return np.ones(len(self._angles(X)))

    # -- chain rule ------------------------------------------------------------------------------------

    def _by_angle(self, X: Array, Z: Array | None) -> Array:
        """(N, M, D) dk(x_i, z_j) by the angles of x_i; by those of z_j it is the opposite."""
        U, V = self._pair(X, Z)
        G = self._rbf()._gradient_x(U, V)
        G = G.reshape(*G.shape[:2], 2, X.shape[1])
        by_angle: Array = np.einsum("nmcd,ncd->nmd", G, self._velocity(X))
        return by_angle

    def _gradient_theta(self, X: Array, Z: Array | None) -> Array:
        parts = [self._rbf()._gradient_theta(*self._pair(X, Z))]
        if self._is_free("period"):
            other = X if Z is None else Z
            # The angle is 2 pi x / p, so d angle / d log p = -angle; only differences of angles matter.
            difference = self._angles(X)[:, None, :] - self._angles(other)[None, :, :]
            by_period = -self._by_angle(X, Z) * difference
            parts.append(by_period if np.ndim(self.period) else by_period.sum(axis=2, keepdims=True))
        return np.concatenate(parts, axis=2)

    def _gradient_x(self, X: Array, Z: Array | None) -> Array:
        return self._by_angle(X, Z) * (2.0 * np.pi / np.asarray(self.period))

    def _gradient_xz(self, X: Array, Z: Array | None) -> Array:
        D = X.shape[1]
        U, V = self._pair(X, Z)
        H = self._rbf()._gradient_xz(U, V)
        H = H.reshape(*H.shape[:2], 2, D, 2, D)
        left = self._velocity(X)
        right = left if Z is None else self._velocity(Z)
        by_angles: Array = np.einsum("nmcdfe,ncd,mfe->nmde", H, left, right)
        rate = np.broadcast_to(2.0 * np.pi / np.asarray(self.period), (D,))
        return by_angles * np.outer(rate, rate)
