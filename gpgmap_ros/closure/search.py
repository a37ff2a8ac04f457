"""Where could two maps show the same ground? All yaws and all shifts, by FFT.

At a yaw and a shift, the weighted correlation of the two slope fields over what they share is

    rho = sum w (a - mean a) . (b - mean b) / sqrt(sum w |a - mean a|^2  sum w |b - mean b|^2),    w = w_a w_b,

with a the rotated source, b the target. Every sum is a cross-correlation, so that one inverse FFT gives it at all
shifts (Padfield, 2012, for scalar images). Removing the means makes rho blind to an error in roll and pitch; a slope
turns with its map, so that a ridge can't match a valley as it can where only steepness is compared. Poses are ranked by
the likelihood ratio of "same ground" against "unrelated ground", for Gaussian fields

    L = -(sum w) log(1 - rho^2),                                                                   rho > 0,

which weighs how alike against how much is shared. The search runs on two bands, all relief and detail alone: on ridges
the large forms agree in many places, and detail tells them apart; on noisy ground only the large forms are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import gaussian_filter

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.surface import Field, Surface

Array = NDArray[np.float64]
Spectrum = NDArray[np.complex64]

FINEST_STRIDE = 2.0
"""Cells of the map per cell of the search, at least: the refinement finds the rest."""
ROOM = 1.75
"""Side of the periodic canvas over that of a map: shifts up to 3/4 of a map do not wrap around."""
CHUNK = 9
"""Yaws per batch: what a batch needs stays in the processor's cache."""
NEAR_CELLS, NEAR_YAW = 4.0, np.deg2rad(8.0)
"""Poses closer than this, in cells of the map and yaw, are the same candidate."""


@dataclass(frozen=True)
class Candidate:
    """A pose to look at: target = R(yaw) (source - source centre) + target centre + shift, all in cells.

    likelihood: L of this pose in the band in which it was found
    """

    yaw: float
    shift: Array
    likelihood: float


@dataclass(frozen=True)
class Canvas:
    """Common frame of a search. stride: cells of the map per cell of the canvas; size: periodic side, in its cells;
    side: of the part that holds a map; yaws: (K,) that are tried, the second half half a turn after the first."""

    stride: float
    size: int
    side: int
    yaws: Array


def canvas_for(radius: float, config: ClosureConfig, cells: int | None = None) -> Canvas:
    """The canvas for maps of up to this radius, in cells; `cells` across instead of `config.search_cells`."""
    cells = cells or config.search_cells
    stride = max(FINEST_STRIDE, 2.0 * radius / (cells - 1))
    side = int(np.ceil(2.0 * radius / stride)) + 1
    half = max(int(np.ceil(180.0 / config.yaw_step)), 1)
    return Canvas(
        stride, fft.next_fast_len(int(ROOM * side), real=True), side, np.arange(2 * half) * np.pi / half
    )


