"""Ranking of many submaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World, pose_error

from gpgmap_ros.closure import ClosureConfig, PosePrior
from gpgmap_ros.closure.registration.pipeline import to_metres
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.retrieval import kept_search, ranking
from gpgmap_ros.closure.retrieval.kept_search import KeptSearch
from gpgmap_ros.closure.retrieval.ranking import Ranking
from gpgmap_ros.geometry import inverse

CONFIG = ClosureConfig(threads=1)


@pytest.fixture(scope="module")
def targets(world: World) -> dict[int | str, RegistrationMap]:
    places = {3: (40.0, 40.0), 7: (150.0, 60.0), 11: (200.0, 200.0)}
    return {id: make_registration_map(world.map_at(at, id)[0], CONFIG) for id, at in places.items()}


def test_the_place_is_ranked_first_at_its_pose(
    world: World, targets: dict[int | str, RegistrationMap]
) -> None:
    visit, T_visit = world.map_at((155.0, 64.0), 50, yaw=2.0)
    _, T_target = world.map_at((150.0, 60.0), 7)
    source = make_registration_map(visit, CONFIG)
    ranked = Ranking(CONFIG).rank(source, targets, {})
    assert ranked[0].name == 7
    assert [item.value for item in ranked] == sorted((item.value for item in ranked), reverse=True)
    T = to_metres(ranked[0].pose, source, targets[7])
    shift, yaw = pose_error(T, T_target @ inverse(T_visit), np.zeros(3))
    assert shift < 3.0
    assert yaw < 6.0


def test_what_is_remembered_changes_nothing(world: World, targets: dict[int | str, RegistrationMap]) -> None:
    source = make_registration_map(world.map_at((155.0, 64.0), 50, yaw=2.0)[0], CONFIG)
    ranked = Ranking(CONFIG)
    first = ranked.rank(source, targets, {})
    again = ranked.rank(source, targets, {})
    ranked.forget(7)
    anew = ranked.rank(source, targets, {})
    expected = [(item.name, item.value) for item in first]
    assert [(item.name, item.value) for item in again] == expected
    assert [(item.name, item.value) for item in anew] == expected
    assert ranked.rank(source, {}, {}) == []


def test_a_prior_that_excludes_every_pose_takes_a_submap_out(
    world: World, targets: dict[int | str, RegistrationMap]
) -> None:
    source = make_registration_map(world.map_at((155.0, 64.0), 50, yaw=2.0)[0], CONFIG)
    far = np.eye(4)
    far[0, 3] = 500.0
    prior = PosePrior(far, np.diag([1.0, 1.0, 1.0, 0.01, 0.01, 0.01]))
    assert 7 not in {item.name for item in Ranking(CONFIG).rank(source, targets, {7: prior})}


def test_a_search_remembers_what_was_used_last(
    world: World, targets: dict[int | str, RegistrationMap]
) -> None:
    source = make_registration_map(world.map_at((155.0, 64.0), 50, yaw=2.0)[0], CONFIG)
    bounded, unbounded = KeptSearch(CONFIG, 16, 12.0, 2), KeptSearch(CONFIG, 16, 12.0)
    for chosen in ([3, 7, 11], [7], [3], [11, 7]):
        some = {name: targets[name] for name in chosen}
        found = bounded.poses(source, some, {}, 3)
        expected = unbounded.poses(source, some, {}, 3)
        assert list(found) == list(expected)
        for name in found:
            np.testing.assert_array_equal(found[name].poses, expected[name].poses)
        assert len(bounded) <= 2
    assert len(unbounded) == 3
    bounded.forget(7)
    assert len(bounded) == 1


def test_small_queries_between_large_ones_cost_no_more(
    world: World, targets: dict[int | str, RegistrationMap], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A robot that tracks compares with few submaps, and one that searches with all: both are kept."""
    small, *_, large = ranking.LEVELS
    monkeypatch.setattr(ranking, "LEVELS", (replace(small, max_submaps=1), large))
    made = []
    pack = kept_search.pack_target
    monkeypatch.setattr(kept_search, "pack_target", lambda prepared: made.append(prepared) or pack(prepared))
    source = make_registration_map(world.map_at((155.0, 64.0), 50, yaw=2.0)[0], CONFIG)
    ranked = Ranking(CONFIG)
    for _ in range(2):
        assert ranked.rank(source, targets, {})[0].name == 7
        assert ranked.rank(source, {7: targets[7]}, {})[0].name == 7
    assert len(made) == len(targets) + 1
