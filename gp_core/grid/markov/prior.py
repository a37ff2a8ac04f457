"""What the kernel says about the coefficients of quadratic splines, near by: all that a chain of rows needs.

The coefficients are those of the projection in L2 of a draw from the GP. Their covariance is the kernel smoothed by the
autocorrelation a of the dual spline,

    Cov(c_0, c_d) = sum over tau of a(tau_x) a(tau_y) k(d h + tau h),

a sum over the plane, not over a torus: it does not matter how far the kernel reaches. What the splines do not carry has
the variance

    unresolved = k(0) - sum_d Cov(c_0, c_d) g(d_x) g(d_y),          g: inner products of the splines,

and counts as noise of every point. The data teach part of it all the same. At the density a of information (sum of
1 / noise per area) a mode with spectral density S is left with S / (1 + S a) of its variance:

    unresolved(a) = integral S (1 - g) / (1 + S a) df.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from scipy import fft

from gp_core.arrays import Array
from gp_core.grid.markov.splines import (
    DEGREE,
    DUAL_REACH,
    dual_autocorrelation,
    inner_product_transform,
    inner_products,
    slope_products,
    transform,
)
from gp_core.kernels import Kernel

_SAMPLES: Final = 8
"""Samples of the kernel per block."""
_TAPER: Final = 5.0
"""Blocks, standard deviation of the window under which the spectrum near and beyond the lattice's limit is computed."""
_INFORMATION: Final = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 61)])
"""Densities of information, in units of 1 / (unresolved variance x block), at which unresolved(a) is tabulated."""


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
    learned: (3, 62) what data leave of the unresolved part of height and slopes, at the densities of the table
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
    learned: Array = field(repr=False)

    rough: ClassVar[bool] = True

    @property
    def scale(self) -> tuple[float, float]:
        """The finest correlation length."""
        return self.correlation_length

    @property
    def reach(self) -> tuple[int, int]:
        """(R_y, R_x)."""
        return self.lags.shape[0] // 2, self.lags.shape[1] // 2

    def share_left(self, information: Array) -> Array:
        """(3, ...) share of the unresolved variance of height and slopes that the data leave.

        information: sum of 1 / noise variance of the points of an area, over the area
        """
        unit = information * (self.spacing[0] * self.spacing[1] * self.unresolved)
        at = np.log1p(unit / _INFORMATION[1])
        table = np.log1p(_INFORMATION / _INFORMATION[1])
        return np.stack([np.interp(at, table, share) for share in self.learned])

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
    return MarkovPrior(
        kernel=kernel,
        spacing=spacing,
        correlation_length=correlation_length,
        information=information,
        variance=variance,
        gradient_variance=gradient_variance,
        lags=lags,
        unresolved=max(variance - float(value @ near @ value), 0.0),
        unresolved_gradient=np.maximum(gradient_variance - carried, 0.0),
        learned=_shares_left(kernel, spacing),
    )


def prior_gradient_variance(kernel: Kernel) -> Array:
    """(2,) prior variance of df/dx and df/dy; infinite where the paths have no derivative."""
    if kernel.why_not_differentiable():
        return np.full(2, np.inf)
    return np.ascontiguousarray(np.diagonal(kernel.gradient_xz_diag(np.zeros((1, 2)))[0]))


def lattice_error(kernel: Kernel, spacing: tuple[float, float], information: float) -> float:
    """Error of the mean, in posterior standard deviations, that a lattice of this spacing causes by what it lacks.

    information: expected sum of 1 / noise variance per area
    """
    S, f = _near_spectrum(kernel, spacing)
    a = information * spacing[0] * spacing[1]
    learned = S * a / (1.0 + S * a)
    return float(np.sqrt((S * (1.0 - _carried(f)) * learned).sum() / (S * (1.0 - learned)).sum()))


def _lags(kernel: Kernel, spacing: tuple[float, float], R_y: int, R_x: int) -> Array:
    a = dual_autocorrelation(_SAMPLES)
    x, y = (
        np.arange(-(R + DUAL_REACH) * _SAMPLES, (R + DUAL_REACH) * _SAMPLES + 1) * (h / _SAMPLES)
        for R, h in ((R_x, spacing[0]), (R_y, spacing[1]))
    )
    K = _covariances(kernel, x, y)
    # Along x and then along y, only at whole lags.
    along_x = np.stack([K[:, d * _SAMPLES : d * _SAMPLES + a.size] @ a for d in range(2 * R_x + 1)], axis=1)
    return np.stack([a @ along_x[d * _SAMPLES : d * _SAMPLES + a.size] for d in range(2 * R_y + 1)])


def _shares_left(kernel: Kernel, spacing: tuple[float, float]) -> Array:
    """(3, 62) unresolved(a) / unresolved of height, d/dx and d/dy at the densities of the table."""
    S, f = _near_spectrum(kernel, spacing)
    rest = S * (1.0 - _carried(f))
    squares = f**2
    parts = rest, rest * squares, rest * squares[:, None]
    # rest is a density per squared cycle: its sum over cells of frequency is the unresolved variance.
    cell = (f[1] - f[0]) ** 2
    unit = 1.0 / max(rest.sum() * cell, 1e-300)
    left = [1.0 / (1.0 + S * (a * unit)) for a in _INFORMATION]
    shares: Array = np.array([[(part * share).sum() / part.sum() for share in left] for part in parts])
    return shares


def _near_spectrum(kernel: Kernel, spacing: tuple[float, float]) -> tuple[Array, Array]:
    """Spectral density (n, n) of the kernel, and frequencies (n,), in blocks and cycles per block.

    Computed under a wide Gaussian window, however far the kernel reaches: what is near and beyond half a cycle per
    block is not changed by that, and the rest is carried in any case.
    """
    n = fft.next_fast_len(int(12 * _TAPER)) * _SAMPLES
    t: Array = np.asarray(np.fft.fftfreq(n, 1.0 / n), dtype=np.float64) / float(_SAMPLES)  # blocks
    window = np.exp(-0.5 * (t / _TAPER) ** 2)
    K = _covariances(kernel, t * spacing[0], t * spacing[1]) * np.outer(window, window)
    S: Array = np.maximum(fft.fft2(K).real, 0.0) / _SAMPLES**2
    return S, np.asarray(np.fft.fftfreq(n, 1.0 / _SAMPLES), dtype=np.float64)


def _carried(f: Array) -> Array:
    """(n, n) share of the power at each frequency that the splines carry."""
    share = transform(f) ** 2 / inner_product_transform(f)
    return np.outer(share, share)


def _covariances(kernel: Kernel, x: Array, y: Array) -> Array:
    """(N_y, N_x) k at the offsets (x, y)."""
    dx, dy = np.meshgrid(x, y)
    points = np.stack([dx.ravel(), dy.ravel()], axis=-1)
    return kernel(points, np.zeros((1, 2)))[:, 0].reshape(dx.shape)
