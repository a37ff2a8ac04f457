"""Kernels that are exactly 0 beyond a distance: sparse matrices through the algebra and in the smoothers."""

import numpy as np
import pytest

from gp_core import KernelDensity, NadarayaWatson
from gp_core.kernels import RBF, Columns, Epanechnikov, Metric, Tricube, Wendland
from gp_core.kernels.compact import rows_per_sparse_block

REACH = 0.9
RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (300, 2))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1)
Q = RNG.uniform(-2.0, 2.0, (15, 2))


class Hidden(Epanechnikov):
    """The same weights through all pairs."""

    compact = False


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * Wendland(1.5),
        Wendland(1.5) + 0.5 * Tricube(2.0),
        Wendland(1.5) * Epanechnikov(1.0),
        Wendland(1.5) ** 2,
        Metric(Wendland(1.0, length_scale_bounds="fixed"), [1.0, 2.0]),
        Columns(Wendland(1.5), 1),
    ],
    ids=lambda k: type(k).__name__,
)
def test_what_is_made_of_compact_kernels_is_compact(kernel):
    assert kernel.compact
    K = kernel.sparse(X, Q)
    assert K.nnz < K.shape[0] * K.shape[1]
    np.testing.assert_allclose(K.toarray(), kernel(X, Q), atol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(1.0), Wendland(1.0) + RBF(1.0)], ids=["rbf", "sum"])
def test_a_kernel_that_is_nowhere_zero_has_no_sparse_matrix(kernel):
    assert not kernel.compact
    with pytest.raises(ValueError, match="saves nothing"):
        kernel.sparse(X)


@pytest.mark.parametrize("weights", [None, RNG.integers(0, 4, 300).astype(float)], ids=["plain", "weighted"])
@pytest.mark.parametrize("y", [Y[:, 0], Y], ids=["one output", "two"])
def test_the_average_of_neighbours_is_that_of_all_pairs(y, weights):
    sparse = NadarayaWatson(Epanechnikov(REACH), optimizer=None).fit(X, y, sample_weight=weights)
    dense = NadarayaWatson(Hidden(REACH), optimizer=None).fit(X, y, sample_weight=weights)
    assert sparse.loo_error_ == pytest.approx(dense.loo_error_)
    for a, b in zip(sparse.predict(Q, return_std=True), dense.predict(Q, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(sparse.weights(Q), dense.weights(Q), atol=1e-12)
    np.testing.assert_allclose(sparse.conditional_density(Q, y[:5]), dense.conditional_density(Q, y[:5]))


def test_the_density_of_neighbours_is_that_of_all_pairs():
    weights = RNG.uniform(0.0, 2.0, 300)
    sparse = KernelDensity(2.0 * Epanechnikov(REACH)).fit(X, sample_weight=weights)
    dense = KernelDensity(Hidden(REACH)).fit(X, sample_weight=weights)
    np.testing.assert_allclose(sparse.score_samples(Q), dense.score_samples(Q))
    assert sparse.loo_log_likelihood_ == pytest.approx(dense.loo_log_likelihood_)


def test_a_sparse_matrix_is_used_where_few_pairs_are_near():
    assert rows_per_sparse_block(Epanechnikov(REACH), X) > 0
    assert rows_per_sparse_block(Epanechnikov(5.0), X) == 0, "nearly all pairs are near"
    assert rows_per_sparse_block(RBF(0.1), X) == 0


@pytest.mark.parametrize("reach", [REACH, 5.0], ids=["sparse", "dense"])
def test_points_without_neighbours_do_no_harm_to_a_given_bandwidth(reach):
    points = np.vstack([X, [[50.0, 50.0]]])
    density = KernelDensity(Epanechnikov(reach)).fit(points)
    assert density.loo_log_likelihood_ == -np.inf
    assert density.score_samples([[20.0, 20.0]])[0] == -np.inf
    smoother = NadarayaWatson(Epanechnikov(reach), optimizer=None).fit(points, np.append(Y[:, 0], 1.0))
    assert np.isfinite(smoother.loo_error_)
    assert smoother.predict([[50.0, 50.0]])[0] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="every weight is 0"):
        smoother.predict([[20.0, 20.0]])
    with pytest.raises(ValueError, match="no density under the others"):
        KernelDensity(Epanechnikov(reach), optimizer="loo").fit(points)
