"""The prior on the spline coefficients: what the kernel says about the map, on the lattice of blocks.

The map is f(x) = sum_j c_j beta_j(x). Of all such functions the best approximation of a draw from the GP is
its projection in L2, so the coefficients have the spectral density

    S_c(f) = sum_k S(f + k) |beta^(f + k)|^2 / G(f)^2,       f in cycles per block,

with S the spectral density of the kernel, beta^ the transform of the spline and G that of the splines' inner
products. Projection does not fold what is finer than the lattice back into it, as interpolation would
(Unser, 1999); the variance of what it leaves out,

    unresolved = integral S(f) (1 - g(f)) df,                g = |beta^|^2 / G,

is known, counted as noise of every point, and added to every predicted variance.

The spacing of the lattice follows from the spectrum too. At the density of information a that noise and cells
lead to expect, the mode at f is learned to the fraction S a / (1 + S a). The lattice is the coarsest with

    integral S (1 - g) S a / (1 + S a)  <=  tolerance^2  integral S / (1 + S a),

that is, for which what could be learned but is not resolved stays below `tolerance` posterior standard
deviations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import fft

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.interpolation import DEGREE, ORDER, gram_spectrum, spectrum
from gp_core.grid.markov.prior import falls_as_power, prior_gradient_variance
from gp_core.grid.moments import QUINTIC, MomentOrders
from gp_core.kernels import Kernel

TOLERANCE: Final = 0.008
"""Default error of the mean, in posterior standard deviations, that the lattice may cause."""
INFORMATION: Final = 5000.0
"""a, unless stated: signal variance over noise variance, times points per squared correlation length."""
BLOCKS_PER_SCALE: Final = 3.0
"""Blocks per correlation length of a smooth kernel, at most; more of them mean that it has a finer scale."""
REACH: Final = 14.0
"""Correlation lengths after which the prior covariance is taken to have died out, at most."""
_OVERSAMPLING: Final = 6
"""Samples of the kernel per block when its projection is computed."""


@dataclass(frozen=True)
class TilePrior:
    """Covariance of the spline coefficients for one kernel and one lattice.

    kernel: stationary kernel on (x, y)
    spacing: (h_x, h_y), sides of a block
    correlation_length: (l_x, l_y), distance along the axis at which the correlation is exp(-1/2)
    scale: (s_x, s_y), the finest correlation length of a sum of scales; `correlation_length` otherwise
    information: a, expected of the data
    variance: k(0)
    gradient_variance: (2,) variance of df/dx and df/dy; infinite where the paths have no derivative
    lags: (2 R_y + 1, 2 R_x + 1) covariance of c_j and c_(j + d), d from -R to R
    unresolved: variance of what the lattice can't carry, the mean over positions in a block
    unresolved_gradient: (2,) likewise of df/dx and df/dy
    separable: whether k(dx, dy) = k(dx, 0) k(0, dy) / k(0, 0)
    torus: where kernel and lags meet
    """

    kernel: Kernel
    spacing: tuple[float, float]
    correlation_length: tuple[float, float]
    scale: tuple[float, float]
    information: float
    variance: float
    gradient_variance: Array
    lags: Array = field(repr=False)
    unresolved: float
    unresolved_gradient: Array
    separable: bool
    torus: _Torus = field(repr=False)

    @property
    def orders(self) -> MomentOrders:
        """Of the moments that quintic splines need."""
        return QUINTIC

    def shares_across(self, width: float) -> Array:
        """(2, 2) of the variances of slopes, carried and unresolved, what counts: all. The slope of a smooth surface is
        that of its cells, and next to nothing is unresolved."""
        return np.ones((2, 2))

    def resolved_variance(self, weights_x: Array, weights_y: Array) -> Array:
        """(N_y, N_x) prior variance of products of spline combinations, weights (N_x, 6) and (N_y, 6)."""
        return _autocorrelation(weights_y) @ self._near @ _autocorrelation(weights_x).T

    def resolved_variance_at(self, weights_x: Array, weights_y: Array) -> Array:
        """(N,) likewise, for pairs of rows (N, 6)."""
        product: Array = ((_autocorrelation(weights_y) @ self._near) * _autocorrelation(weights_x)).sum(1)
        return product

    def lags_within(self, n_y: int, n_x: int) -> Array:
        """(2 n_y - 1, 2 n_x - 1) covariance at lags 1 - n ... n - 1; zero beyond the reach."""
        R_y, R_x = (n // 2 for n in self.lags.shape)
        k_y, k_x = min(n_y - 1, R_y), min(n_x - 1, R_x)
        out = np.zeros((2 * n_y - 1, 2 * n_x - 1))
        out[n_y - 1 - k_y : n_y + k_y, n_x - 1 - k_x : n_x + k_x] = self.lags[
            R_y - k_y : R_y + k_y + 1, R_x - k_x : R_x + k_x + 1
        ]
        return out

    @property
    def _near(self) -> Array:
        R_y, R_x = (n // 2 for n in self.lags.shape)
        return self.lags[R_y - DEGREE : R_y + ORDER, R_x - DEGREE : R_x + ORDER]

    def along_x(self, count: int) -> Array:
        """(count,) covariance of the coefficients at lags 0, 1, ... in x; zero beyond the reach."""
        R_y, R_x = (n // 2 for n in self.lags.shape)
        return _pad(self.lags[R_y, R_x:], count)

    def along_y(self, count: int) -> Array:
        """(count,) likewise in y."""
        R_y, R_x = (n // 2 for n in self.lags.shape)
        return _pad(self.lags[R_y:, R_x], count)


@dataclass(frozen=True)
class _Torus:
    """Samples of the kernel, `_OVERSAMPLING` per block, on a torus of whole blocks; x first.

    reach: (R_x, R_y), lags that are kept
    count: (N_x, N_y), samples
    step: (x, y) between them
    """

    reach: tuple[int, int]
    count: tuple[int, int]
    step: tuple[float, float]

    @staticmethod
    def of(
        kernel: Kernel, spacing: tuple[float, float], length: tuple[float, float], variance: float
    ) -> _Torus:
        reach, count = [], []
        for axis in (0, 1):
            R = int(np.ceil(_reach(kernel, axis, length[axis], variance) / spacing[axis])) + 1
            reach.append(R)
            count.append(_OVERSAMPLING * fft.next_fast_len(2 * R + 2))
        step = (spacing[0] / _OVERSAMPLING, spacing[1] / _OVERSAMPLING)
        return _Torus((reach[0], reach[1]), (count[0], count[1]), step)

    @property
    def frequencies(self) -> list[Array]:
        """(N,) per axis, in cycles per block."""
        return [_frequencies(count, _OVERSAMPLING) for count in self.count]

    @property
    def _dual(self) -> Array:
        """(N_y, N_x) square of the transform of the projection onto the splines."""
        x, y = ((spectrum(f) / gram_spectrum(f)) ** 2 for f in self.frequencies)
        return y[:, None] * x

    def spectrum(self, kernel: Kernel) -> Array:
        return _spectrum(kernel, list(self.count), list(self.step))

    def project(self, S: Array) -> Array:
        """(2 R_y + 1, 2 R_x + 1) covariances of the coefficients from spectral weights (N_y, N_x)."""
        n_x, n_y = (count // _OVERSAMPLING for count in self.count)
        folded = (S * self._dual).reshape(_OVERSAMPLING, n_y, _OVERSAMPLING, n_x).sum((0, 2))
        sequence = np.fft.fftshift(fft.ifft2(folded).real) * (n_x * n_y)
        R_x, R_y = self.reach
        c_y, c_x = n_y // 2, n_x // 2
        return np.ascontiguousarray(sequence[c_y - R_y : c_y + R_y + 1, c_x - R_x : c_x + R_x + 1])

    def theta_gradient(self, kernel: Kernel, w: Array) -> Array:
        """(P,) derivative by theta of sum w K over lags, w (2 n_y - 1, 2 n_x - 1): `project`, transposed."""
        n_x, n_y = (count // _OVERSAMPLING for count in self.count)
        R_x, R_y = self.reach
        k_y, k_x = min(w.shape[0] // 2, R_y), min(w.shape[1] // 2, R_x)
        m_y, m_x = w.shape[0] // 2, w.shape[1] // 2
        sequence = np.zeros((n_y, n_x))
        c_y, c_x = n_y // 2, n_x // 2
        sequence[c_y - k_y : c_y + k_y + 1, c_x - k_x : c_x + k_x + 1] = w[
            m_y - k_y : m_y + k_y + 1, m_x - k_x : m_x + k_x + 1
        ]
        by_frequency = np.tile(fft.fft2(np.fft.ifftshift(sequence)).real, (_OVERSAMPLING, _OVERSAMPLING))
        by_sample = fft.ifft2(by_frequency * self._dual).real
        offset = [np.fft.fftfreq(N, 1.0 / N) * step for N, step in zip(self.count, self.step, strict=True)]
        dx, dy = np.meshgrid(offset[0], offset[1])
        points = np.stack([dx.ravel(), dy.ravel()], axis=-1)
        return kernel.theta_vjp(points, by_sample.reshape(-1, 1), np.zeros((1, 2)))


def measure_kernel(kernel: Kernel) -> tuple[float, tuple[float, float]]:
    """k(0), and the correlation lengths along x and y; ValueError where the engine can't use the kernel."""
    variance = _variance(kernel)
    return variance, (_correlation_length(kernel, 0, variance), _correlation_length(kernel, 1, variance))


