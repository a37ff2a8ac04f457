"""Squared distances by compiled loops and by scipy, and the symmetric matrices made from them."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from gp_core.kernels.distances import squared_distances, symmetric_matrix


@pytest.mark.parametrize(("n", "m"), [(1, 1), (30, 40), (150, 200), (3, 9000)])
@pytest.mark.parametrize("D", [1, 2, 7])
def test_distances_are_those_of_scipy(n, m, D):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(n, D)), rng.normal(size=(m, D))
    expected = cdist(A, B, "sqeuclidean")
    np.testing.assert_allclose(squared_distances(A, B), expected, rtol=1e-14)
    out = np.full((n, m), np.nan)
    assert squared_distances(A, B, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-14)


def test_far_from_the_origin_no_digits_are_lost():
    A = 1e8 + np.arange(200.0)[:, None]
    np.testing.assert_array_equal(
        squared_distances(A, A), np.square(np.arange(200.0)[:, None] - np.arange(200.0))
    )


@pytest.mark.parametrize("n", [1, 5, 141, 142, 200, 700])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_symmetric_matrix_is_filled_on_both_sides(n, order):
    A = np.asarray(np.random.default_rng(0).normal(size=(n, 3)), order=order)

    def double(s):
        s *= 2.0

    K = symmetric_matrix(A, double)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), 0.0)
    np.testing.assert_allclose(K, 2.0 * cdist(A, A, "sqeuclidean"), rtol=1e-14)
