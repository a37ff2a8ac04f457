"""Correlation of two maps at all yaws and all shifts, by FFT.

At a yaw and a shift, the weighted correlation of the two slope fields over what they share is

    rho = sum w (a - mean a) . (b - mean b) / sqrt(sum w |a - mean a|^2  sum w |b - mean b|^2),    w = w_a w_b,

with a the rotated source, b the target. Every sum is a cross-correlation, so that one inverse FFT gives it at all
shifts (Padfield, 2012, for scalar images). Removing the means makes rho blind to an error in roll and pitch; a slope
turns with its map, so that a ridge can't match a valley as it can where only steepness is compared. The likelihood
ratio of "same ground" against "unrelated ground", for Gaussian fields, is

    L = -(sum w) log(1 - rho^2),                                                                   rho > 0,

which weighs how alike against how much is shared. There are two bands, all relief and detail alone: on ridges the large
forms agree in many places, and detail tells them apart; on noisy ground only the large forms are left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import gaussian_filter

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.registration_map import Field, RegistrationMap

Spectrum = NDArray[np.complex64]

FINEST_STRIDE = 2.0
"""Cells of the map per cell of the search grid, at least: the refinement finds the rest."""
ROOM = 1.75
"""Side of the periodic grid over that of a map: shifts up to 3/4 of a map do not wrap around."""
BATCH = 180_000
"""Cells of the grid, over all sums and yaws, that are transformed at once: they stay in the processor's cache."""


@dataclass(frozen=True)
class SearchGrid:
    """Common frame of a search. stride: cells of the map per cell of the grid; size: periodic side, in its cells;
    side: of the part that holds a map; step: between yaws; yaws: (K,) that are tried, the second half of them half a
    turn after the first."""

    stride: float
    size: int
    side: int
    step: float
    yaws: Array


def make_search_grid(
    radius: float,
    config: ClosureConfig,
    cells: int | None = None,
    around: tuple[float, float] | None = None,
    yaw_step: float | None = None,
) -> SearchGrid:
    """The canvas for maps of up to this radius, in cells.

    cells, yaw_step: across a map at most, and degrees, instead of `config.search_cells` and `config.yaw_step`
    around: (yaw, width) limits the yaws of the first half to within `width` of `yaw`; all of them unless given
    """
    cells = cells or config.search_cells
    stride = max(FINEST_STRIDE, 2.0 * radius / (cells - 1))
    side = int(np.ceil(2.0 * radius / stride)) + 1
    half = max(int(np.ceil(180.0 / (yaw_step or config.yaw_step))), 1)
    step = np.pi / half
    first = np.arange(half) * step
    if around is not None and 2 * (few := int(np.ceil(around[1] / step))) + 1 < half:
        first = around[0] + np.arange(-few, few + 1) * step
    yaws = np.concatenate([first, first + np.pi])
    return SearchGrid(stride, fft.next_fast_len(int(ROOM * side), real=True), side, step, yaws)


