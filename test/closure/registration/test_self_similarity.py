"""Ground that repeats itself: how much is measured on the map itself, and counts against a closure."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World, fractal
from scipy.ndimage import gaussian_filter

from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.closure.registration.probability import MAX_SURPLUS, log_odds, ranking_score
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.registration.verification import count_independent
from gpgmap_ros.closure.types import Evidence

CONFIG = ClosureConfig()
SIZE = 256


@pytest.fixture(scope="module")
def ditches() -> World:
    """Straight ditches of one profile that cross at right angles, at irregular distances, in almost level ground."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:SIZE, :SIZE].astype(float)
    z = 0.05 * gaussian_filter(rng.standard_normal((SIZE, SIZE)), 4.0, mode="wrap") * 14.0
    for axis in (x, y):
        for at in np.cumsum(rng.uniform(18.0, 40.0, 8)):
            z -= np.exp(-(((axis - at) / 2.0) ** 2))
    return World(z)


def test_ditches_repeat_themselves_and_fractal_ground_does_not(ditches: World) -> None:
    crossing = make_registration_map(ditches.map_at((110.0, 120.0), 1)[0], CONFIG)
    hills = make_registration_map(World(fractal(11)).map_at((100.0, 100.0), 1)[0], CONFIG)
    measured = SelfSimilarity(CONFIG).measure(hills)
    assert measured < 20.0  # the right pose has 200 nats
    assert SelfSimilarity(CONFIG).measure(crossing) > 1.5 * measured


def test_crossings_are_not_taken_for_each_other(ditches: World) -> None:
    rng = np.random.default_rng(3)
    maps = [(ditches.map_at(tuple(c), k)[0], c) for k, c in enumerate(rng.uniform(30.0, 220.0, (9, 2)))]
    apart = [(a, b) for k, (a, p) in enumerate(maps) for b, q in maps[k + 1 :] if np.hypot(*(p - q)) > 48.0]
    assert len(apart) > 20
    found = [register(a, b) for a, b in apart]
    assert not [f.reason for f in found if f.accepted]
    tempting = [f for f in found if f.evidence and log_odds(f.evidence, CONFIG) > 3.0]
    assert tempting, "no pair needed the test: choose other ditches"
    assert all(f.self_similarity > 0.0 for f in tempting)
    assert any("different places of this ground are alike" in f.reason for f in found)


def test_what_is_the_same_is_found_there_all_the_same(ditches: World) -> None:
    source, T_source = ditches.map_at((110.0, 120.0), 21, yaw=0.6)
    target, T_target = ditches.map_at((114.0, 117.0), 22, yaw=-1.9)
    found = register(source, target)
    assert found.accepted, found.reason
    truth = T_target @ np.linalg.inv(T_source)
    assert np.linalg.norm((found.T_target_source - truth)[:2, 3]) < 0.5


def test_it_is_measured_once_and_forgotten_with_its_surface(ditches: World, monkeypatch) -> None:
    surface = make_registration_map(ditches.map_at((60.0, 70.0), 4)[0], CONFIG)
    similarity = SelfSimilarity(CONFIG)
    first = similarity.measure(surface)
    monkeypatch.setattr("gpgmap_ros.closure.registration.self_similarity.largest_surplus", lambda *_: 1e9)
    assert similarity.measure(surface) == first
    assert SelfSimilarity(replace(CONFIG, min_overlap=0.3)).measure(surface) == 1e9
    gone = weakref.ref(surface)
    del surface
    gc.collect()
    assert gone() is None


def test_independent_cells_of_a_field() -> None:
    rng = np.random.default_rng(1)
    white = rng.standard_normal((1, 60, 60))
    w = np.ones((60, 60))
    assert count_independent(w, white) == pytest.approx(1800.0, rel=0.1)  # of all cells, half: see there
    smooth = gaussian_filter(white[0], 3.0)[None]
    # a Gaussian of 3 cells: its autocorrelation exp(-s^2 / 36) squared sums to 18 pi cells
    assert count_independent(w, smooth) == pytest.approx(3600.0 / (18.0 * np.pi), rel=0.4)
    assert count_independent(w, np.full((1, 60, 60), 3.0)) == 0.0


def test_evidence_beyond_enough_still_decides_between_poses(pair) -> None:
    found = register(pair[0], pair[1]).evidence
    assert isinstance(found, Evidence)
    much = replace(found, surplus=MAX_SURPLUS + 10.0)
    more = replace(found, surplus=MAX_SURPLUS + 30.0)
    assert log_odds(much, CONFIG) == log_odds(more, CONFIG)
    assert ranking_score(more, CONFIG) > ranking_score(much, CONFIG)
    assert log_odds(much, CONFIG, self_similarity=15.0) < log_odds(much, CONFIG)
