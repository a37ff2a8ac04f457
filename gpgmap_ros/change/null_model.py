"""The error of a comparison where nothing changed: alignment, scale, correlation, estimated in turn.

Changed ground must not count as error, and error must not be taken for change. Ground is set aside where the
differences of many neighbours together lie far outside the distribution of all (`UNMISTAKABLE`); everything nearer
counts as error and makes the tails of the error heavier. What is not unmistakable is therefore called changed only
where errors of that size are rare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gp_core.arrays import Array
from gpgmap_ros.change.alignment import FitOperator, make_jacobian, make_operator
from gpgmap_ros.change.common_cells import CommonCells, Mask
from gpgmap_ros.change.error_correlation import Correlation, estimate_correlation
from gpgmap_ros.change.error_scale import ErrorScale, fit_scale, fit_tail

SCALES = (0.0, 1.0, 2.0, 4.0)
"""Cells, standard deviations of the windows over which differences are averaged to find change of any extent."""
ROUNDS = 4
FIT_STEPS = 3
"""Of the weights of the alignment, in each round."""
CLIP, UNMISTAKABLE = 20.0, 10.0
"""Standard deviations at which a difference is clipped before it is averaged, so that no single cell decides, and
robust ones of the average beyond which ground is left out of the error model."""
ROBUST_NU = 4.0
"""Degrees of freedom until what changed has been left out: it would pass for heavy tails."""
AROUND_SCORE, AROUND_CELLS, MARGIN_CELLS = 3.0, 6, 2
"""What is left out with it: neighbours that differ so much, up to so many cells away, and some cells around these.
Errors of a strip reach far, and must not be left out with a change that they touch."""
EIGHT = np.ones((3, 3), dtype=bool)


@dataclass(frozen=True, eq=False)
class NullModel:
    """index: (cells,) of the compared cells in the flattened map; difference: (cells,) after the alignment
    motion: (6,) that the fit found, about `centre`; operator: the fit, for draws of the error
    std: (cells,) scale of the error; volume_std: with the slopes of the steeper map
    normal: (rows, columns) normal scores of the differences, 0 where not compared
    stable: (rows, columns) cells that the model was estimated from
    tails: (sigma, nu) of the averaged normal scores, by `SCALES`
    gap_index, gap_difference, gap_std: as index, difference and volume_std, of cells that both maps know and that are
        not compared because one of them is too uncertain there
    """

    index: NDArray[np.int64]
    difference: Array
    motion: Array
    centre: Array
    operator: FitOperator
    scale: ErrorScale
    std: Array
    volume_std: Array
    normal: Array
    stable: Mask
    tails: tuple[tuple[float, float], ...]
    correlation: Correlation
    gap_index: NDArray[np.int64]
    gap_difference: Array
    gap_std: Array


@dataclass(frozen=True, eq=False)
class _Cells:
    """What the rounds share: compared cells, differences, Jacobian and covariates of the error's scale."""

    common: CommonCells
    index: NDArray[np.int64]
    difference: Array
    jacobian: Array
    covariates: Array
    of_volumes: Array
    centre: Array
    extent: float

    @classmethod
    def of(cls, common: CommonCells, compared: Mask, centre: Array | None = None) -> _Cells:
        """The cells of a mask. centre: of the motion; their middle unless given"""
        index = np.flatnonzero(compared)
        y, x = np.divmod(index, compared.shape[1])
        xy = np.column_stack([common.grid.x[x], common.grid.y[y]])
        height = 0.5 * (common.before + common.after)[compared]
        centre = np.array([*xy.mean(axis=0), height.mean()]) if centre is None else centre
        gradient = common.gradients.mean(axis=0)[:, compared].T
        jacobian = make_jacobian(xy - centre[:2], height - centre[2], gradient)
        slopes, curvatures = common.slopes[:, compared], common.curvatures[:, compared]
        # what changed has slopes of its own: they are no reason to doubt that it did, but its volume errs by them
        covariates, of_volumes = (
            np.stack([common.variance[compared], np.ones(len(index)), slope**2, curvature**2])
            for slope, curvature in (
                (slopes.min(axis=0), curvatures.min(axis=0)),
                (slopes.max(axis=0), curvatures.max(axis=0)),
            )
        )
        difference = (common.after - common.before)[compared]
        extent = max(float(np.abs(xy - centre[:2]).max(initial=0.0)), common.grid.resolution)
        return cls(common, index, difference, jacobian, covariates, of_volumes, centre, extent)

    def image(self, values: Array) -> Array:
        """(rows, columns), 0 where not compared."""
        out = np.zeros(self.common.compared.size)
        out[self.index] = values
        return out.reshape(self.common.compared.shape)


