"""BLAS in place on parts of a matrix: each routine against numpy, and nothing else of the matrix is touched."""

import numpy as np
import pytest

from gp_core import blas


def matrix(n=7, m=7, seed=0):
    return np.asfortranarray(np.random.default_rng(seed).normal(size=(n, m)))


def triangle(n=4):
    return np.asfortranarray(np.tril(matrix(n, n)) + 3.0 * np.eye(n))


def in_a_larger_one(part):
    """A copy of the part inside a larger matrix, and that matrix."""
    whole = np.full((part.shape[0] + 3, part.shape[1] + 2), 9.0, order="F")
    view = whole[2:-1, 1:-1]
    view[...] = part
    return view, whole


def assert_border_is_untouched(whole):
    inside = whole.copy()
    inside[2:-1, 1:-1] = 9.0
    assert (inside == 9.0).all()


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_a_product_is_added(trans_a, trans_b):
    A, B, C = matrix(3, 4, 1), matrix(4, 2, 2), matrix(3, 2, 3)
    left = np.asfortranarray(A.T) if trans_a else A
    right = np.asfortranarray(B.T) if trans_b else B
    view, whole = in_a_larger_one(C)
    blas.add_product(view, in_a_larger_one(left)[0], in_a_larger_one(right)[0], -2.0, trans_a, trans_b)
    np.testing.assert_allclose(view, C - 2.0 * A @ B)
    assert_border_is_untouched(whole)


@pytest.mark.parametrize("trans", [False, True])
def test_a_square_is_added_to_the_lower_triangle(trans):
    A, C = matrix(3, 5, 1), matrix(3, 3, 2)
    view, whole = in_a_larger_one(C)
    blas.add_square(view, np.asfortranarray(A.T) if trans else A, 0.5, trans)
    np.testing.assert_allclose(view, np.tril(C + 0.5 * A @ A.T) + np.triu(C, 1))
    assert_border_is_untouched(whole)


def test_products_and_solves_with_a_triangle():
    L, B = triangle(), matrix(4, 4, 5)
    above = L + np.triu(np.full((4, 4), 7.0), 1)  # what is above the diagonal must not be read
    for call, expected in (
        (blas.multiply_right, B @ L),
        (blas.solve_right, B @ np.linalg.inv(L.T)),
        (blas.multiply_left, L @ B),
        (lambda L, B: blas.multiply_left(L, B, -2.0, trans=True), -2.0 * L.T @ B),
    ):
        view, whole = in_a_larger_one(B)
        call(np.asfortranarray(above), view)
        np.testing.assert_allclose(view, expected, rtol=1e-12)
        assert_border_is_untouched(whole)


def test_factor_inverse_and_square_of_a_triangle():
    L = triangle()
    view, whole = in_a_larger_one(L @ L.T)
    assert blas.factorise(view) == 0
    np.testing.assert_allclose(np.tril(view), L, rtol=1e-12)
    blas.invert_triangle(view)
    T = np.linalg.inv(L)
    np.testing.assert_allclose(np.tril(view), T, atol=1e-12)
    blas.multiply_triangle(view)
    np.testing.assert_allclose(np.tril(view), np.tril(T.T @ T), atol=1e-12)
    assert_border_is_untouched(whole)
    assert blas.factorise(np.asfortranarray(np.diag([1.0, 1.0, -1.0]))) == 3


def test_nothing_happens_to_empty_parts():
    A = matrix(4, 4)
    kept = A.copy()
    blas.add_product(A[:0], A[:0], A, 1.0)
    blas.add_square(A[:0, :0], A[:0], 1.0, trans=False)
    blas.multiply_left(A[:0, :0], A[:0], 1.0)
    np.testing.assert_array_equal(A, kept)


def test_other_memory_layouts_are_refused():
    with pytest.raises(ValueError, match="Fortran order"):
        blas.factorise(np.eye(3)[:, ::2].T)
    with pytest.raises(ValueError, match="Fortran order"):
        blas.invert_triangle(np.eye(3, dtype=np.float32))
