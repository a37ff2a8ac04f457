"""The screening of many submaps: its values are those of all poses, and it drops none that it should keep."""

from __future__ import annotations

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig, PosePrior
from gpgmap_ros.closure.registration.correlation import Spectra, make_search_grid
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.retrieval import ranking
from gpgmap_ros.closure.retrieval.coarse_search import (
    compute_exact_likelihoods,
    min_shared_weight,
    pack_source,
    pack_target,
)
from gpgmap_ros.closure.retrieval.kept_search import KeptSearch
from gpgmap_ros.closure.retrieval.ranking import Ranking
from gpgmap_ros.closure.retrieval.screening import (
    LOST_ENERGY,
    ScreeningIndex,
    possible_shifts,
    principal_components,
    shift_fields,
    split_parts,
)

CONFIG = ClosureConfig(threads=1)
PLACES = {3: (40.0, 40.0), 5: (100.0, 150.0), 7: (150.0, 60.0), 11: (200.0, 200.0)}


@pytest.fixture(scope="module")
def targets(world: World) -> dict[int | str, RegistrationMap]:
    return {id: make_registration_map(world.map_at(at, id)[0], CONFIG) for id, at in PLACES.items()}


@pytest.fixture(scope="module")
def visit(world: World) -> RegistrationMap:
    """Half of its ground is that of submap 7."""
    return make_registration_map(world.map_at((162.0, 68.0), 50, yaw=2.0)[0], CONFIG)


@pytest.mark.parametrize("cells", [16, 15])
def test_its_value_is_the_highest_of_all_yaws_and_shifts(
    visit: RegistrationMap, targets: dict[int | str, RegistrationMap], cells: int
) -> None:
    grid = make_search_grid(max(map_.radius for map_ in targets.values()), CONFIG, cells, yaw_step=15.0)
    source = pack_source(Spectra(visit, grid, CONFIG, detail=False))
    packed = [pack_target(Spectra(map_, grid, CONFIG, detail=False)) for map_ in targets.values()]
    values = ScreeningIndex(packed, 1).screen(source, grid, CONFIG.min_overlap)
    reach = grid.size - grid.side
    shifts = np.arange(-reach, reach + 1) % grid.size
    poses = np.stack(np.meshgrid(np.arange(len(grid.yaws)), shifts, shifts, indexing="ij"), -1).reshape(-1, 3)
    for value, target in zip(values, packed, strict=True):
        min_shared = float(min_shared_weight(source.area, target.area, grid, CONFIG.min_overlap))
        exact = compute_exact_likelihoods(source.fields, target.fields, poses, grid.size, min_shared).max()
        assert exact > 1.0
        assert value == pytest.approx(exact, rel=0.02)
    again = ScreeningIndex(packed, 2).screen(source, grid, CONFIG.min_overlap)
    np.testing.assert_array_equal(values, again)


def test_fields_move_by_the_shift_and_zeros_come_in() -> None:
    field = np.arange(1.0, 10.0, dtype=np.float32).reshape(1, 3, 3)
    (moved,) = shift_fields(field, np.array([[0, 0], [1, 0], [0, -2]]))
    assert moved.reshape(3, 3, 3).tolist() == [
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
        [[0, 0, 0], [1, 2, 3], [4, 5, 6]],
        [[3, 0, 0], [6, 0, 0], [9, 0, 0]],
    ]


def test_shifts_that_cannot_share_enough_are_left_out() -> None:
    weight = np.ones((4, 4), np.float32)
    shifts = possible_shifts(weight, weight, 3, 8.0)
    shared = (4 - np.abs(shifts)).prod(axis=1)
    assert len(shifts) == sum((4 - abs(y)) * (4 - abs(x)) >= 8 for y in range(-3, 4) for x in range(-3, 4))
    assert shared.min() >= 8


@pytest.mark.parametrize("cells", [6, 7])
def test_products_of_the_parts_give_those_of_a_field_and_of_its_reversal(cells: int) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 3, cells)).astype(np.float32)
    (a_even, a_odd), (b_even, b_odd) = split_parts(a), split_parts(b)
    assert (a_even.shape[1], a_odd.shape[1]) == ((cells + 1) // 2, cells // 2)
    p, q = a_even @ b_even.T, a_odd @ b_odd.T
    np.testing.assert_allclose(p + q, a @ b.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(p - q, a[:, ::-1] @ b.T, rtol=1e-5, atol=1e-6)


def test_components_hold_gentle_ground_as_well_as_steep() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(40, 6)) @ rng.normal(size=(6, 30))).astype(np.float32)
    rows[0] = 1e-3 * rng.normal(size=30)  # unlike the others, and a thousandth of them
    parts = split_parts(rows)
    bases = principal_components(parts, LOST_ENERGY)
    assert [basis.shape for basis in bases] == [(15, 7), (15, 7)]  # of six dimensions and of the one row
    for part, basis in zip(parts, bases, strict=True):
        np.testing.assert_allclose(part @ basis @ basis.T, part, rtol=0.0, atol=1e-2 * 1e-3)
    nothing = np.zeros((3, 6), np.float32)
    assert [len(basis) for basis in principal_components(split_parts(nothing), LOST_ENERGY)] == [3, 3]


def test_components_are_kept_where_the_energy_is() -> None:
    rng = np.random.default_rng(1)
    one = rng.normal(size=(20, 8)).astype(np.float32)
    even, odd = principal_components(split_parts(np.hstack([one, one[:, ::-1]])), LOST_ENERGY)
    assert (even.shape[1], odd.shape[1]) == (8, 0)  # symmetric rows have no odd part


def test_the_place_is_kept_and_a_submap_with_a_prior_always(
    visit: RegistrationMap, targets: dict[int | str, RegistrationMap]
) -> None:
    search = KeptSearch(CONFIG, 16, 12.0)
    everything = search.poses(visit, targets, {}, 3)
    assert list(search.poses(visit, targets, {}, 3, max_targets=4)) == list(everything)
    some = search.poses(visit, targets, {}, 3, max_targets=1)
    assert list(some) == [7]
    np.testing.assert_array_equal(some[7].poses, everything[7].poses)
    anywhere = PosePrior(np.eye(4), np.diag([1e6, 1e6, 1e6, 0.1, 0.1, 10.0]))
    assert set(search.poses(visit, targets, {11: anywhere}, 3, max_targets=1)) == {7, 11}


def test_the_index_follows_the_targets(
    visit: RegistrationMap, targets: dict[int | str, RegistrationMap]
) -> None:
    search = KeptSearch(CONFIG, 16, 12.0)
    assert list(search.poses(visit, targets, {}, 3, max_targets=1)) == [7]
    without = {name: map_ for name, map_ in targets.items() if name != 7}
    assert list(search.poses(visit, without, {}, 3, max_targets=1)) != [7]
    swapped = {3: targets[7], 5: targets[5], 7: targets[3], 11: targets[11]}  # other ground by the same names
    for name in (3, 7):
        search.forget(name)
    assert list(search.poses(visit, swapped, {}, 3, max_targets=1)) == [3]


def test_a_ranking_refines_no_more_than_its_shortlist(
    visit: RegistrationMap, targets: dict[int | str, RegistrationMap], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "SHORTLIST", 2)
    ranked = Ranking(CONFIG).rank(visit, targets, {})
    assert ranked[0].name == 7
    assert len(ranked) <= 2
