"""The pose graph, put together from updates that name only what is new."""

from __future__ import annotations

import numpy as np
from graph_updates import update_of

from gpgmap_ros.slam.graph_view import MAX_TRACK, GraphView


def test_additions_follow_what_is_known() -> None:
    view = GraphView()
    view.whole(update_of([0, 1], [], complete=True))
    whole = view.whole(update_of([2], [(0, 2)], complete=False))
    expected = update_of([0, 1, 2], [(0, 2)], complete=True)
    assert whole.complete
    for name in ("ids", "poses", "pairs", "accepted", "stamps", "track"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name), err_msg=name)


def test_a_complete_update_replaces_what_is_known() -> None:
    view = GraphView()
    view.whole(update_of([0, 1, 2], [(0, 2)], complete=True))
    whole = view.whole(update_of([4, 5], [], complete=True))
    np.testing.assert_array_equal(whole.ids, [4, 5])
    np.testing.assert_array_equal(whole.stamps, [4000, 4500, 5000, 5500])
    assert whole.pairs.shape == (0, 2)
    assert whole.accepted.shape == (0,)


def test_what_was_given_out_does_not_change_later() -> None:
    view = GraphView()
    first = view.whole(update_of([0, 1], [], complete=True))
    view.whole(update_of([2], [], complete=False))
    np.testing.assert_array_equal(first.ids, [0, 1])


def test_all_else_is_passed_on_as_it_came() -> None:
    update = update_of([3], [], complete=False, problem="no solver", located=False, seconds=1.5)
    whole = GraphView().whole(update)
    assert (whole.newest, whole.problem, whole.located, whole.seconds) == (3, "no solver", False, 1.5)


def test_a_long_track_is_thinned_and_keeps_its_end() -> None:
    view = GraphView()
    view.whole(update_of([0], [], complete=True))
    for first in range(1, MAX_TRACK, 500):
        whole = view.whole(update_of(list(range(first, first + 500)), [], complete=False))
    assert MAX_TRACK // 3 < len(whole.stamps) <= MAX_TRACK + 1
    assert whole.stamps[-1] == 1000 * whole.ids[-1] + 500
    assert (np.diff(whole.stamps) > 0).all()
    np.testing.assert_allclose(whole.track[:, 0, 3], whole.stamps / 100.0)
