"""The one Cholesky: against numpy and scipy, with jitter that is reported and errors that advise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_core import blocked
from gp_core.linalg import JitterWarning, cholesky, mirror_lower, report_jitter


def positive_definite(n, seed=0, floor=0.1):
    B = np.random.default_rng(seed).normal(size=(n, n))
    return B @ B.T + floor * np.eye(n)


@given(st.integers(1, 30), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_factor_solves_and_determinant(n, seed):
    A = positive_definite(n, seed)
    factor = cholesky(A)
    assert factor.jitter == 0.0
    np.testing.assert_allclose(factor.lower, np.linalg.cholesky(A), atol=1e-10 * n)
    b, B = np.arange(1.0, n + 1), np.random.default_rng(1).normal(size=(n, 3))
    np.testing.assert_allclose(A @ factor.solve(b), b, atol=1e-8)
    np.testing.assert_allclose(A @ factor.solve(B), B, atol=1e-8)
    np.testing.assert_allclose(factor.lower @ factor.half_solve(B), B, atol=1e-9)
    np.testing.assert_allclose(factor.lower @ factor.half_solve(b), b, atol=1e-9)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-8)
    np.testing.assert_allclose(factor.inverse() @ A, np.eye(n), atol=1e-7)
    expected = np.einsum("mi,ij,mj->m", B.T, np.linalg.inv(A), B.T)
    np.testing.assert_allclose(factor.quadratic(B.T), expected, rtol=1e-7)


@pytest.mark.parametrize("n", [3, 511, 512, 513, 1100])
def test_sizes_around_the_block(n):
    A = positive_definite(n, floor=n)
    factor = cholesky(A)
    np.testing.assert_allclose(factor.lower @ factor.lower.T, A, rtol=1e-9, atol=1e-9)
    assert (np.triu(factor.lower, 1) == 0.0).all()
    B = np.random.default_rng(0).normal(size=(4, n))
    np.testing.assert_allclose(factor.quadratic(B), np.sum(B.T * factor.solve(B.T), axis=0), rtol=1e-9)
    full = np.tril(factor.inverse())
    mirror_lower(full)
    np.testing.assert_array_equal(full, full.T)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_input_survives_unless_it_is_given_away(order):
    A = np.array(positive_definite(5), order=order)
    kept = A.copy()
    cholesky(A)
    np.testing.assert_array_equal(A, kept)
    factor = cholesky(A, overwrite=True)
    assert np.shares_memory(factor.lower, A)
    np.testing.assert_allclose(factor.lower @ factor.lower.T, kept)


def test_half_solve_in_place():
    factor = cholesky(positive_definite(5))
    b = np.asfortranarray(np.random.default_rng(0).normal(size=(5, 3)))
    expected = factor.half_solve(b)
    result = factor.half_solve(b, overwrite=True)
    assert np.shares_memory(result, b)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_singular_matrix_gets_the_smallest_jitter_that_works(overwrite):
    ones = np.ones((4, 4))
    factor = cholesky(ones.copy(), overwrite=overwrite)
    assert 0.0 < factor.jitter <= 1e-6
    np.testing.assert_allclose(factor.lower @ factor.lower.T, ones + factor.jitter * np.eye(4), atol=1e-15)
    with pytest.warns(JitterWarning, match="added to its diagonal"):
        report_jitter(factor.jitter)


@pytest.mark.parametrize(("n", "rank"), [(20, 5), (600, 30)])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_try_starts_from_the_matrix_again(n, rank, overwrite):
    B = np.random.default_rng(0).normal(size=(n, rank))
    A = B @ B.T
    factor = cholesky(A.copy(), overwrite=overwrite)
    assert factor.jitter > 0.0
    np.testing.assert_allclose(factor.lower @ factor.lower.T, A + factor.jitter * np.eye(n), atol=1e-9)


def test_no_warning_without_jitter(recwarn):
    report_jitter(0.0)
    assert not recwarn


def test_an_indefinite_matrix_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"the kernel is not positive definite here: raise noise_variance"):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="the prior is not positive definite here: mend it"):
        cholesky(-np.eye(2), what="the prior", remedy="mend it")


def test_values_that_are_not_finite_are_refused():
    for bad in (np.nan, np.inf):
        A = np.eye(3)
        A[1, 1] = bad
        with pytest.raises(ValueError, match="not finite"):
            cholesky(A)
    A = np.eye(3)
    A[2, 0] = A[0, 2] = np.nan
    with pytest.raises(ValueError, match=r"not positive definite|not finite"):
        cholesky(A)


def test_nothing_to_solve():
    factor = cholesky(np.eye(3))
    assert factor.solve(np.zeros((3, 0))).shape == (3, 0)
    assert factor.half_solve(np.zeros((3, 0))).shape == (3, 0)


@pytest.mark.parametrize("n", [1, 127, 128, 129, 400, 1100])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_on_threads_agree_with_lapack(n, threads):
    A = positive_definite(n, floor=n)
    work = np.array(A, order="F")
    above = np.triu(work, 1)
    assert blocked.factorise(work, threads) == 0
    L = np.linalg.cholesky(A)
    np.testing.assert_allclose(np.tril(work), L, rtol=1e-9, atol=1e-9)
    blocked.invert_triangle(work, threads)
    np.testing.assert_allclose(np.tril(work), np.linalg.inv(L), rtol=1e-8, atol=1e-10)
    T = np.tril(work)
    B = np.random.default_rng(0).normal(size=(5, n))
    np.testing.assert_allclose(blocked.squared_norms(T, B), np.square(B @ T.T).sum(axis=1), rtol=1e-9)
    blocked.multiply_triangle(work, threads)
    np.testing.assert_allclose(np.tril(work), np.tril(np.linalg.inv(A)), rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(np.triu(work, 1), above)  # a second try with jitter starts from there


@pytest.mark.parametrize("n", [300, 900])
def test_blocks_find_the_minor_that_is_not_positive(n):
    A = positive_definite(n, floor=n)
    A[n - 100, n - 100] = -1.0
    assert blocked.factorise(np.array(A, order="F"), 2) == n - 99


def test_blocks_give_the_same_bits_again():
    A = positive_definite(900, floor=900)
    results = []
    for _ in range(3):
        work = np.array(A, order="F")
        blocked.factorise(work, 2)
        blocked.invert_triangle(work, 2)
        blocked.multiply_triangle(work, 2)
        results.append(work)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_a_large_matrix_is_repaired_by_the_same_jitter(monkeypatch):
    B = np.random.default_rng(0).normal(size=(900, 20))
    A = B @ B.T
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = cholesky(A)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gp_core.linalg.available_threads", lambda: 2)
    shared = cholesky(A)
    assert shared.jitter == alone.jitter > 0.0
    np.testing.assert_allclose(shared.lower @ shared.lower.T, A + shared.jitter * np.eye(900), atol=1e-9)