class Prepared:
    """The fields of one surface on a canvas, and their spectra, computed when first asked for."""

    def __init__(
        self, surface: Surface, canvas: Canvas, config: ClosureConfig, threads: int | None = None
    ) -> None:
        self.surface, self.canvas, self._threads = surface, canvas, threads or config.threads
        self._bands = [relief(surface, canvas, config)]
        if config.use_gradient:
            self._bands.append(detail(surface, self._bands[0], config))

    @cached_property
    def still(self) -> list[Spectrum]:
        """Per band (4, P, P/2 + 1): spectra of w, w |g|^2, w g_x, w g_y, not turned: the target's side."""
        return [spectra[0] for spectra in self._spectra(np.zeros(1))]

    @cached_property
    def turned(self) -> list[Spectrum]:
        """Per band (K/2, 4, P, P/2 + 1): the same at the first half of the yaws: the source's side."""
        return self._spectra(self.canvas.yaws[: len(self.canvas.yaws) // 2])

    def _spectra(self, yaws: Array) -> list[Spectrum]:
        canvas, centre = self.canvas, self.surface.centre
        P = canvas.size
        out = [np.empty((len(yaws), 4, P, P // 2 + 1), np.complex64) for _ in self._bands]

        def fill(part: tuple[int, int]) -> None:
            (weight, x, y, turns), some = self._bands[part[0]], yaws[part[1] : part[1] + CHUNK]
            fields = turned_fields(weight, x, y, centre, some, canvas.stride, canvas.side, P, turns)
            out[part[0]][part[1] : part[1] + len(some)] = fft.rfft2(fields, workers=1)

        parts = [(band, start) for band in range(len(out)) for start in range(0, len(yaws), CHUNK)]
        in_parallel(fill, parts, self._threads)
        return out


def in_parallel(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> list[Any]:
    """`work` of every item, in order. What it runs in numba, numpy and FFTs goes on in several threads at once."""
    items = list(items)
    if threads == 1 or len(items) == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


Band = tuple[Field, Field, Field, bool]


def relief(surface: Surface, canvas: Canvas, config: ClosureConfig) -> Band:
    """All relief, smoothed to the canvas: weight, x and y components, and whether they turn with the map."""
    if config.use_gradient:
        x, y = surface.slope_x, surface.slope_y
    else:
        x, y = surface.height, np.zeros_like(surface.height)
    blur = 0.5 * canvas.stride
    weight = gaussian_filter(surface.weight, blur, mode="constant")
    floor = np.maximum(weight, 1e-6)
    weight = np.where(surface.weight > 0.0, weight, 0.0)
    x = gaussian_filter(surface.weight * x, blur, mode="constant") / floor
    y = gaussian_filter(surface.weight * y, blur, mode="constant") / floor
    return weight, x, y, config.use_gradient


def detail(surface: Surface, band: Band, config: ClosureConfig) -> Band:
    """The relief that is left after its mean over `detail_cells` is taken away."""
    weight, x, y, turns = band
    total = np.maximum(gaussian_filter(weight, config.detail_cells, mode="constant"), 1e-6)
    trusted = weight > 0.0
    x = x - gaussian_filter(weight * x, config.detail_cells, mode="constant") / total
    y = y - gaussian_filter(weight * y, config.detail_cells, mode="constant") / total
    return weight, np.where(trusted, x, 0.0), np.where(trusted, y, 0.0), turns


def search(source: Prepared, target: Prepared, config: ClosureConfig) -> list[Candidate]:
    """The most promising poses, best first, at most `config.candidates` per band."""
    found = []
    for band in range(len(source.turned)):
        scores = likelihoods(source, target, band, config.min_overlap, config.threads)
        found += peaks(scores, source.canvas, config.candidates)
    distinct: list[Candidate] = []
    for candidate in sorted(found, key=lambda c: -c.likelihood):
        if not any(same_place(candidate, other) for other in distinct):
            distinct.append(candidate)
    return distinct


def same_place(a: Candidate, b: Candidate) -> bool:
    turn = abs((a.yaw - b.yaw + np.pi) % (2.0 * np.pi) - np.pi)
    return bool(turn < NEAR_YAW / 2.0 and np.hypot(*(a.shift - b.shift)) < NEAR_CELLS / 2.0)


def likelihoods(source: Prepared, target: Prepared, band: int, min_overlap: float, threads: int) -> Field:
    """(K, P, P) L at every yaw of the canvas and every shift; 0 where too little is shared or rho <= 0."""
    canvas = source.canvas
    P, half = canvas.size, len(canvas.yaws) // 2
    least = min_overlap * min(source.surface.area, target.surface.area) / canvas.stride**2
    turned, still = source.turned[band], target.still[band]
    # Half a turn reflects the canvas: F becomes conj(F) times a phase, and the vectors change sign. The phase goes
    # to the target's side, once for all yaws.
    k_y, k_x = fft.fftfreq(P)[:, None], fft.rfftfreq(P)[None, :]
    phase = np.exp(2j * np.pi * (k_y + k_x) * (canvas.side - 1)).astype(np.complex64)
    reflected = still * phase
    out = np.empty((2 * half, P, P), np.float32)

    def fill(start: int) -> None:
        chunk = turned[start : start + CHUNK]
        for offset, a, b, sign in ((0, np.conj(chunk), still, 1.0), (half, chunk, reflected, -1.0)):
            sums = fft.irfft2(products(a, b, np.float32(sign), band == 0), s=(P, P), workers=1)
            score(sums, np.float32(least), out[offset + start : offset + start + len(chunk)])

    in_parallel(fill, range(0, half, CHUNK), threads)
    return out


@njit(cache=True, nogil=True)
def products(a: Spectrum, b: Spectrum, sign: float, remove_mean: bool) -> Spectrum:  # pragma: no cover
    """(K, 8 or 4, P, Q) spectra of: N, E_a, E_b, C, then the sums of a_x, a_y, b_x, b_y over what is shared."""
    K, _, P, Q = a.shape
    out = np.empty((K, 8 if remove_mean else 4, P, Q), np.complex64)
    for k in range(K):
        for i in range(P):
            for j in range(Q):
                w, e, x, y = a[k, 0, i, j], a[k, 1, i, j], sign * a[k, 2, i, j], sign * a[k, 3, i, j]
                out[k, 0, i, j] = w * b[0, i, j]
                out[k, 1, i, j] = e * b[0, i, j]
                out[k, 2, i, j] = w * b[1, i, j]
                out[k, 3, i, j] = x * b[2, i, j] + y * b[3, i, j]
                if remove_mean:
                    out[k, 4, i, j] = x * b[0, i, j]
                    out[k, 5, i, j] = y * b[0, i, j]
                    out[k, 6, i, j] = w * b[2, i, j]
                    out[k, 7, i, j] = w * b[3, i, j]
    return out


@njit(cache=True, nogil=True)
def score(sums: Field, least: float, out: Field) -> None:  # pragma: no cover
    """L from the sums, into `out` (K, P, P)."""
    K, S, P, _ = sums.shape
    for k in range(K):
        for i in range(P):
            for j in range(P):
                out[k, i, j] = 0.0
                n = sums[k, 0, i, j]
                if n < least:
                    continue
                e_a, e_b, c = sums[k, 1, i, j], sums[k, 2, i, j], sums[k, 3, i, j]
                if S == 8:
                    a_x, a_y, b_x, b_y = (
                        sums[k, 4, i, j],
                        sums[k, 5, i, j],
                        sums[k, 6, i, j],
                        sums[k, 7, i, j],
                    )
                    e_a -= (a_x * a_x + a_y * a_y) / n
                    e_b -= (b_x * b_x + b_y * b_y) / n
                    c -= (a_x * b_x + a_y * b_y) / n
                # Sums that are round-off of larger ones say nothing.
                if c <= 0.0 or e_a <= 1e-4 * sums[k, 1, i, j] or e_b <= 1e-4 * sums[k, 2, i, j]:
                    continue
                rho2 = min(c * c / (e_a * e_b), np.float32(0.9999))
                out[k, i, j] = -n * np.log(np.float32(1.0) - rho2)


@njit(cache=True, nogil=True)
def turned_fields(
    weight: Field,
    x: Field,
    y: Field,
    centre: Array,
    yaws: Array,
    stride: float,
    side: int,
    size: int,
    turns: bool,
) -> Field:  # pragma: no cover
    """(K, 4, P, P) w, w |g|^2, w g_x, w g_y of a surface turned about its centre; zero beyond it."""
    ny, nx = weight.shape
    out = np.zeros((yaws.size, 4, size, size), np.float32)
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
                w = gx = gy = 0.0
                for a in range(2):
                    for b in range(2):
                        share = (fy if a else 1.0 - fy) * (fx if b else 1.0 - fx) * weight[iy + a, ix + b]
                        w += share
                        gx += share * x[iy + a, ix + b]
                        gy += share * y[iy + a, ix + b]
                if w <= 0.0:
                    continue
                out[k, 0, i, j] = w
                out[k, 1, i, j] = (gx * gx + gy * gy) / w
                out[k, 2, i, j] = c * gx - s * gy if turns else gx
                out[k, 3, i, j] = s * gx + c * gy if turns else gy
    return out


def peaks(scores: Field, canvas: Canvas, count: int) -> list[Candidate]:
    """The highest local maxima of L, at most `count`, none within `NEAR_CELLS` and `NEAR_YAW` of a higher one."""
    K, P, _ = scores.shape
    best = scores.max(axis=0)
    reach = max(1, round(NEAR_CELLS / canvas.stride))
    reach_yaw = max(1, round(NEAR_YAW / (canvas.yaws[1] - canvas.yaws[0])))
    near = np.arange(-reach, reach + 1)
    found: list[Candidate] = []
    scores = scores.copy()
    for _ in range(count):
        i, j = np.unravel_index(int(np.argmax(best)), best.shape)
        k = int(np.argmax(scores[:, i, j]))
        value = float(scores[k, i, j])
        if value <= 0.0:
            break
        dy, dx = (int(d) - P if d >= P / 2 else int(d) for d in (i, j))
        found.append(Candidate(float(canvas.yaws[k]), np.array([dx, dy]) * canvas.stride, value))
        yaws = (k + np.arange(-reach_yaw, reach_yaw + 1)) % K
        rows, columns = (i + near) % P, (j + near) % P
        scores[np.ix_(yaws, rows, columns)] = 0.0
        best[np.ix_(rows, columns)] = scores[:, rows[:, None], columns].max(axis=0)
    return found
