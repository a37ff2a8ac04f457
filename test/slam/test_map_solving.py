"""The map solved beside the clouds: the same map, and the same gate, as where each waits for the other."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fast_mapping import fast_config

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.slam import MappingPipeline

SECOND = 1_000_000_000
SMALL = {"mapping.size_x": 6.0, "mapping.size_y": 6.0, "mapping.resolution": 0.2, "submap.enabled": False}


def cloud(rng: np.random.Generator, n: int = 3000, wall: float | None = None) -> np.ndarray:
    xy = rng.uniform(-2.5, 2.5, (n, 2))
    z = 0.2 * np.sin(xy[:, 0]) - 1.0 + rng.normal(0.0, 0.02, n)
    if wall is not None:
        z[(np.abs(xy) < 0.5).all(axis=1)] = wall
    return np.column_stack([xy, z]).astype(np.float32)


def pipelines(config: Config) -> tuple[MappingPipeline, MappingPipeline]:
    return MappingPipeline(config), MappingPipeline(config, solved_beside=True)


def solve(pipeline: MappingPipeline):
    task = pipeline.map_to_solve()
    solved = task.solve()
    solved = task.renew() or solved
    assert pipeline.look_at(solved)
    return solved.gpgmap


@pytest.mark.parametrize("kernel", ["default", "rbf"])
def test_it_is_the_same_map(kernel: str) -> None:
    config = with_settings(Config() if kernel == "default" else fast_config(), SMALL)
    rng = np.random.default_rng(0)
    waiting, beside = pipelines(config)
    for k in range(6):
        T, points = np.eye(4), cloud(rng)
        T[0, 3] = 0.4 * k  # the window moves
        for pipeline in (waiting, beside):
            pipeline.add_cloud(points, T, (k + 1) * SECOND // 10)
        if k % 2:
            one, other = waiting.gpgmap(), solve(beside)
            assert other.stamp == one.stamp
            assert other.grid == one.grid
            np.testing.assert_array_equal(other.known, one.known)
            scale = np.sqrt(np.nanmax(one.layers["variance"]))
            np.testing.assert_allclose(other.layers["elevation"], one.layers["elevation"], atol=0.02 * scale)
            np.testing.assert_allclose(other.layers["variance"], one.layers["variance"], rtol=0.03)


def test_the_first_map_is_no_surer_than_the_renewed_one() -> None:
    rng = np.random.default_rng(2)
    # With learned noise the renewed map may have another level of it too, and so other heights.
    _, beside = pipelines(with_settings(Config(), {**SMALL, "mapping.learn_noise": False}))
    left = 0
    for k in range(5):
        beside.add_cloud(cloud(rng), np.eye(4), (k + 1) * SECOND)
        task = beside.map_to_solve()
        first, renewed = task.solve().gpgmap, task.renew()
        if renewed is None:
            continue
        left += 1
        known, other = first.known, renewed.gpgmap
        assert other.known[known].all()
        np.testing.assert_array_equal(first.layers["elevation"][known], other.layers["elevation"][known])
        ratio = first.layers["variance"][known] / other.layers["variance"][known]
        assert ratio.min() > 0.98
        assert np.median(ratio) > 1.05
        assert task.renew() is None
    assert left > 0


def test_clouds_may_be_added_while_it_is_solved() -> None:
    """The map that was given away does not change under the solver's hands."""
    rng = np.random.default_rng(1)
    waiting, beside = pipelines(with_settings(fast_config(), SMALL))
    for k in range(2):
        points = cloud(rng)
        waiting.add_cloud(points, np.eye(4), (1 + k) * SECOND)
        beside.add_cloud(points, np.eye(4), (1 + k) * SECOND)
        task = beside.map_to_solve()
        if k == 0:
            task.solve()

    def add_more() -> None:
        for k in range(20):
            beside.add_cloud(cloud(rng, 20000), np.eye(4), (3 + k) * SECOND)

    thread = threading.Thread(target=add_more)
    thread.start()
    solved = task.solve()
    thread.join()
    expected = waiting.gpgmap()
    assert solved.gpgmap.stamp == expected.stamp == 2 * SECOND
    np.testing.assert_allclose(solved.gpgmap.layers["variance"], expected.layers["variance"], rtol=0.02)
    later = beside.map_to_solve().solve().gpgmap
    assert np.median(later.layers["variance"]) < 0.3 * np.median(expected.layers["variance"])


