"""Odds of a supposed pose: what counts as new evidence, and what says the same again."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.slam.hypotheses import PRIOR_LOG_ODDS, Hypothesis, log_odds_of, probabilities
from gpgmap_ros.slam.pose_belief import PoseBelief

HERE = PoseBelief(np.eye(4), 0.01 * np.eye(6))
P = 0.97


def after_one_submap(target: int = 7) -> Hypothesis:
    """Recognised in one submap of the map, with the probability P; the next submap begins."""
    item = Hypothesis(None, HERE)
    assert item.confirm(HERE, {target: P}, 1.0)
    item.settle(HERE)
    return item


def test_independent_ground_multiplies_the_odds() -> None:
    item = after_one_submap()
    item.confirm(HERE, {8: P}, 0.5)
    assert item.log_odds == pytest.approx(log_odds_of(P) + 0.5 * (log_odds_of(P) - PRIOR_LOG_ODDS))
    assert probabilities([item])[0] > 0.999


def test_the_same_place_of_the_map_does_not_speak_twice() -> None:
    """A valley that is the same along its floor is mistaken in the same way further on."""
    item = after_one_submap()
    for _ in range(5):
        item.confirm(HERE, {7: P}, 1.0)
        item.settle(HERE)
    assert probabilities([item])[0] == pytest.approx(P)
    item.confirm(HERE, {7: 0.999}, 1.0)
    assert probabilities([item])[0] == pytest.approx(0.999), "but may become surer by itself"


def test_another_place_of_the_map_counts_beside_one_that_has_spoken() -> None:
    item = after_one_submap()
    item.confirm(HERE, {7: 0.98, 9: 0.9}, 1.0)
    assert item.targets == (7, 9)
    assert item.log_odds == pytest.approx(log_odds_of(P) + log_odds_of(0.9) - PRIOR_LOG_ODDS)


def test_a_registration_that_is_rather_wrong_speaks_for_nothing() -> None:
    item = after_one_submap()
    item.confirm(HERE, {7: P, 8: 0.4}, 1.0)
    assert probabilities([item])[0] == pytest.approx(P)
    item.confirm(HERE, {8: 0.001}, 1.0)
    assert probabilities([item])[0] < P


def test_a_place_that_has_spoken_makes_up_for_misses() -> None:
    item = after_one_submap()
    item.confirm(HERE, {8: P}, 1.0)
    item.settle(HERE)
    before = item.log_odds
    for _ in range(2):
        item.miss(1.0)
        item.settle(HERE)
    assert item.log_odds < before
    item.confirm(HERE, {8: P}, 1.0)
    assert item.log_odds == pytest.approx(before)
