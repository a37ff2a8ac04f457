"""Squared distances by compiled loops and by scipy, and the symmetric matrices made from them."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from gp_core.kernels import RBF, Exponential, Matern, RationalQuadratic, distances
from gp_core.kernels.distances import squared_distances, symmetric_matrix
from gp_core.kernels.loops import exponentiate


@pytest.mark.parametrize(("n", "m"), [(1, 1), (30, 40), (150, 200), (3, 9000), (9000, 3)])
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


def test_exponentials_are_exact_to_the_last_place():
    x = np.concatenate([-np.linspace(0.0, 708.0, 5001), -np.logspace(-300.0, 0.0, 400)])
    expected = np.exp(x.astype(np.longdouble))
    found = x.copy()
    exponentiate(found, np.empty(x.size, dtype=np.int64))
    assert float(np.abs((found - expected) / expected).max()) < np.finfo(float).eps
    edges = np.array([0.0, -0.0, -708.1, -1e300, -np.inf, np.nan])
    exponentiate(edges, np.empty(6, dtype=np.int64))
    np.testing.assert_array_equal(edges, [1.0, 1.0, 0.0, 0.0, 0.0, np.nan])


CLOSED = [
    RBF(1.3),
    RBF([0.5, 1.0, 2.0]),
    Exponential([1.0, 2.0, 3.0]),
    Matern(0.7, nu=0.5),
    Matern([1.0, 0.5, 2.0], nu=1.5),
    Matern(2.0, nu=2.5),
    Matern(2.0, nu=np.inf),
    RBF(1.0, length_scale_bounds="fixed"),
    RationalQuadratic([0.5, 1.0, 2.0], alpha=0.8),  # not known to the compiled loops
]


@pytest.mark.parametrize("kernel", CLOSED, ids=repr)
def test_compiled_loops_agree_with_numpy(kernel, monkeypatch):
    """Values and sums over pairs of a matrix large enough for compiled loops, against the code for small ones."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(170, 3)), rng.normal(size=(1100, 3))  # columns in three chunks
    X[7] = X[3]
    W, square = rng.normal(size=(170, 1100)), rng.normal(size=(170, 170))
    upper = np.triu(square)

    def compute():
        return (
            kernel(X),
            kernel(X, Z),
            *kernel._contract(X, Z, W),
            *kernel._contract(X, None, square),
            *kernel._contract(X, None, upper, upper=True),
        )

    large = compute()
    monkeypatch.setattr(distances, "_COMPILED", 10**9)
    for found, expected in zip(large, compute(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_sums_on_several_threads_are_those_of_one(monkeypatch):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(400, 2)), np.triu(rng.normal(size=(400, 400)))
    kernel = 2.0 * Matern([1.0, 2.0], nu=1.5)
    alone = kernel._contract(X, None, W, upper=True)
    monkeypatch.setattr(distances, "_SHARED", 1)
    shared = kernel._contract(X, None, W, upper=True)
    assert shared[0] == alone[0]
    np.testing.assert_array_equal(shared[1], alone[1])


NARROW = """
import sys
import numpy as np
from gp_core.kernels import RBF
points = np.random.default_rng(0).normal(size=(30_000, 2))
k = RBF(0.5)(points, np.zeros((1, 2)))[:, 0]
np.testing.assert_allclose(k, np.exp(-2.0 * np.square(points).sum(axis=1)), rtol=1e-13)
print("gp_core.kernels.loops" in sys.modules)
"""


def test_few_columns_need_no_compiled_loop():
    """A covariance at many offsets, as for the tables of a map: nothing to wait for at a first start."""
    done = subprocess.run([sys.executable, "-c", NARROW], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
