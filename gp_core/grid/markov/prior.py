"""What the kernel says about the coefficients of quadratic splines, near by: all that a chain of rows needs.

The coefficients are those of the projection in L2 of a draw from the GP. Their covariance is the kernel smoothed by the
autocorrelation a of the dual spline,

    Cov(c_0, c_d) = sum over tau of a(tau_x) a(tau_y) k(d h + tau h),

a sum over the plane, not over a torus: it does not matter how far the kernel reaches. What the splines do not carry has
the variance

    unresolved = k(0) - sum_d Cov(c_0, c_d) g(d_x) g(d_y),          g: inner products of the splines,

and counts as noise of every point. The data teach part of it all the same: at the density a of information (sum of
1 / noise variance per area) a mode of spectral density S is left with S_a = S / (1 + S a), and

    unresolved(a) = integral S_a (1 - g) df,               g: share of the power that the splines carry.

For slopes, 1 - g is replaced by f^2 - g s(f), with s(f) >= f^2 the mean square slope of the splines' counterpart of the
mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import fft

from gp_core.arrays import Array
from gp_core.grid import interpolation as quintic
from gp_core.grid.markov.offsets import covariances
from gp_core.grid.markov.splines import (
    DEGREE,
    DUAL_REACH,
    dual_autocorrelation,
    inner_product_transform,
    inner_products,
    slope_products,
    transform,
)
from gp_core.grid.moments import QUADRATIC, MomentOrders
from gp_core.kernels import Kernel

_SAMPLES: Final = 8
"""Samples of the kernel per block."""
_FAR_SAMPLES: Final = 4
"""Likewise for lags beyond `_NEAR` blocks."""
_NEAR: Final = 8
_TAPER: Final = 16.0
"""Blocks, standard deviation of the window under which the spectrum near the lattice's limit is computed."""
_SPAN: Final = 14
"""Standard deviations that the window is wide: what it cuts off must not show beside a spectrum that falls as f^-7."""
_SPECTRUM_SAMPLES: Final = 2
"""Samples of the kernel per block for that spectrum: what is finer is folded into it, and is little."""
_INFORMATION: Final = np.concatenate([[0.0], np.geomspace(1e-2, 1e5, 15)])
"""Points of average noise per block, times their signal-to-noise ratio, at which the unresolved part is tabulated."""