def make_tile_prior(
    kernel: Kernel,
    spacing: tuple[float, float] | None,
    length: tuple[float, float],
    variance: float,
    q: float,
    information: float,
) -> TilePrior:
    """The prior of a smooth kernel on the lattice of the given spacing.

    spacing: (h_x, h_y); None for q blocks per correlation length
    length, variance: as `measure_kernel` found them; q: as `blocks_per_length` found it
    """
    finer = min(1.0, BLOCKS_PER_SCALE / q)
    if spacing is None:
        spacing = (length[0] / q, length[1] / q)
    torus = _Torus.of(kernel, spacing, length, variance)
    S = torus.spectrum(kernel)
    f = torus.frequencies
    gain = [spectrum(frequency) ** 2 / gram_spectrum(frequency) for frequency in f]
    carried = S * gain[1][:, None] * gain[0]
    unresolved = float((S - carried).sum())
    gradient_variance = prior_gradient_variance(kernel)
    roughness = [_mean_square_slope(frequency) / size**2 for frequency, size in zip(f, spacing, strict=True)]
    carried_gradient = np.array([(carried * roughness[0]).sum(), (carried * roughness[1][:, None]).sum()])
    lags, R = torus.project(S), torus.reach
    outer = lags[:, R[0]][:, None] * lags[R[1]] / lags[R[1], R[0]]
    return TilePrior(
        kernel=kernel,
        spacing=spacing,
        correlation_length=length,
        scale=(finer * length[0], finer * length[1]),
        information=information,
        variance=variance,
        gradient_variance=gradient_variance,
        lags=lags,
        unresolved=max(unresolved, 0.0),
        unresolved_gradient=gradient_variance - carried_gradient,
        separable=bool(np.abs(lags - outer).max() < 1e-9 * lags[R[1], R[0]]),
        torus=torus,
    )


