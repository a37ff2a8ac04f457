"""Odds of a pose, alone and beside rivals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.closure.registration.octaves import OCTAVES
from gpgmap_ros.closure.registration.probability import (
    VerifiedPose,
    compare_fits,
    log_odds,
    logistic,
    rival_probability,
    terms,
)
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.types import Evidence

CONFIG = ClosureConfig(threads=1)


@pytest.fixture(scope="module")
def found(pair: tuple) -> Evidence:
    evidence = register(pair[0], pair[1], CONFIG).evidence
    assert evidence is not None
    return evidence


def test_more_evidence_never_lowers_the_odds(found: Evidence) -> None:
    for change in ({"surplus": 5.0}, {"ratio": 0.5}, {"white": 20.0}, {"noise_share": 0.3}):
        assert log_odds(replace(found, **change), CONFIG) <= log_odds(found, CONFIG)
    assert terms(found, CONFIG).shape == (5,)
    assert log_odds(found, CONFIG, self_similarity=1000.0) < log_odds(found, CONFIG)


def test_logistic_is_bounded_for_any_odds() -> None:
    assert logistic(0.0) == 0.5
    assert logistic(1e9) == 1.0
    assert 0.0 <= logistic(-1e9) < 1e-300


def test_fits_are_compared_octave_by_octave() -> None:
    n = np.full(OCTAVES + 1, 50.0)
    good, bad = np.column_stack([np.full(4, 0.9), n]), np.column_stack([np.full(4, 0.5), n])
    expected = 4 * 25.0 * np.log((1 - 0.25) / (1 - 0.81)) / np.sqrt(200.0)
    assert compare_fits(bad, good) == pytest.approx(expected)
    assert compare_fits(good, bad) == pytest.approx(-expected)


def test_a_rival_that_fits_as_well_counts_in_full(world: World, found: Evidence) -> None:
    map_ = make_registration_map(world.map_at((100.0, 100.0), 1)[0], CONFIG)
    t = np.array([*map_.centre, 0.0])
    best = VerifiedPose(Alignment(np.eye(3), t, t), found, 5.0)
    assert rival_probability(best, [best], map_, map_, CONFIG) == pytest.approx(logistic(5.0))
    shifted = Alignment(np.eye(3), t + np.array([4.0, 0.0, 0.0]), t)
    worse = VerifiedPose(shifted, found, 5.0)
    assert rival_probability(best, [worse], map_, map_, CONFIG) < 0.01
    hopeless = replace(best, log_odds=-10.0)
    assert rival_probability(best, [hopeless], map_, map_, CONFIG) == 0.0