@dataclass(frozen=True)
class MarkovPrior:
    """Covariances of coefficients of quadratic splines at small lags.

    kernel: stationary kernel on (x, y)
    spacing: (h_x, h_y), sides of a block
    correlation_length: (l_x, l_y), distance along the axis at which the correlation is exp(-1/2)
    information: k(0) / noise variance times the points of a squared correlation length, as expected
    variance: k(0)
    gradient_variance: (2,) variance of df/dx and df/dy; infinite where the paths have no derivative
    lags: (2 R_y + 1, 2 R_x + 1) covariance of c_j and c_(j + d), d from -R to R
    unresolved: variance of what the splines can't carry, the mean over positions in a block
    unresolved_gradient: (2,) likewise of df/dx and df/dy
    left: (3, L) what data of the densities of the table leave of the unresolved variance of height, d/dx and d/dy
    """

    kernel: Kernel
    spacing: tuple[float, float]
    correlation_length: tuple[float, float]
    information: float
    variance: float
    gradient_variance: Array
    lags: Array = field(repr=False)
    unresolved: float
    unresolved_gradient: Array
    left: Array = field(repr=False)

    @property
    def scale(self) -> tuple[float, float]:
        """The finest correlation length."""
        return self.correlation_length

    @property
    def orders(self) -> MomentOrders:
        """Of the moments that quadratic splines need."""
        return QUADRATIC

    @property
    def reach(self) -> tuple[int, int]:
        """(R_y, R_x)."""
        return self.lags.shape[0] // 2, self.lags.shape[1] // 2

    def unresolved_at(self, information: Array) -> Array:
        """(3, ...) variance of height, d/dx and d/dy that the splines do not carry and the data have not taught.

        information: sum of 1 / noise variance of the points of an area, over the area
        """
        unit = information * (self.spacing[0] * self.spacing[1] * self.variance)
        at = np.log1p(unit / _INFORMATION[1])
        levels = np.log1p(_INFORMATION / _INFORMATION[1])
        return np.stack([np.interp(at, levels, left) for left in self.left])

    def shares_across(self, width: float) -> Array:
        """(2, 2) of the variances of d/dx and d/dy, what shows in the difference of heights across `width`.

        First of what the splines carry, then of what they do not. With k the covariance of either, the difference has
        the variance 2 (k(0) - k(width)). What the splines carry has the covariance sum_d Cov(c_0, c_d) q(x / h - d),
        the mean over positions, with the quintic spline q. All shows of slopes that are infinite.
        """
        if not np.isfinite(self.gradient_variance).all():
            return np.ones((2, 2))
        R_y, R_x = self.reach
        value = inner_products()
        lines = (
            value @ self.lags[R_y - DEGREE : R_y + DEGREE + 1],
            self.lags[:, R_x - DEGREE : R_x + DEGREE + 1] @ value,
        )
        out = np.zeros((2, 2))
        for axis, (line, h) in enumerate(zip(lines, self.spacing, strict=True)):
            block, R = int(width / h), line.size // 2
            total = carried = float(self.kernel(width * np.eye(2)[axis : axis + 1], np.zeros((1, 2)))[0, 0])
            if block + quintic.DEGREE // 2 + 1 <= R:  # beyond, the splines carry all
                splines = quintic.weights(np.array(2.0 * (width / h - block) - 1.0))
                first = R + block - quintic.DEGREE // 2
                carried = float(splines @ line[first : first + quintic.ORDER])
            fallen = np.array(
                [self.variance - self.unresolved - carried, self.unresolved - (total - carried)]
            )
            slope = self.unresolved_gradient[axis]
            slopes = np.maximum([self.gradient_variance[axis] - slope, slope], np.finfo(np.float64).tiny)
            out[:, axis] = 2.0 * fallen / width**2 / slopes
        return np.clip(out, 0.0, 1.0)

    @property
    def near(self) -> Array:
        """(5, 5) the lags at which two coefficients meet in a block."""
        R_y, R_x = self.reach
        return self.lags[R_y - DEGREE : R_y + DEGREE + 1, R_x - DEGREE : R_x + DEGREE + 1]

    def block_covariance(self, rows: int, width: int) -> Array:
        """(rows width, rows width) covariance of a block of coefficients, row by row."""
        R_y, R_x = self.reach
        dy = R_y + np.subtract.outer(np.arange(rows), np.arange(rows))
        dx = R_x + np.subtract.outer(np.arange(width), np.arange(width))
        block = self.lags[dy[:, None, :, None], dx[None, :, None, :]]
        return np.ascontiguousarray(block.reshape(rows * width, rows * width))


def make_markov_prior(
    kernel: Kernel,
    spacing: tuple[float, float],
    correlation_length: tuple[float, float],
    information: float,
    rows: int,
    width: int,
) -> MarkovPrior:
    """The prior for blocks of up to `rows` x `width` coefficients; the rest as in `MarkovPrior`."""
    lags = _lags(kernel, spacing, max(rows, DEGREE + 1), max(width, DEGREE + 1))
    R_y, R_x = lags.shape[0] // 2, lags.shape[1] // 2
    near = lags[R_y - DEGREE : R_y + DEGREE + 1, R_x - DEGREE : R_x + DEGREE + 1]
    value, slope = inner_products(), slope_products()
    variance = float(kernel.diag(np.zeros((1, 2)))[0])
    gradient_variance = prior_gradient_variance(kernel)
    carried = np.array([value @ near @ slope / spacing[0] ** 2, slope @ near @ value / spacing[1] ** 2])
    unresolved = max(variance - float(value @ near @ value), 0.0)
    unresolved_gradient = gradient_variance - carried
    without_data = np.array([unresolved, *unresolved_gradient])
    return MarkovPrior(
        kernel=kernel,
        spacing=spacing,
        correlation_length=correlation_length,
        information=information,
        variance=variance,
        gradient_variance=gradient_variance,
        lags=lags,
        unresolved=unresolved,
        unresolved_gradient=unresolved_gradient,
        left=without_data[:, None] + _learned_of_unresolved(kernel, spacing, variance),
    )


