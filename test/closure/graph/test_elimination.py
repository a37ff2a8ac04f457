"""The block-sparse Cholesky factor against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.closure.graph.elimination import Factor, NotPositiveDefinite, Structure

CHAIN = [(k, k + 1) for k in range(59)]


@pytest.mark.parametrize(
    ("count", "pairs"),
    [
        (1, []),
        (2, [(1, 0)]),
        (10, [(0, 1), (7, 4), (2, 9)]),
        (60, CHAIN),
        (60, CHAIN + [(k, (7 * k + 20) % 60) for k in range(0, 40, 2) if abs(6 * k + 20) % 60 > 1]),
        (40, [(i, j) for i in range(40) for j in range(i)]),
    ],
)
def test_solution_and_inverse_are_those_of_dense_algebra(count: int, pairs: list[tuple[int, int]]) -> None:
    pairs = [
        pair for k, pair in enumerate(pairs) if pair[0] != pair[1] and set(pair) not in map(set, pairs[:k])
    ]
    rng = np.random.default_rng(1)
    b = 6
    off_diagonal = rng.normal(size=(len(pairs), b, b))
    half = rng.normal(size=(count, b, b))
    diagonal = half @ np.swapaxes(half, 1, 2) + 10.0 * b * np.eye(b) + 10.0 * len(pairs) / count * np.eye(b)
    dense = np.zeros((b * count, b * count))
    for k in range(count):
        dense[b * k : b * (k + 1), b * k : b * (k + 1)] = diagonal[k]
    for block, (i, j) in zip(off_diagonal, pairs, strict=True):
        dense[b * i : b * (i + 1), b * j : b * (j + 1)] = block
        dense[b * j : b * (j + 1), b * i : b * (i + 1)] = block.T
    first = np.array([i for i, _ in pairs], dtype=np.intp)
    second = np.array([j for _, j in pairs], dtype=np.intp)
    factor = Factor(Structure(count, first, second, b), diagonal, off_diagonal)
    right = rng.normal(size=(count, b))
    inverse = np.linalg.inv(dense)
    np.testing.assert_allclose(factor.solve(right).ravel(), inverse @ right.ravel(), rtol=1e-8, atol=1e-12)
    expected = [inverse[b * k : b * (k + 1), b * k : b * (k + 1)] for k in range(count)]
    np.testing.assert_allclose(factor.inverse_diagonal(), expected, rtol=1e-8, atol=1e-12)


def test_a_matrix_without_a_factor_is_refused() -> None:
    structure = Structure(2, np.array([0]), np.array([1]), 6)
    with pytest.raises(NotPositiveDefinite):
        Factor(structure, np.tile(np.eye(6), (2, 1, 1)), 2.0 * np.eye(6)[None])
