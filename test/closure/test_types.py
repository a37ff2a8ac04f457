"""The one record of a closure, and the old names that lead to it."""

from __future__ import annotations

import numpy as np
import pytest

import gpgmap_ros.closure as closure
from gpgmap_ros.closure import LoopClosure, PoseConstraint, Registration, find_consistent


def registration(accepted: bool) -> Registration:
    T = np.eye(4)
    T[0, 3] = 2.0
    return Registration(T, 0.1 * np.eye(6), 0.97, 12.0, accepted, "why", overlap=0.5, self_similarity=3.0)


def test_a_registration_becomes_a_closure_that_is_an_edge() -> None:
    found = registration(True)
    record = LoopClosure.from_registration(3, 8, found)
    assert record.pair == (record.target, record.source) == (3, 8)
    assert record.T_target_source is record.T_a_b is found.T_target_source
    assert record.covariance is found.covariance
    assert (record.probability, record.overlap, record.score) == (0.97, 0.5, 12.0)
    assert (record.accepted, record.registered, record.reason) == (True, True, "why")
    refused = LoopClosure.from_registration(3, 8, registration(False))
    assert not refused.accepted
    assert not refused.registered


def test_old_names_still_work_and_say_so() -> None:
    with pytest.warns(DeprecationWarning, match="PoseConstraint"):
        assert closure.Closure is PoseConstraint
    with pytest.warns(DeprecationWarning, match="find_consistent"):
        assert closure.consistent is find_consistent
    with pytest.warns(DeprecationWarning, match="self_similarity"):
        assert registration(True).repetition == 3.0
    with pytest.warns(DeprecationWarning, match=r"gpgmap_ros\.closure\.LoopCloser"):
        from gpgmap_ros.closure.session import LoopCloser
    assert LoopCloser is closure.LoopCloser
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = closure.nothing


def test_what_the_package_offers_is_there() -> None:
    assert all(getattr(closure, name) is not None for name in closure.__all__)
    assert {"register", "Registration", "ClosureDatabase", "LoopCloser", "LoopClosure"} <= set(
        closure.__all__
    )