def expected_information(grid: Grid, kernel: Kernel, noise_variance: float) -> float:
    """a for a map with some points in every cell: k(0) / noise * cells per squared correlation length * 2.

    Held within what the engine is made for; more or less information than expected is no mistake, but the
    lattice is then finer or coarser than it had to be.
    """
    variance, length = measure_kernel(kernel)
    x, y = length[0] / grid.resolution, length[1] / grid.resolution
    return float(np.clip(2.0 * x * y * variance / noise_variance, 1e3, 1e6))


def _covariance(kernel: Kernel, dx: Array, dy: Array) -> Array:
    """k at the offsets (dx, dy), arrays of one shape."""
    points = np.stack([dx.ravel(), dy.ravel()], axis=-1)
    return kernel(points, np.zeros((1, 2)))[:, 0].reshape(dx.shape)


def _variance(kernel: Kernel) -> float:
    """k(0), after checks that the kernel is stationary, has no white part and is positive."""
    probe = np.array([[0.0, 0.0], [0.31, -0.17], [5.3, 2.9], [-40.7, 13.1]])
    shift = np.array([[17.3, -91.4]])
    moved = kernel(probe + shift, shift)
    if not np.allclose(kernel(probe, np.zeros((1, 2))), moved, rtol=1e-6, atol=1e-12):
        raise ValueError(
            f"the grid engine needs a stationary kernel, {kernel!r} is not: "
            "describe a trend with mean='constant' or mean='plane' instead"
        )
    variance = float(kernel.diag(np.zeros((1, 2)))[0])
    if not (np.isfinite(variance) and variance > 0.0):
        raise ValueError(f"{kernel!r} has variance {variance}: it must be positive")
    near = float(kernel(np.array([[1e-13, 0.0]]), np.zeros((1, 2)))[0, 0])
    if near < 0.999 * variance:
        raise ValueError(
            f"{kernel!r} jumps at zero distance, by {variance - near:.3g}: "
            "take White out of the kernel and add its variance to noise_variance"
        )
    return variance


