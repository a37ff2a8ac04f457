"""Updates of the pose graph: what is told again, and what only once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_nodes import STEP, closure, node, shifted

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureConfig, LoopCloser
from gpgmap_ros.closure.session.session_file import write_session
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submaps import Submap, Track
from gpgmap_ros.slam.closure_updates import UpdateBuilder

CONFIG = ClosureConfig(threads=1, drift_position=0.1, drift_rotation=0.005)
BEFORE = 8


def flat_submap(id: int, drive: int = 1) -> Submap:
    """The next submap of the drive of `graph_nodes.node`: level ground, on which no place can be recognised."""
    level = {name: np.zeros((40, 40), dtype=np.float32) for name in ("elevation", "gradient_x", "gradient_y")}
    level |= {
        name: np.full((40, 40), 1e-4, dtype=np.float32)
        for name in ("variance", "gradient_x_variance", "gradient_y_variance")
    }
    ground = GPGMap(Grid((-10.0, -10.0), (40, 40), 0.5), level)
    track = Track(np.array([id * 1000, id * 1000 + 500]), np.array([np.eye(4), shifted(5.0)]))
    return Submap(id, drive, shifted(STEP * id), ground, id * 1000, id * 1000 + 900, STEP, "distance", track)


@pytest.fixture
def closer(tmp_path: Path) -> LoopCloser:
    """Eight submaps with one closure, as an earlier run left them."""
    found = {(0, 7): closure(0, 7, off=1.0), (2, 6): closure(2, 6, registered=False)}
    write_session(tmp_path / "closures.npz", [node(k) for k in range(BEFORE)], found, [], surfaces=False)
    return LoopCloser.load(tmp_path / "closures.npz", CONFIG)


def test_closures_of_earlier_runs_are_no_news(closer: LoopCloser) -> None:
    update = UpdateBuilder(closer).of_earlier_runs()
    assert update.earlier
    assert update.complete
    assert update.news == []
    np.testing.assert_array_equal(update.ids, range(BEFORE))
    np.testing.assert_array_equal(update.pairs, [(0, 7)])
    np.testing.assert_array_equal(update.accepted, [True])


def test_closures_that_were_not_told_are_news_once(closer: LoopCloser) -> None:
    builder = UpdateBuilder(closer)
    assert [(c.a, c.b) for c in builder.after([], 0.0).news] == [(0, 7)]
    closer.add(flat_submap(BEFORE))
    assert builder.after([], 0.0).news == []


def test_a_submap_that_moves_nothing_is_told_alone(closer: LoopCloser) -> None:
    builder = UpdateBuilder(closer)
    builder.of_earlier_runs()
    compared = closer.add(flat_submap(BEFORE))
    update = builder.after(compared, 0.0)
    assert not update.complete
    np.testing.assert_array_equal(update.ids, [BEFORE])
    np.testing.assert_allclose(update.poses[0], closer.pose(BEFORE))
    np.testing.assert_array_equal(update.stamps, [BEFORE * 1000, BEFORE * 1000 + 500])
    np.testing.assert_allclose(update.track[1], closer.pose(BEFORE) @ shifted(5.0))


def test_a_rejection_moves_poses_and_all_are_told(closer: LoopCloser) -> None:
    builder = UpdateBuilder(closer)
    builder.of_earlier_runs()
    closer.reject(0, 7)
    update = builder.after([], 0.0)
    assert update.complete
    np.testing.assert_array_equal(update.ids, range(BEFORE))
    np.testing.assert_array_equal(update.accepted, [False])
    np.testing.assert_allclose(update.poses[7], shifted(STEP * 7), atol=1e-6)


def test_a_new_drive_is_told_without_those_that_it_is_not_joined_to(closer: LoopCloser) -> None:
    builder = UpdateBuilder(closer)
    builder.of_earlier_runs()
    closer.add(flat_submap(BEFORE, drive=2))
    update = builder.after([], 0.0)
    assert update.complete
    assert not update.located
    np.testing.assert_array_equal(update.ids, [BEFORE])
    np.testing.assert_array_equal(update.stamps, [BEFORE * 1000, BEFORE * 1000 + 500])
