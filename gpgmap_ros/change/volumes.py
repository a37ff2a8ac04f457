"""Volumes of patches, and how far they err: drawn error fields, checked against the sums over unchanged ground.

A volume is the sum of the differences over a patch. Four things make it err:

- the errors of its cells, which are alike over some distance, and the alignment: joint draws of both;
- what a stationary correlation does not know of, such as errors along a crease or a strip: the differences of
  unchanged ground are summed over windows of several sizes, and where these sums vary by more than those of drawn
  fields, the errors of patches of that size are scaled up (the patches method; Hugonnet et al., 2022);
- errors of this place: the ring around a patch should show none, and what it shows is likely to go on under the patch;
- ground that the surveys measured badly or not at all. A change does not end at a gap: cells of the patch there count
  with the difference of the posteriors and its large variance, cells that a survey did not see with the mean difference
  around them and its spread. Both err as one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, stats

from gp_core.arrays import Array
from gpgmap_ros.change.common_cells import CommonCells, Mask
from gpgmap_ros.change.detection import CellTest, FalsePatches, highest_scores
from gpgmap_ros.change.error_correlation import draw_fields
from gpgmap_ros.change.null_model import EIGHT, NullModel
from gpgmap_ros.change.patches import Footprint

VOLUME_LEVEL = 0.95
WINDOWS = (3, 5, 9, 15, 25, 41)
"""Cells along the squares over which differences are summed; those beyond a third of the map are left out."""
KNOWN_SHARE = 0.9
"""Of a window, that must be unchanged ground."""
RING_CELLS, RING_SHARE = 2, 0.7
"""Cells around a patch that show the errors of its place, and the part of their volume that is its standard error."""
BRIDGE = 2.0
"""Cells, standard deviation of the window around an unseen cell whose differences stand for its own."""


@dataclass(frozen=True, eq=False)
class Volumes:
    """Of footprints: volumes (patches,), m^3; errors (draws, patches); false_rates (patches,); motions (draws, 6)

    told: (patches,) whether the part of each that was compared is more than its errors
    difference, std: (rows, columns) of all cells that volumes are summed over, m
    """

    volumes: Array
    errors: Array
    false_rates: Array
    told: Mask
    motions: Array
    difference: Array
    std: Array


def volume_intervals(volumes: Array, errors: Array) -> Array:
    """(patches, 2) that hold the volumes (patches,) with `VOLUME_LEVEL`. errors: (draws, patches)"""
    tail = 0.5 * (1.0 - VOLUME_LEVEL)
    low, high = np.quantile(errors, [tail, 1.0 - tail], axis=0) if volumes.size else np.zeros((2, 0))
    return np.column_stack([volumes - high, volumes - low])


def measure_volumes(
    common: CommonCells,
    model: NullModel,
    test: CellTest,
    footprints: list[Footprint],
    draws: int,
    rng: np.random.Generator,
    tell: Callable[[float, str], None],
) -> Volumes:
    """The volumes of footprints with draws of their errors."""
    area = common.grid.resolution**2
    layer, std = bridge_unseen(common, model)
    flat, flat_std = layer.ravel(), std.ravel()
    place = np.full(common.compared.size, -1, dtype=np.int64)
    place[model.index] = np.arange(len(model.index))
    measured = [place[item.cells[place[item.cells] >= 0]] for item in footprints]
    gap_std = np.array([flat_std[item.cells[place[item.cells] < 0]].sum() for item in footprints])
    false, check = FalsePatches(common.compared, test.threshold), WindowSums(model, common.compared)
    errors, motions = np.zeros((draws, len(footprints))), np.zeros((draws, 6))
    for k, field in enumerate(draw_fields(model.correlation, common.compared.shape, draws, rng)):
        score = model.scale.from_normal(field.ravel()[model.index])
        motions[k] = model.operator.motion(model.std * score)
        moved = motions[k] @ model.operator.jacobian
        e = model.volume_std * score - moved
        errors[k] = [area * e[cells].sum() for cells in measured]
        check.add(score - moved / model.std)
        false.add(field)
        tell(0.2 + 0.75 * (k + 1) / draws, f"error field {k + 1} of {draws}")
    sizes = np.array([len(cells) for cells in measured], dtype=np.float64)
    errors *= check.factors(sizes)
    rings = area * ring_sums(common.compared, layer, footprints)
    errors += RING_SHARE * np.abs(rings) * rng.standard_normal((draws, len(footprints)))
    compared = np.array([area * model.difference[cells].sum() for cells in measured])
    # a patch whose volume may be none, or of the other sign, is nothing that could be told
    told = np.prod(volume_intervals(compared, errors), axis=1) > 0.0
    in_gaps = model.scale.from_normal(rng.standard_normal((draws, len(footprints))))
    errors += area * gap_std * in_gaps
    peaks = highest_scores(test.score, test.changed, [item.cells for item in footprints])
    volumes = np.array([area * flat[item.cells].sum() for item in footprints])
    return Volumes(volumes, errors, false.false_rates(peaks), told, motions, layer, std)


def ring_sums(compared: Mask, difference: Array, footprints: list[Footprint]) -> Array:
    """(patches,) the differences around each, summed over the cells that belong to no patch."""
    free = compared.copy()
    for item in footprints:
        free.ravel()[item.cells] = False
    out = np.zeros(len(footprints))
    for k, item in enumerate(footprints):
        rows, columns = np.divmod(item.cells, compared.shape[1])
        box = np.s_[
            max(rows.min() - RING_CELLS, 0) : rows.max() + RING_CELLS + 1,
            max(columns.min() - RING_CELLS, 0) : columns.max() + RING_CELLS + 1,
        ]
        own = np.zeros_like(compared[box])
        own[rows - box[0].start, columns - box[1].start] = True
        ring = ndimage.binary_dilation(own, EIGHT, iterations=RING_CELLS) & free[box]
        out[k] = difference[box][ring].sum()
    return out


def bridge_unseen(common: CommonCells, model: NullModel) -> tuple[Array, Array]:
    """Difference and standard deviation (rows, columns) of every cell, also where a survey has a gap."""
    difference, std = np.full((2, common.compared.size), np.nan)
    difference[model.index], std[model.index] = model.difference, model.volume_std
    difference[model.gap_index], std[model.gap_index] = model.gap_difference, model.gap_std
    difference, std = difference.reshape(common.compared.shape), std.reshape(common.compared.shape)
    seen = np.isfinite(difference)
    weight = ndimage.gaussian_filter(seen.astype(np.float64), BRIDGE)
    mean, square = (
        ndimage.gaussian_filter(np.where(seen, values, 0.0), BRIDGE) / np.maximum(weight, 1e-12)
        for values in (difference, difference**2 + std**2)
    )
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    return np.where(seen, difference, mean), np.where(seen, std, spread)


class WindowSums:
    """How much more the errors of unchanged ground add up over windows than those of drawn fields do."""

    def __init__(self, model: NullModel, compared: Mask) -> None:
        self._model, self._compared = model, compared
        self._windows = [w for w in WINDOWS if 3 * w <= min(compared.shape)] or [WINDOWS[0]]
        self._drawn: NDArray[np.float64] = np.zeros(len(self._windows))
        self._fields = 0
        self._full = [self._whole(compared, w) for w in self._windows]

    def add(self, score: Array) -> None:
        """score: (cells,) an error field in shares of the scale, after the alignment"""
        self._fields += 1
        image = self._image(score)
        self._drawn += [self._mean_square(image, self._compared, *item) for item in self._items()]

    def factors(self, sizes: Array) -> Array:
        """(patches,) by which the drawn errors of patches of so many cells are to be scaled, at least 1."""
        model = self._model
        image = self._image(np.where(model.stable[self._compared], model.difference / model.std, 0.0))
        sides, found = [], []
        for k, w in enumerate(self._windows):
            whole = self._whole(model.stable, w)
            count = whole.sum() / w**2  # windows that do not overlap
            if count < 4.0 or not self._drawn[k]:
                continue
            drawn = self._drawn[k] / self._fields
            ratio = np.sqrt(self._mean_square(image, model.stable, w, whole) / drawn)
            # few windows say little about how far their sums vary
            sides.append(float(w))
            found.append(ratio * stats.t.ppf(0.975, count) / stats.norm.ppf(0.975))
        if not found:
            return np.ones(len(sizes))
        return np.asarray(np.maximum(np.interp(np.sqrt(sizes), sides, found), 1.0))

    def _items(self) -> list[tuple[int, Mask]]:
        return list(zip(self._windows, self._full, strict=True))

    def _image(self, values: Array) -> Array:
        out = np.zeros(self._compared.size)
        out[self._model.index] = values
        return out.reshape(self._compared.shape)

    @staticmethod
    def _whole(mask: Mask, w: int) -> Mask:
        """Middles of the windows that lie in the mask, nearly all of them."""
        share = ndimage.uniform_filter(mask.astype(np.float64), w, mode="constant")
        return np.asarray(share >= KNOWN_SHARE)

    @staticmethod
    def _mean_square(image: Array, mask: Mask, w: int, whole: Mask) -> float:
        means = ndimage.uniform_filter(np.where(mask, image, 0.0), w, mode="constant")
        return float(np.mean(means[whole] ** 2)) if whole.any() else 0.0