def prior_gradient_variance(kernel: Kernel) -> Array:
    """(2,) prior variance of df/dx and df/dy; infinite where the paths have no derivative."""
    if kernel.why_not_differentiable():
        return np.full(2, np.inf)
    return np.ascontiguousarray(np.diagonal(kernel.gradient_xz_diag(np.zeros((1, 2)))[0]))


def lattice_error(kernel: Kernel, spacing: tuple[float, float], information: float) -> tuple[float, float]:
    """Errors of mean and gradient, in posterior standard deviations, that a lattice of this spacing causes.

    information: expected sum of 1 / noise variance per area
    """
    S, f = _near_spectrum(kernel, spacing)
    a = information * spacing[0] * spacing[1]
    learned = S * a / (1.0 + S * a)
    carried = _carried(f)
    height = np.sqrt((S * (1.0 - carried) * learned).sum() / (S * (1.0 - learned)).sum())
    # A mode of slope f comes out with the share `carried` of its power, whose own mean square slope is larger.
    missed = f**2 * (1.0 - 2.0 * carried) + _mean_square_slope(f) * carried
    slope = np.sqrt((S * missed * learned).sum() / (S * f**2 * (1.0 - learned)).sum())
    return float(height), float(slope)


def falls_as_power(kernel: Kernel, length: tuple[float, float]) -> bool:
    """Whether the spectrum still falls as a power of the frequency far above 1 / `length`.

    That of a smooth kernel falls faster the farther out, or has come down to rounding.
    """
    near, far = (falloff(kernel, (length[0] / q, length[1] / q)) for q in (16.0, 32.0))
    return near > 1.5 and abs(near - far) < 0.5


def falloff(kernel: Kernel, spacing: tuple[float, float]) -> float:
    """The power of the frequency with which the spectrum falls beyond the lattice's limit: 2 nu + 2 for a Matern."""
    S, f = _near_spectrum(kernel, spacing)
    along = S[0] + S[:, 0]
    low, high = (along[np.argmin(np.abs(f - at))] for at in (0.4, 0.8))
    return float(np.log2(max(low, 1e-300) / max(high, 1e-300)))


