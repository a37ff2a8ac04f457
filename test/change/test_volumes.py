"""Volumes of patches: what they err by, and what lies in gaps."""

from __future__ import annotations

import numpy as np
import pytest
from made_maps import SHAPE, H, make_errors, make_ground, make_map, mound
from scipy.ndimage import gaussian_filter

from gpgmap_ros.change import compare_maps
from gpgmap_ros.change.common_cells import lay_over
from gpgmap_ros.change.null_model import estimate_null
from gpgmap_ros.change.patches import Footprint, find_footprints
from gpgmap_ros.change.volumes import WindowSums, ring_sums, volume_intervals


def with_layers(gpgmap, **layers):
    merged = {**{name: gpgmap[name] for name in gpgmap.layers}, **layers}
    return type(gpgmap)(gpgmap.grid, {name: layer.astype(np.float32) for name, layer in merged.items()})


def surveys(seed: int, change: np.ndarray):
    rng = np.random.default_rng(seed)
    ground = make_ground(rng)
    return make_map(ground + make_errors(rng)), make_map(ground + make_errors(rng) + change)


def test_a_change_does_not_end_at_a_gap() -> None:
    """Half of a mound lies where the later survey is uncertain: its volume counts, with that uncertainty."""
    before, after = surveys(21, mound(0.8, 11.0, 9.0, 1.6))
    found = []
    for factor in (100.0, 2500.0):
        variance = after["variance"].copy()
        variance[40:50, 55:60] *= factor
        found.append(compare_maps(before, with_layers(after, variance=variance), draws=20).patches[0])
    for patch in found:
        assert patch.gap_area == pytest.approx(50 * H**2)
        assert patch.interval[0] < 0.8 < patch.interval[1]
        assert patch.volume > 0.65  # half of it without the gap
    assert found[1].std > 1.5 * found[0].std


def test_ground_that_was_not_seen_is_bridged() -> None:
    before, after = surveys(22, mound(0.8, 11.0, 9.0, 1.6))
    names = ("elevation", "gradient_x", "gradient_y")
    unseen = {name: after[name].copy() for name in names}
    for layer in unseen.values():
        layer[43:47, 53:57] = np.nan
    patch = compare_maps(before, with_layers(after, **unseen), draws=30).patches[0]
    assert patch.gap_area == pytest.approx(16 * H**2)
    assert patch.interval[0] < 0.8 < patch.interval[1]


def test_patches_do_not_reach_beyond_the_ground() -> None:
    changed = np.zeros((30, 30), dtype=bool)
    changed[10:15, :5] = True
    known = np.ones(changed.shape, dtype=bool)
    known[:, 20:] = False
    score = np.where(changed, 9.0, 0.0)
    (item,) = find_footprints(changed, score, known, known)
    rows, columns = np.divmod(item.cells, 30)
    assert (rows.min(), rows.max(), columns.max()) == (8, 16, 6)
    edge = np.roll(changed, 14, axis=1)
    (item,) = find_footprints(edge, np.roll(score, 14, axis=1), known, known)
    assert (item.cells % 30).max() == 19


def test_sums_over_unchanged_ground_correct_the_draws() -> None:
    """Fields with a longer correlation than is drawn: their sums over windows vary by more, and the factor says so."""
    rng = np.random.default_rng(23)
    ground = make_ground(rng)
    maps = make_map(ground + make_errors(rng, sigma=4.0)), make_map(ground + make_errors(rng, sigma=4.0))
    common = lay_over(*maps)
    model = estimate_null(common, rng)
    check = WindowSums(model, common.compared)
    for _ in range(10):
        field = gaussian_filter(rng.standard_normal(SHAPE), 1.0, mode="wrap")
        check.add((field / field.std()).ravel()[model.index])
    small, large = check.factors(np.array([4.0, 200.0]))
    assert small < 1.6
    # sums of 200 cells: the ratio of the correlation lengths, less what the window cuts off
    assert 2.0 < large < 5.0


def test_factors_never_make_errors_smaller() -> None:
    rng = np.random.default_rng(24)
    maps = surveys(24, np.zeros(SHAPE))
    common = lay_over(*maps)
    model = estimate_null(common, rng)
    check = WindowSums(model, common.compared)
    check.add(10.0 * np.ones(len(model.index)))
    assert (check.factors(np.array([10.0, 100.0, 1000.0])) == 1.0).all()


def test_patches_whose_volume_may_be_none_are_not_called() -> None:
    errors = np.random.default_rng(25).standard_normal((400, 2))
    intervals = volume_intervals(np.array([1.0, 5.0]), errors)
    assert intervals[0, 0] < 0.0 < intervals[0, 1]
    assert intervals[1, 0] == pytest.approx(5.0 - 1.96, abs=0.3)


def test_the_ring_around_a_patch_shows_the_errors_of_its_place() -> None:
    compared = np.ones((20, 20), dtype=bool)
    compared[:, 15:] = False
    difference = np.full(compared.shape, 0.5)
    rows, columns = np.mgrid[8:12, 10:14]
    patch = Footprint((rows * 20 + columns).ravel(), 4, 1)
    neighbour = Footprint(np.array([7 * 20 + 10]), 1, 1)
    # 8 x 8 cells without the patch, its neighbour, and the last column, which was not compared
    sums = ring_sums(compared, difference, [patch, neighbour])
    assert sums[0] == pytest.approx(0.5 * (8 * 7 - 16 - 1))
