"""Which cells and which patches changed, with the false discovery rate held over the whole map.

Cells: differences are averaged over windows of several sizes, since a change over many cells can be certain where each
of them is not. The average of each size becomes a normal score by the error's own distribution of such averages, the
largest of them counts, and Benjamini and Hochberg (1995) choose the threshold. It holds its rate for positively
correlated errors as well (Benjamini and Yekutieli, 2001).

Patches: one wrong blob is many wrong cells, so that few cells in a hundred may be most of the patches. The number of
patches that errors alone cause above any height is counted in drawn error fields; a patch stays where the expected
share of false ones among all that reach its height is below the level (topological inference; Chumbley and Friston,
2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, special

from gp_core.arrays import Array
from gpgmap_ros.change.common_cells import Mask
from gpgmap_ros.change.error_scale import ErrorScale
from gpgmap_ros.change.null_model import EIGHT, SCALES, NullModel, average

SAME_DIRECTION = 1.0
"""Standard deviations that a cell and its neighbours must differ by: windows reach beyond the edges of a change."""


@dataclass(frozen=True, eq=False)
class CellTest:
    """Of all cells (rows, columns).

    score: largest normal score of the windows, with sign, 0 where not compared
    nearest: that of the second smallest window, by which patches grow
    q: false discovery rate at which the cell is called changed, 1 where not compared
    threshold: least score of a changed cell; infinite where none is
    """

    score: Array
    nearest: Array
    q: Array
    changed: Mask
    threshold: float


def find_changed_cells(model: NullModel, compared: Mask, level: float) -> CellTest:
    """The cells that changed. level: false discovery rate"""
    scores = []
    for sigma, (spread, nu) in zip(SCALES, model.tails, strict=True):
        values = average(model.normal, compared, sigma) / spread
        scores.append(ErrorScale(np.ones(1), nu).normal_scores(values))
    score = largest(scores)
    p = np.minimum(2.0 * len(SCALES) * special.ndtr(-np.abs(score[compared])), 1.0)
    q = np.ones(compared.shape)
    q[compared] = adjust_p_values(p)
    found = q <= level
    changed = found & (np.sign(score) * scores[1] > SAME_DIRECTION)
    threshold = float(np.abs(score[found]).min()) if found.any() else np.inf
    return CellTest(score, scores[1], q, changed, threshold)


def largest(scores: list[Array]) -> Array:
    """Of several scores of each cell the one farthest from 0."""
    stack = np.stack(scores)
    best = np.argmax(np.abs(stack), axis=0)
    return np.asarray(np.take_along_axis(stack, best[None], axis=0)[0])


def adjust_p_values(p: Array) -> Array:
    """q (cells,): the lowest false discovery rate at which each cell is called changed."""
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1.0, len(p) + 1.0)
    q = np.empty_like(p)
    q[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return q


class FalsePatches:
    """Counts the patches that errors alone cause, by their highest score, in fields that are drawn one by one."""

    def __init__(self, compared: Mask, threshold: float) -> None:
        self._compared, self._threshold = compared, threshold
        self._spreads: list[list[float]] = [[] for _ in SCALES]
        self._peaks: list[float] = []
        self._fields = 0

    def add(self, field: Array) -> None:
        """field: (rows, columns) normal scores of an error field"""
        self._fields += 1
        if not np.isfinite(self._threshold):
            return
        scores = []
        for sigma, spreads in zip(SCALES, self._spreads, strict=True):
            values = average(np.where(self._compared, field, 0.0), self._compared, sigma)
            spreads.append(float(np.median(np.abs(values[self._compared]))) / 0.6745)
            scores.append(values / np.mean(spreads))
        score = np.abs(largest(scores))
        labels, count = ndimage.label(score >= self._threshold, EIGHT)
        if count:
            self._peaks.extend(ndimage.maximum(score, labels, np.arange(1, count + 1)))

    def false_rates(self, peaks: Array) -> Array:
        """(patches,) expected share of false ones among the patches that reach each one's height."""
        false = np.array(self._peaks)
        order = np.argsort(-peaks)
        rates = np.array(
            [(false >= peak).sum() / max(self._fields, 1) / (peaks >= peak).sum() for peak in peaks]
        )
        monotone = np.minimum.accumulate(rates[order][::-1])[::-1] if len(peaks) else rates
        out = np.empty_like(rates)
        out[order] = monotone
        return out


def highest_scores(score: Array, changed: Mask, footprints: list[NDArray[np.int64]]) -> Array:
    """(patches,) the largest score of the changed cells of each."""
    flat, called = np.abs(score).ravel(), changed.ravel()
    return np.array([flat[cells[called[cells]]].max() for cells in footprints])
