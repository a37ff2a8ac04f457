"""The coarse search of a query: its poses are those of the search of a registration."""

from __future__ import annotations

import numpy as np
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.registration.correlation import Spectra, likelihoods, make_search_grid
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.search import find_peaks
from gpgmap_ros.closure.retrieval.coarse_search import (
    compute_exact_likelihoods,
    pack_source,
    pack_target,
    propose_poses,
    select_best,
)

CONFIG = ClosureConfig(threads=1, yaw_step=15.0)


def test_the_same_poses_are_found(world: World):
    """Its exact values are those of the search, and its proposals hold the best poses of the search."""
    maps = [world.map_at((100.0, 100.0), 1, yaw=0.5)[0], world.map_at((108.0, 96.0), 2)[0]]
    prepared = [make_registration_map(map_, CONFIG) for map_ in maps]
    grid = make_search_grid(max(map_.radius for map_ in prepared), CONFIG)
    source, target = (Spectra(map_, grid, CONFIG) for map_ in prepared)
    expected = likelihoods(source, target, CONFIG.min_overlap, 1)[0]
    rng = np.random.default_rng(0)
    cells = np.column_stack([rng.integers(0, n, 200) for n in expected.shape])
    half = grid.size // 2
    cells = cells[np.all(np.abs(cells[:, 1:] - half) > grid.size - grid.side - half, axis=1)]
    a, b = pack_source(source), pack_target(target)
    min_shared = CONFIG.min_overlap * min(a.area, b.area) / grid.stride**2
    np.testing.assert_allclose(
        compute_exact_likelihoods(a.fields, b.fields, cells, grid.size, min_shared),
        expected[tuple(cells.T)],
        rtol=5e-3,
        atol=0.05,
    )
    scores = propose_poses(a, [b, b], grid, CONFIG.min_overlap)
    np.testing.assert_array_equal(scores[0], scores[1])
    found = select_best(scores[0], a, b, grid, CONFIG.min_overlap, 6)
    best = find_peaks(expected.copy(), grid, 3)
    assert found[0, 3] > 0.9 * best[0].likelihood
    for candidate in best:
        yaws = np.abs((grid.yaws[found[:, 0].astype(int)] - candidate.yaw + np.pi) % (2.0 * np.pi) - np.pi)
        shifts = (found[:, 2:0:-1] + half) % grid.size - half - candidate.shift / grid.stride
        assert np.any((yaws < 1.1 * grid.step) & (np.abs(shifts).max(1) <= 2.0))
