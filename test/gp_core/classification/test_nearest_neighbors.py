"""Kernel nearest neighbours: scikit-learn as a reference, the kernel trick, ties, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier

from gp_core.classification import KernelNearestNeighbors
from gp_core.classification.nearest_neighbors import _smallest
from gp_core.kernels import RBF, Kernel, Linear, Polynomial


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("count", [1, 4, 150])
def test_the_linear_kernel_gives_scikit_learns_neighbours(weights, count):
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    X = X + 1e-6 * rng.normal(size=X.shape)  # iris is full of ties
    queries = X[::3] + 0.2 * rng.normal(size=X[::3].shape)
    theirs = KNeighborsClassifier(count, weights=weights).fit(X, y)
    ours = KernelNearestNeighbors(Linear(), n_neighbors=count, weights=weights).fit(X, y)
    distances, indices = ours.kneighbors(queries)
    their_distances, their_indices = theirs.kneighbors(queries)
    assert_array_equal(indices, their_indices)
    assert_allclose(distances, their_distances, atol=1e-6)
    assert_allclose(ours.predict_proba(queries), theirs.predict_proba(queries), atol=1e-5)


def test_a_stationary_kernel_ranks_as_the_euclidean_distance():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    _, euclidean = KNeighborsClassifier(5).fit(X, y).kneighbors(X + 0.1)
    _, indices = KernelNearestNeighbors(2.0 * RBF(3.0)).fit(X, y).kneighbors(X + 0.1)
    assert_array_equal(indices, euclidean)


def test_the_distance_is_the_one_between_features():
    """(x'z)² has the features x_i x_j: their distance, computed by hand."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    queries = rng.normal(size=(5, 2))
    features = [np.einsum("ni,nj->nij", Z, Z).reshape(len(Z), -1) for Z in (X, queries)]
    expected = np.linalg.norm(features[1][:, None] - features[0][None], axis=-1)
    distances, indices = KernelNearestNeighbors(Linear() ** 2).fit(X, y).kneighbors(queries, 20)
    assert_allclose(distances, np.sort(expected, axis=1), atol=1e-7)
    assert_array_equal(indices, np.argsort(expected, axis=1))


def test_a_polynomial_kernel_sees_an_ellipse_that_a_linear_one_does_not():
    """Opposite points of an ellipse are far apart in the plane and the same point in the space of squares."""
    angle = np.linspace(0.05, np.pi - 0.05, 12)
    ring = np.stack([3 * np.cos(angle), np.sin(angle)], axis=1)
    X, y = np.vstack([ring, 0.4 * ring]), np.repeat([1, 0], 12)
    lower_half = np.vstack([-ring, -0.4 * ring])
    assert KernelNearestNeighbors(Polynomial(2, 0.0), n_neighbors=1).fit(X, y).score(lower_half, y) == 1.0
    assert KernelNearestNeighbors(Linear(), n_neighbors=1).fit(X, y).score(lower_half, y) < 0.9


def test_an_exact_hit_decides_alone_when_votes_are_weighted_by_distance():
    X, y = np.array([[0.0], [1.0], [1.1], [1.2]]), np.array(["near", "far", "far", "far"])
    model = KernelNearestNeighbors(Linear(), n_neighbors=4, weights="distance").fit(X, y)
    assert_allclose(model.predict_proba([[0.0]]), [[0.0, 1.0]])  # classes are sorted: far, near
    assert model.predict([[0.0]]) == ["near"]
    assert model.predict([[0.7]]) == ["far"]


@given(
    values=st.lists(st.integers(0, 4), min_size=2, max_size=20),
    data=st.data(),
)
def test_ties_go_to_the_smaller_index(values, data):
    count = data.draw(st.integers(1, len(values)))
    row = np.array([values], dtype=float)
    expected = sorted(range(len(values)), key=lambda i: (values[i], i))[:count]
    assert_array_equal(_smallest(row, count)[0], expected)


def test_queries_in_batches_equal_queries_at_once(monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = KernelNearestNeighbors().fit(X, y)
    whole = model.predict_proba(X)
    monkeypatch.setattr("gp_core.classification.nearest_neighbors._BATCH_ENTRIES", 1000)
    assert_array_equal(model.predict_proba(X), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be >= 1"),
        ({"n_neighbors": 2.0}, "n_neighbors must be an integer"),
        ({"weights": "gaussian"}, 'weights must be "uniform" or "distance"'),
        ({"kernel": "rbf"}, "kernel must be a gp_core kernel"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        KernelNearestNeighbors(**options).fit([[0.0], [1.0]], [0, 1])


def test_more_neighbours_than_points_are_refused():
    model = KernelNearestNeighbors(n_neighbors=3).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="n_neighbors is 3, but there are 2 training points"):
        model.predict([[0.0]])


def test_a_kernel_with_negative_squared_distances_is_refused():
    class Backwards(Kernel):
        """|x - z|: nothing is closer to a point than itself, but this says otherwise."""

        def _matrix(self, X, Z):
            return np.abs(X - (X if Z is None else Z).T)

        def _diag(self, X):
            return np.zeros(len(X))

    model = KernelNearestNeighbors(Backwards(), n_neighbors=1).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="negative squared distance"):
        model.predict([[0.3]])