def _lags(kernel: Kernel, spacing: tuple[float, float], R_y: int, R_x: int) -> Array:
    a = dual_autocorrelation(_SAMPLES)
    x, y = (
        np.arange(-(R + DUAL_REACH) * _SAMPLES, (R + DUAL_REACH) * _SAMPLES + 1) * (h / _SAMPLES)
        for R, h in ((R_x, spacing[0]), (R_y, spacing[1]))
    )
    K = covariances(kernel, np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    # Along x and then along y, only at whole lags.
    along_x = np.stack([K[:, d * _SAMPLES : d * _SAMPLES + a.size] @ a for d in range(2 * R_x + 1)], axis=1)
    return np.stack([a @ along_x[d * _SAMPLES : d * _SAMPLES + a.size] for d in range(2 * R_y + 1)])


def lags_within(prior: MarkovPrior, R_y: int, R_x: int) -> Array:
    """(2 R_y + 1, 2 R_x + 1) covariances of c_j and c_(j + d) for a whole lattice, d from -R to R.

    Beyond the small lags the kernel is smooth, and fewer samples will do.
    """
    a = dual_autocorrelation(_FAR_SAMPLES)
    x, y = (
        np.arange(-(R + DUAL_REACH) * _FAR_SAMPLES, DUAL_REACH * _FAR_SAMPLES + 1 + R * _FAR_SAMPLES)
        * (h / _FAR_SAMPLES)
        for R, h in ((R_x, prior.spacing[0]), (R_y, prior.spacing[1]))
    )
    K = covariances(prior.kernel, np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    along_x = np.stack(
        [K[:, d : d + a.size] @ a for d in range(0, 2 * R_x * _FAR_SAMPLES + 1, _FAR_SAMPLES)], axis=1
    )
    out = np.stack([a @ along_x[d : d + a.size] for d in range(0, 2 * R_y * _FAR_SAMPLES + 1, _FAR_SAMPLES)])
    near_y, near_x = (min(n, R) for n, R in zip(prior.reach, (R_y, R_x), strict=True))
    near_y, near_x = min(near_y, _NEAR), min(near_x, _NEAR)
    n_y, n_x = prior.reach
    out[R_y - near_y : R_y + near_y + 1, R_x - near_x : R_x + near_x + 1] = prior.lags[
        n_y - near_y : n_y + near_y + 1, n_x - near_x : n_x + near_x + 1
    ]
    return out


def _learned_of_unresolved(kernel: Kernel, spacing: tuple[float, float], variance: float) -> Array:
    """(3, L) by how much data of the densities of the table change the unresolved variance of height and slopes."""
    S, f = _near_spectrum(kernel, spacing)
    cell = (f[1] - f[0]) ** 2
    carried = _carried(f)
    rates, slopes = f**2, _mean_square_slope(f)
    parts = (
        1.0 - carried,
        (2.0 * np.pi / spacing[0]) ** 2 * (rates - slopes * carried),
        (2.0 * np.pi / spacing[1]) ** 2 * (rates[:, None] - slopes[:, None] * carried),
    )
    out = np.zeros((len(parts), _INFORMATION.size))
    for k, a in enumerate(_INFORMATION):
        information = a / variance
        lost = -S * S * information / (1.0 + S * information)
        out[:, k] = [cell * float((part * lost).sum()) for part in parts]
    return out


def _near_spectrum(kernel: Kernel, spacing: tuple[float, float]) -> tuple[Array, Array]:
    """Spectral density (n, n) of the kernel, and frequencies (n,), in blocks and cycles per block.

    Computed under a wide Gaussian window, however far the kernel reaches: what is near and beyond half a cycle per
    block is not changed by that, and the rest is carried in any case.
    """
    n = int(_SPAN * _TAPER) * _SPECTRUM_SAMPLES
    t: Array = np.asarray(np.fft.fftfreq(n, 1.0 / n), dtype=np.float64) / float(_SPECTRUM_SAMPLES)  # blocks
    window = np.exp(-0.5 * (t / _TAPER) ** 2)
    K = covariances(kernel, t * spacing[0], t * spacing[1]) * np.outer(window, window)
    S: Array = np.maximum(fft.fft2(K).real, 0.0) / _SPECTRUM_SAMPLES**2
    return S, np.asarray(np.fft.fftfreq(n, 1.0 / _SPECTRUM_SAMPLES), dtype=np.float64)


def _carried(f: Array) -> Array:
    """(n, n) share of the power at each frequency that the splines carry."""
    share = transform(f) ** 2 / inner_product_transform(f)
    return np.outer(share, share)


def _mean_square_slope(frequency: Array) -> Array:
    """In squared cycles per block: of the splines' counterpart of a mode of the given frequency."""
    shifted = frequency[..., None] + np.arange(-3, 4)
    power = transform(shifted) ** 2
    return np.asarray((shifted**2 * power).sum(-1) / power.sum(-1))