def test_clouds_are_compared_with_the_same_surface_until_it_lacks_ground_or_the_map_has_grown() -> None:
    rng = np.random.default_rng(3)
    pipeline = MappingPipeline(with_settings(fast_config(), SMALL), solved_beside=True)

    def near(n: int) -> np.ndarray:
        return cloud(rng, n) * np.float32([0.6, 0.6, 1.0])

    pipeline.add_cloud(near(3000), np.eye(4), 10 * SECOND)
    solve(pipeline)
    pipeline.add_cloud(near(1000), np.eye(4), 20 * SECOND)
    assert not pipeline.wants_surface  # a quarter is new, on ground that is known
    pipeline.add_cloud(near(2500), np.eye(4), 30 * SECOND)
    assert pipeline.wants_surface
    solve(pipeline)
    pipeline.add_cloud(cloud(rng, 500), np.eye(4), 30 * SECOND + SECOND // 2)
    assert not pipeline.wants_surface  # some ground is new, but the surface is not old
    pipeline.add_cloud(near(10), np.eye(4), 40 * SECOND)
    assert pipeline.wants_surface
    solve(pipeline)
    pipeline.add_cloud(near(10), np.eye(4), 50 * SECOND)
    assert not pipeline.wants_surface


def test_the_gate_compares_with_what_was_solved_and_not_with_what_was_forgotten_since() -> None:
    config = with_settings(fast_config(), {**SMALL, "gate.confirmations": 2})
    held = []
    for renewed in (True, False):
        rng = np.random.default_rng(2)
        pipeline = MappingPipeline(config, solved_beside=True)
        assert not pipeline.wants_surface
        pipeline.add_cloud(cloud(rng), np.eye(4), SECOND)
        assert pipeline.wants_surface
        solve(pipeline)
        assert not pipeline.wants_surface
        changed = cloud(rng, wall=-0.2)
        assert pipeline.add_cloud(changed, np.eye(4), 2 * SECOND).held > 10
        task = pipeline.map_to_solve()  # of the old ground
        assert pipeline.add_cloud(changed, np.eye(4), 3 * SECOND).released > 3
        if renewed:
            assert pipeline.look_at(task.solve())
        held.append(pipeline.add_cloud(changed, np.eye(4), 4 * SECOND).held)
    assert held[0] == held[1]


def test_a_map_that_is_no_more_is_not_looked_at() -> None:
    rng = np.random.default_rng(3)
    pipeline = MappingPipeline(with_settings(fast_config(), SMALL), solved_beside=True)
    assert pipeline.map_to_solve() is None
    pipeline.add_cloud(cloud(rng), np.eye(4), SECOND)
    task = pipeline.map_to_solve()
    pipeline.reset()
    assert not pipeline.look_at(task.solve())
    pipeline.add_cloud(cloud(rng, wall=0.5), np.eye(4), 2 * SECOND)
    solved = pipeline.map_to_solve().solve()
    assert pipeline.look_at(solved)
    assert not pipeline.look_at(task.solve())
    assert np.nanmax(solved.gpgmap.layers["elevation"]) > 0.2


def test_it_is_solved_in_one_way_only() -> None:
    pipeline = MappingPipeline(with_settings(fast_config(), SMALL), solved_beside=True)
    with pytest.raises(RuntimeError, match="map_to_solve"):
        pipeline.gpgmap()
