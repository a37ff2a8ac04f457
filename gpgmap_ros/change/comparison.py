"""`compare_maps`: two surveys of one ground in, what changed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array
from gp_core.grid import Grid
from gpgmap_ros.change.common_cells import CommonCells, Mask, lay_over
from gpgmap_ros.change.detection import CellTest, find_changed_cells
from gpgmap_ros.change.null_model import NullModel, estimate_null
from gpgmap_ros.change.patches import Footprint, Patch, find_footprints
from gpgmap_ros.change.volumes import Volumes, measure_volumes, volume_intervals
from gpgmap_ros.mapping import GPGMap

LEVEL = 0.05
DRAWS = 200
"""Of the error field: 95 % intervals of volumes from their quantiles."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from one survey to another. Layers are (rows, columns), NaN where the surveys cannot be compared.

    grid: of the layers; before, after: heights, `after` without the motion that was found
    difference: after - before, m; std: its standard deviation, 1.96 of which hold 95 % of unchanged cells
    p_value: probability of such a difference without change, of each cell alone
    q_value: false discovery rate over the whole map at which the cell is called changed
    change: 1 fill, -1 cut, 0 no change that could be told
    patches: largest volume first; fill, cut, net: (volume, lower, upper), m^3, of all patches together
    motion: (6,) x, y, z, roll, pitch, yaw of the second survey against the first, about `centre`, m and rad
    motion_std: (6,); aligned: whether the motion was removed
    floor_std: standard deviation on level ground that the two posteriors do not explain, m
    correlated_area: over which errors are alike, m^2; level: false discovery rate
    independent_ratio: standard deviation of the volume of all patches, in that of cells that err independently
    """

    grid: Grid
    before: Array
    after: Array
    difference: Array
    std: Array
    p_value: Array
    q_value: Array
    change: Array
    patches: tuple[Patch, ...]
    fill: tuple[float, float, float]
    cut: tuple[float, float, float]
    net: tuple[float, float, float]
    motion: Array
    motion_std: Array
    centre: Array
    aligned: bool
    floor_std: float
    correlated_area: float
    independent_ratio: float
    level: float

    @property
    def compared(self) -> Mask:
        """Cells that both surveys measured."""
        return np.isfinite(self.difference)

    @property
    def share_at_level(self) -> float:
        """Share of the cells whose own difference is significant at the level, without regard to the others."""
        return float((self.p_value[self.compared] < self.level).mean())


def compare_maps(
    before: GPGMap,
    after: GPGMap,
    T_before_after: Array | None = None,
    *,
    level: float = LEVEL,
    align: bool = True,
    draws: int = DRAWS,
    rng: np.random.Generator | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """What changed between two maps of one ground. NoCommonGround where they share too little of it.

    T_before_after: (4, 4) pose of the frame of `after` in that of `before`; one frame unless given
    level: false discovery rate, of cells and of patches; draws: of the error field
    align: remove the rigid motion between the surveys that unchanged ground shows; else it counts as change
    rng: the same one gives the same result; seeded with 0 unless given
    progress: told the share that is done, and what is under way
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1, got {level}")
    if draws < 20:
        raise ValueError(f"draws must be at least 20 for intervals of volumes, got {draws}")
    rng = np.random.default_rng(0) if rng is None else rng
    tell = progress or (lambda share, text: None)
    tell(0.0, "laying the maps over each other")
    common = lay_over(before, after, T_before_after)
    tell(0.05, "estimating the error of unchanged ground")
    model = estimate_null(common, rng, align)
    test = find_changed_cells(model, common.compared, level)
    footprints = find_footprints(test.changed, test.nearest, common.compared, common.known)
    volumes = measure_volumes(common, model, test, footprints, draws, rng, tell)
    return _assemble(common, model, test, footprints, volumes, level, align)


def _assemble(
    common: CommonCells,
    model: NullModel,
    test: CellTest,
    footprints: list[Footprint],
    measured: Volumes,
    level: float,
    align: bool,
) -> Comparison:
    def layer(values: Array) -> Array:
        out = np.full(common.compared.size, np.nan)
        out[model.index] = values
        return out.reshape(common.compared.shape)

    intervals, area = volume_intervals(measured.volumes, measured.errors), common.grid.resolution**2
    signs = np.array([item.sign for item in footprints])
    kept = np.flatnonzero((measured.false_rates <= level) & measured.told)
    change, called = layer(np.zeros(len(model.index))).ravel(), test.changed.ravel()
    for k in kept:
        item = footprints[k]
        own = item.cells[called[item.cells] & (item.sign * test.score.ravel()[item.cells] > 0.0)]
        change[own] = item.sign
    kept = kept[np.argsort(-np.abs(measured.volumes[kept]))]
    patches = tuple(_describe(common, measured, footprints[k], int(k), intervals[k]) for k in kept)
    groups = [kept[signs[kept] == 1], kept[signs[kept] == -1], kept]
    fill, cut, net = (_total(measured.volumes[g], measured.errors[:, g]) for g in groups)
    cells = np.concatenate([footprints[k].cells for k in kept]) if len(kept) else np.zeros(0, dtype=np.int64)
    factor = model.scale.normal_factor
    alone = factor * area * float(np.sqrt((measured.std.ravel()[cells] ** 2).sum()))
    together = float(measured.errors[:, kept].sum(axis=1).std()) if len(kept) else 0.0
    difference = layer(model.difference)
    return Comparison(
        grid=common.grid,
        before=common.before,
        after=np.where(common.compared, common.before + difference, common.after),
        difference=difference,
        std=layer(factor * model.std),
        p_value=layer(model.scale.p_values(model.difference / model.std)),
        q_value=np.where(common.compared, test.q, np.nan),
        change=change.reshape(common.compared.shape),
        patches=patches,
        fill=fill,
        cut=cut,
        net=net,
        motion=model.motion,
        motion_std=measured.motions.std(axis=0),
        centre=model.centre,
        aligned=align,
        floor_std=factor * float(np.sqrt(model.scale.factors[1])),
        correlated_area=area * model.correlation.correlated_cells(),
        independent_ratio=together / alone if alone else 1.0,
        level=level,
    )


def _describe(common: CommonCells, measured: Volumes, item: Footprint, k: int, interval: Array) -> Patch:
    d, area = measured.difference.ravel()[item.cells], common.grid.resolution**2
    y, x = np.divmod(item.cells, common.compared.shape[1])
    weight = np.maximum(item.sign * d, 0.0) + 1e-12
    return Patch(
        kind="fill" if item.sign > 0 else "cut",
        x=float(np.average(common.grid.x[x], weights=weight)),
        y=float(np.average(common.grid.y[y], weights=weight)),
        area=len(item.cells) * area,
        changed_area=item.changed * area,
        gap_area=int((~common.compared.ravel()[item.cells]).sum()) * area,
        volume=float(measured.volumes[k]),
        std=float(measured.errors[:, k].std()),
        interval=(float(interval[0]), float(interval[1])),
        mean=float(d.mean()),
        extreme=float(d[np.argmax(item.sign * d)]),
        false_rate=float(measured.false_rates[k]),
    )


def _total(volumes: Array, errors: Array) -> tuple[float, float, float]:
    """The sum of volumes (patches,), and the bounds of its interval. errors: (draws, patches)"""
    total = np.array([volumes.sum()])
    ((low, high),) = volume_intervals(total, errors.sum(axis=1, keepdims=True))
    return float(total[0]), float(low), float(high)
