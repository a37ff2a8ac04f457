"""Small symmetric matrices in float32 against numpy in float64."""

import numpy as np
import pytest

from gp_core.grid.symmetric import factorise, invert, pack, padded, product, solve

SIZES = [1, 3, 4, 7, 8, 9, 16, 61]


def _graded(n: int) -> np.ndarray:
    """Positive definite, its scales four powers of ten apart."""
    rng = np.random.default_rng(n)
    half = rng.standard_normal((n, 2 * n)) * np.geomspace(100.0, 0.01, n)[:, None]
    return half @ half.T / n + np.diag(np.geomspace(1.0, 1e-4, n))


def _padded(A: np.ndarray, left_of_diagonal: float) -> np.ndarray:
    """A as the loops want it; what is left of the diagonal must not matter."""
    n = A.shape[0]
    P = np.zeros((n, padded(n)), dtype=np.float32)
    P[:, :n] = np.triu(A) + np.tril(np.full((n, n), left_of_diagonal), -1)
    return P


@pytest.mark.parametrize("n", SIZES)
def test_factor_inverse_and_solution(n):
    A = _graded(n)
    scale = np.sqrt(np.diag(A))
    U = _padded(A, 7.0)
    assert factorise(U)
    T = np.triu(U[:, :n]).astype(np.float64)
    np.testing.assert_allclose(T.T @ T / np.outer(scale, scale), A / np.outer(scale, scale), atol=3e-6)

    C = np.full_like(U, np.nan)
    invert(U, np.full_like(U, np.nan), C)
    np.testing.assert_allclose(
        np.tril(C[:, :n]) * np.outer(scale, scale),
        np.tril(np.linalg.inv(A)) * np.outer(scale, scale),
        atol=2e-4,
    )

    rows = np.zeros(n * (n + 1) // 2, dtype=np.float32)
    pack(U, rows)
    b = np.random.default_rng(1).standard_normal(n)
    x = b.astype(np.float32)
    solve(rows, x)
    error = x - np.linalg.solve(A, b)
    assert np.sqrt(error @ A @ error) < 1e-4 * np.sqrt(b @ np.linalg.solve(A, b))


@pytest.mark.parametrize("n", SIZES)
def test_a_product_is_summed_in_float64(n):
    P = _padded(_graded(n), 7.0)
    T = np.triu(P[:, :n]).astype(np.float64)
    x = np.random.default_rng(2).standard_normal(n)
    out = np.full(n, np.nan)
    product(P, x, out)
    np.testing.assert_allclose(out, (T + np.triu(T, 1).T) @ x, rtol=1e-12, atol=1e-12 * abs(T).max())


@pytest.mark.parametrize("n", [1, 8, 21])
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan])
def test_what_is_not_positive_definite_is_refused(n, value):
    A = np.eye(n)
    A[-1, -1] = value
    assert not factorise(_padded(A, 0.0))


@pytest.mark.parametrize("n", SIZES)
def test_a_matrix_without_inverse_is_told_and_ends_in_no_exception(n):
    U = _padded(np.zeros((n, n)), 0.0)  # pivots of exactly zero
    assert not factorise(U)
    rows = np.zeros(n * (n + 1) // 2, dtype=np.float32)
    pack(U, rows)
    assert not np.isfinite(rows).all()
