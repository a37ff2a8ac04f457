"""Shortest paths between submaps."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import dijkstra

from gpgmap_ros.closure.graph.graph_paths import shortest_paths


def test_paths_are_the_shortest_ones():
    rng = np.random.default_rng(0)
    edges = [(k, k + 1, float(rng.uniform(1.0, 3.0))) for k in range(19)]
    edges += [
        (int(a), int(b), float(rng.uniform(0.1, 2.0))) for a, b in rng.integers(0, 20, (8, 2)) if a != b
    ]
    lengths = np.full((20, 20), np.inf)
    for a, b, length in edges:
        lengths[a, b] = lengths[b, a] = min(lengths[a, b], length)
    expected = dijkstra(np.where(np.isfinite(lengths), lengths, 0.0), indices=3)
    found = shortest_paths(3, [*edges, (40, 41, 1.0)])
    assert sorted(found) == list(range(20)), "40 and 41 are not joined to 3"
    np.testing.assert_allclose([found[k] for k in range(20)], expected)