class Spectra:
    """The fields of one map on a search grid, and their spectra, computed when first asked for.

    The fields are w, then w |g|^2, w g_x, w g_y for each band: F = 1 + 3 bands of them.
    detail: whether the band of detail is wanted besides that of all relief
    """

    def __init__(
        self,
        surface: RegistrationMap,
        grid: SearchGrid,
        config: ClosureConfig,
        threads: int | None = None,
        detail: bool = True,
    ) -> None:
        self.surface, self.grid, self._threads = surface, grid, threads or config.threads
        self._turns = config.use_gradient
        self._weight, x, y = smooth_relief(surface, grid, config)
        x, y = (
            np.where(self._weight > 0.0, part - np.average(part, weights=self._weight), 0.0)
            for part in (x, y)
        )
        bands = [(x, y)]
        if config.use_gradient and detail:
            bands.append(remove_local_mean(self._weight, x, y, config.detail_cells))
        self._x, self._y = (np.stack(parts) for parts in zip(*bands, strict=True))

    @property
    def bands(self) -> int:
        return len(self._x)

    @cached_property
    def still(self) -> Spectrum:
        """(F, P, P/2 + 1) spectra of the fields as they are: the target's side."""
        return np.asarray(self._spectra(np.zeros(1))[0])

    @cached_property
    def reflected(self) -> Spectrum:
        """`still`, for a source half a turn on.

        Half a turn reflects the grid: F becomes conj(F) times a phase, and the vectors change sign. The phase goes
        to the target's side, once for all yaws.
        """
        return np.asarray(self.still * reflection_phase(self.grid))

    @cached_property
    def rotated(self) -> Spectrum:
        """(K/2, F, P, P/2 + 1) the same at the first half of the yaws: the source's side."""
        return self._spectra(self.grid.yaws[: len(self.grid.yaws) // 2])

    def fields(self, yaws: Array) -> Field:
        """(len(yaws), F, P, P) the fields rotated about the middle of the map."""
        grid = self.grid
        bands = Bands(self._weight, self._x, self._y, self.surface.centre, self._turns)
        return np.asarray(rotate_fields(bands, yaws, Lattice(grid.stride, grid.side, grid.size)))

    def _spectra(self, yaws: Array) -> Spectrum:
        P, count = self.grid.size, 1 + 3 * self.bands
        out = np.empty((len(yaws), count, P, P // 2 + 1), np.complex64)
        chunk = batch_size(count, P)

        def fill(start: int) -> None:
            some = yaws[start : start + chunk]
            out[start : start + len(some)] = fft.rfft2(self.fields(some), workers=1)

        in_parallel(fill, range(0, len(yaws), chunk), self._threads)
        return out


def reflection_phase(grid: SearchGrid) -> Spectrum:
    """(P, P/2 + 1) of `Spectra.reflected`."""
    k_y, k_x = fft.fftfreq(grid.size)[:, None], fft.rfftfreq(grid.size)[None, :]
    return np.asarray(np.exp(2j * np.pi * (k_y + k_x) * (grid.side - 1)), np.complex64)


def half_spectrum_weights(columns: int) -> Array:
    """(columns // 2 + 1,) how many columns of a spectrum each one of its half stands for: two, but for the first and,
    of an even number, the last."""
    weights = np.full(columns // 2 + 1, 2.0)
    weights[0] = 1.0
    if columns % 2 == 0:
        weights[-1] = 1.0
    return weights


def batch_size(fields: int, size: int) -> int:
    """Yaws that are transformed at once, for so many fields of a search grid of this size."""
    return max(BATCH // (fields * size**2), 1)


def smooth_relief(
    surface: RegistrationMap, grid: SearchGrid, config: ClosureConfig
) -> tuple[Field, Field, Field]:
    """Weight, x and y component of all relief, smoothed to the search grid."""
    if config.use_gradient:
        x, y = surface.slope_x, surface.slope_y
    else:
        x, y = surface.height, np.zeros_like(surface.height)
    blur = 0.5 * grid.stride
    weight = gaussian_filter(surface.weight, blur, mode="constant")
    floor = np.maximum(weight, 1e-6)
    weight = np.where(surface.weight > 0.0, weight, 0.0)
    smooth = [
        np.asarray(gaussian_filter(surface.weight * part, blur, mode="constant") / floor, dtype=np.float32)
        for part in (x, y)
    ]
    return weight, smooth[0], smooth[1]


def remove_local_mean(weight: Field, x: Field, y: Field, cells: float) -> tuple[Field, Field]:
    """The components less their weighted mean over so many cells: detail."""
    total = np.maximum(gaussian_filter(weight, cells, mode="constant"), 1e-6)
    trusted = weight > 0.0
    detail = [part - gaussian_filter(weight * part, cells, mode="constant") / total for part in (x, y)]
    return np.where(trusted, detail[0], 0.0), np.where(trusted, detail[1], 0.0)


def likelihoods(
    source: Spectra, target: Spectra, min_overlap: float, threads: int, remove_mean: bool = True
) -> Field:
    """(bands, K, P, P) L at every yaw of the search grid and every shift; 0 where too little is shared or rho <= 0.

    remove_mean: over what is shared, from all relief; a coarse search can do with the means over the whole maps, which
    are away already, for half the cost
    """
    grid = source.grid
    P, half = grid.size, len(grid.yaws) // 2
    min_shared = np.float32(min_overlap * min(source.surface.area, target.surface.area) / grid.stride**2)
    bands = min(source.bands, target.bands)
    rotated, still, reflected = source.rotated, target.still, target.reflected
    out = np.empty((bands, 2 * half, P, P), np.float32)
    chunk = batch_size(1 + 3 * bands + 4 * remove_mean, P)

    def fill(start: int) -> None:
        a = rotated[start : start + chunk]
        for offset, b, conjugate in ((0, still, True), (half, reflected, False)):
            sums = products(a, b, bands, remove_mean, conjugate)
            sums = fft.irfft2(sums, s=(P, P), workers=1, overwrite_x=True)
            score(sums, remove_mean, min_shared, out, offset + start)

    in_parallel(fill, range(0, half, chunk), threads)
    return out


@compiled()
def products(
    a: Spectrum, b: Spectrum, bands: int, remove_mean: bool, conjugate: bool
) -> Spectrum:  # pragma: no cover
    """(K, S, P, Q) spectra of N, then E_a, E_b, C of each band, then the sums of a_x, a_y, b_x, b_y of the first.

    conjugate: of a, at the yaws that were transformed; half a turn later, a is as it is and its vectors change sign
    """
    K, _, P, Q = a.shape
    out = np.empty((K, 1 + 3 * bands + (4 if remove_mean else 0), P, Q), np.complex64)
    sign = np.float32(1.0 if conjugate else -1.0)
    for k in range(K):
        for i in range(P):
            for j in range(Q):
                w_a, w_b = a[k, 0, i, j], b[0, i, j]
                w_a = np.conj(w_a) if conjugate else w_a
                out[k, 0, i, j] = w_a * w_b
                for band in range(bands):
                    f = 1 + 3 * band
                    e, x, y = a[k, f, i, j], a[k, f + 1, i, j], a[k, f + 2, i, j]
                    if conjugate:
                        e, x, y = np.conj(e), np.conj(x), np.conj(y)
                    x, y = sign * x, sign * y
                    out[k, f, i, j] = e * w_b
                    out[k, f + 1, i, j] = w_a * b[f, i, j]
                    out[k, f + 2, i, j] = x * b[f + 1, i, j] + y * b[f + 2, i, j]
                    if remove_mean and band == 0:
                        m = 1 + 3 * bands
                        out[k, m, i, j] = x * w_b
                        out[k, m + 1, i, j] = y * w_b
                        out[k, m + 2, i, j] = w_a * b[2, i, j]
                        out[k, m + 3, i, j] = w_a * b[3, i, j]
    return out


@compiled()
def score(
    sums: Field, remove_mean: bool, min_shared: float, out: Field, first: int
) -> None:  # pragma: no cover
    """L from the sums of K yaws, into `out` (bands, yaws, P, P) from the yaw `first` on."""
    bands, _, P, _ = out.shape
    K = sums.shape[0]
    for k in range(K):
        for i in range(P):
            for j in range(P):
                n = sums[k, 0, i, j]
                for band in range(bands):
                    out[band, first + k, i, j] = 0.0
                    if n < min_shared:
                        continue
                    f = 1 + 3 * band
                    e_a, e_b, c = sums[k, f, i, j], sums[k, f + 1, i, j], sums[k, f + 2, i, j]
                    if remove_mean and band == 0:
                        m = 1 + 3 * bands
                        a_x, a_y = sums[k, m, i, j], sums[k, m + 1, i, j]
                        b_x, b_y = sums[k, m + 2, i, j], sums[k, m + 3, i, j]
                        e_a -= (a_x * a_x + a_y * a_y) / n
                        e_b -= (b_x * b_x + b_y * b_y) / n
                        c -= (a_x * b_x + a_y * b_y) / n
                    # Sums that are round-off of larger ones say nothing.
                    if c <= 0.0 or e_a <= 1e-4 * sums[k, f, i, j] or e_b <= 1e-4 * sums[k, f + 1, i, j]:
                        continue
                    rho2 = min(c * c / (e_a * e_b), np.float32(0.9999))
                    out[band, first + k, i, j] = -n * np.log(np.float32(1.0) - rho2)


class Bands(NamedTuple):
    """Fields of a map. weight: (rows, columns); x, y: (bands, rows, columns); centre: (2,) to rotate about
    is_vector: x and y are components of a vector, which rotates with the map."""

    weight: Field
    x: Field
    y: Field
    centre: Array
    is_vector: bool


class Lattice(NamedTuple):
    """stride, side and size as of a SearchGrid."""

    stride: float
    side: int
    size: int


@compiled()
def rotate_fields(fields: Bands, yaws: Array, lattice: Lattice) -> Field:  # pragma: no cover
    """(K, F, P, P) w, then w |g|^2, w g_x, w g_y per band, of a map rotated about its centre; zero beyond it."""
    weight, x, y, centre, turns = fields
    stride, side, size = lattice
    bands, ny, nx = x.shape
    out = np.zeros((yaws.size, 1 + 3 * bands, size, size), np.float32)
    middle = 0.5 * (side - 1)
    for k in range(yaws.size):
        c, s = np.cos(yaws[k]), np.sin(yaws[k])
        for i in range(side):
            v = (i - middle) * stride
            for j in range(side):
                u = (j - middle) * stride
                px, py = c * u + s * v + centre[0], -s * u + c * v + centre[1]
                if px < 0.0 or py < 0.0 or px > nx - 1 or py > ny - 1:
                    continue
                ix, iy = min(int(px), nx - 2), min(int(py), ny - 2)
                fx, fy = px - ix, py - iy
                w_00 = (1.0 - fy) * (1.0 - fx) * weight[iy, ix]
                w_01 = (1.0 - fy) * fx * weight[iy, ix + 1]
                w_10 = fy * (1.0 - fx) * weight[iy + 1, ix]
                w_11 = fy * fx * weight[iy + 1, ix + 1]
                w = w_00 + w_01 + w_10 + w_11
                if w <= 0.0:
                    continue
                out[k, 0, i, j] = w
                for b in range(bands):
                    gx = w_00 * x[b, iy, ix] + w_01 * x[b, iy, ix + 1]
                    gx += w_10 * x[b, iy + 1, ix] + w_11 * x[b, iy + 1, ix + 1]
                    gy = w_00 * y[b, iy, ix] + w_01 * y[b, iy, ix + 1]
                    gy += w_10 * y[b, iy + 1, ix] + w_11 * y[b, iy + 1, ix + 1]
                    out[k, 1 + 3 * b, i, j] = (gx * gx + gy * gy) / w
                    out[k, 2 + 3 * b, i, j] = c * gx - s * gy if turns else gx
                    out[k, 3 + 3 * b, i, j] = s * gx + c * gy if turns else gy
    return out
