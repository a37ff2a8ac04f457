"""Ways between submaps, and what they do to poses."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import dijkstra

from gpgmap_ros.closure.ways import corrected, shortest_ways


def shifted(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def test_ways_are_the_shortest_ones():
    rng = np.random.default_rng(0)
    edges = [(k, k + 1, float(rng.uniform(1.0, 3.0))) for k in range(19)]
    edges += [
        (int(a), int(b), float(rng.uniform(0.1, 2.0))) for a, b in rng.integers(0, 20, (8, 2)) if a != b
    ]
    lengths = np.full((20, 20), np.inf)
    for a, b, length in edges:
        lengths[a, b] = lengths[b, a] = min(lengths[a, b], length)
    expected = dijkstra(np.where(np.isfinite(lengths), lengths, 0.0), indices=3)
    found = shortest_ways(3, [*edges, (40, 41, 1.0)])
    assert sorted(found) == list(range(20)), "40 and 41 are not joined to 3"
    np.testing.assert_allclose([found[k] for k in range(20)], expected)


def test_corrections_go_over_into_each_other():
    stamps = [0, 10, 15, 20, 99]
    found = corrected([10, 20], [shifted(1.0), shifted(3.0)], stamps, [np.eye(4)] * 5)
    np.testing.assert_allclose([T[0, 3] for T in found], [1.0, 1.0, 2.0, 3.0, 3.0])