def _correlation_length(kernel: Kernel, axis: int, variance: float) -> float:
    """Distance along the axis (0 for x) at which the correlation first falls to exp(-1/2)."""
    distances = np.geomspace(1e-6, 1e7, 600)
    offsets = np.zeros((distances.size, 2))
    offsets[:, axis] = distances
    rho = kernel(offsets, np.zeros((1, 2)))[:, 0] / variance
    below = np.flatnonzero(rho < np.exp(-0.5))
    if below.size == 0 or rho[-1] > 1e-3:
        raise ValueError(
            f"{kernel!r} does not decay with distance: take constants out of it and use mean='constant'"
        )
    if below[0] == 0:
        raise ValueError(f"{kernel!r} has a length scale below 1e-6 m: give it in metres")
    i = int(below[0])
    fraction = (rho[i - 1] - np.exp(-0.5)) / (rho[i - 1] - rho[i])
    return float(distances[i - 1] * (distances[i] / distances[i - 1]) ** fraction)


def _reach(kernel: Kernel, axis: int, length: float, variance: float) -> float:
    """Distance after which the correlation stays below 1e-9, at most `REACH` correlation lengths."""
    distances = np.linspace(1.0, REACH, 261) * length
    offsets = np.zeros((distances.size, 2))
    offsets[:, axis] = distances
    rho = np.abs(kernel(offsets, np.zeros((1, 2)))[:, 0]) / variance
    above = np.flatnonzero(rho >= 1e-9)
    last = int(above[-1]) if above.size else 0
    return float(distances[min(last + 1, distances.size - 1)])


def _spectrum(kernel: Kernel, N: list[int], step: list[float]) -> Array:
    """(N_y, N_x) spectral weights of the kernel on the torus of N samples; they sum to k(0)."""
    offset = [np.fft.fftfreq(count, 1.0 / count) * size for count, size in zip(N, step, strict=True)]
    dx, dy = np.meshgrid(offset[0], offset[1])
    # Negative weights are round-off, or a covariance that has not died out at the edge of the torus.
    weights: Array = np.maximum(fft.fft2(_covariance(kernel, dx, dy)).real, 0.0)
    return weights / (N[0] * N[1])


def blocks_per_length(
    kernel: Kernel, length: tuple[float, float], variance: float, tolerance: float, information: float
) -> float | None:
    """The smallest q = l / h whose error is within `tolerance` for the information; None if k is rough.

    A sum of scales may need many blocks per correlation length, and below its finest scale the error falls
    off a cliff. A rough kernel has no such scale: its error falls as a power of h.
    """
    for per_length in (20, 48, 128):
        N = [fft.next_fast_len(14 * per_length)] * 2
        S = _spectrum(kernel, N, [length[0] / per_length, length[1] / per_length])
        f = _frequencies(N[0], per_length)  # cycles per correlation length
        # S is the weight of one cell of frequency; per squared cycle and l^2 that is S (N / per_length)^2.
        density = S * (N[0] / per_length) * (N[1] / per_length) / variance
        learned = density * information / (1.0 + density * information)
        budget = tolerance**2 * float((S * (1.0 - learned)).sum())

        def unresolved(q: float, weight: Array, S: Array = S, f: Array = f) -> float:
            gain = spectrum(f / q) ** 2 / gram_spectrum(f / q)
            return float((S * (1.0 - gain[:, None] * gain) * weight).sum())

        for q in np.geomspace(1.5, per_length / 3.0, 40):
            if unresolved(q, learned) <= budget:
                cliff = unresolved(q / 2.0, np.ones_like(S)) > 2.0**6 * unresolved(q, np.ones_like(S))
                return float(q) if cliff else None
        if falls_as_power(kernel, length):
            return None
    return None


def _mean_square_slope(frequency: Array) -> Array:
    """Mean square slope, per block, over that of the value, of a spline series of the given frequency."""
    shifted = frequency[..., None] + np.arange(-3, 4)
    power = np.sinc(shifted) ** (2 * ORDER)
    ratio: Array = ((2.0 * np.pi * shifted) ** 2 * power).sum(-1) / power.sum(-1)
    return ratio


def _autocorrelation(weights: Array) -> Array:
    """(N, 11) with sum_k w_k w_(k + d) for d = -5 ... 5."""
    out = np.zeros((weights.shape[0], 2 * DEGREE + 1))
    for a in range(ORDER):
        for b in range(ORDER):
            out[:, DEGREE + b - a] += weights[:, a] * weights[:, b]
    return out


def _frequencies(count: int, per_unit: int) -> Array:
    """(count,) of the discrete Fourier transform, in cycles per unit of so many samples."""
    return np.asarray(np.fft.fftfreq(count, 1.0 / per_unit), dtype=np.float64)


def _pad(values: Array, count: int) -> Array:
    out = np.zeros(count)
    out[: min(count, values.size)] = values[:count]
    return out