def estimate_null(common: CommonCells, rng: np.random.Generator, align: bool = True) -> NullModel:
    """The error model of two maps.

    align: remove the rigid motion between them; else the frames are taken as exact, and the motion as change
    """
    cells = _Cells.of(common, common.compared)
    gaps = _Cells.of(common, common.known & ~common.compared, cells.centre)
    d = cells.difference
    stable = np.ones(d.size, dtype=bool)
    r = d - np.median(d)
    scale = ErrorScale(np.zeros(4), ROBUST_NU)
    std = np.full(d.size, max(float(np.median(np.abs(r))) / 0.6745, 1e-9))
    for last in [False] * ROUNDS + [True]:
        for _ in range(FIT_STEPS):
            weights = (scale.nu + 1.0) / (scale.nu + (r / std) ** 2) / std**2 * stable
            operator = make_operator(cells.jacobian, weights, common.grid.resolution, cells.extent)
            r = operator.remainder(d)
        scale = fit_scale(r[stable], cells.covariates[:, stable], rng, None if last else ROBUST_NU)
        std = scale.std(cells.covariates)
        mask = cells.image(stable.astype(float)) > 0.0
        if not last:
            clipped = cells.image(np.clip(r / std, -CLIP, CLIP))
            averages = [average(clipped, common.compared, sigma) for sigma in SCALES[1:]]
            stable = ~set_aside(averages, mask)[common.compared]
    normal = cells.image(scale.normal_scores(r / std))
    tails = tuple(fit_tail(average(normal, common.compared, sigma)[mask], rng) for sigma in SCALES)
    correlation = estimate_correlation(normal, mask)
    motion = operator.motion(d)
    if not align:
        r, operator = d, operator.without_effect()
        normal = cells.image(scale.normal_scores(r / std))
    return NullModel(
        cells.index,
        r,
        motion,
        cells.centre,
        operator,
        scale,
        std,
        scale.std(cells.of_volumes),
        normal,
        mask,
        tails,
        correlation,
        gaps.index,
        gaps.difference - (motion @ gaps.jacobian if align else 0.0),
        scale.std(gaps.of_volumes),
    )


def average(values: Array, known: Mask, sigma: float) -> Array:
    """Means of the known values in Gaussian windows of `sigma` cells, 0 where not known."""
    if not sigma:
        return values
    total = ndimage.gaussian_filter(np.where(known, values, 0.0), sigma, truncate=3.0)
    weight = ndimage.gaussian_filter(known.astype(np.float64), sigma, truncate=3.0)
    return np.where(known, total / np.maximum(weight, 1e-9), 0.0)


def set_aside(averages: list[Array], stable: Mask) -> Mask:
    """Ground whose averaged differences are unmistakably no error, and what lies around it."""
    scores = [values / (np.median(np.abs(values[stable])) / 0.6745) for values in averages]
    far = np.max(np.abs(scores), axis=0) > UNMISTAKABLE
    near = far | (np.abs(scores[0]) > AROUND_SCORE)
    grown = ndimage.binary_dilation(far, EIGHT, iterations=AROUND_CELLS, mask=near)
    return np.asarray(ndimage.binary_dilation(grown, EIGHT, iterations=MARGIN_CELLS))
