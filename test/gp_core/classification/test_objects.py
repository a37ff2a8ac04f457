"""Sets and strings through the same classifiers as vectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import cross_val_score

from gp_core.classification import (
    GaussianProcessClassifier,
    KernelNearestNeighbors,
    LocalLogisticRegression,
)
from gp_core.kernels import EditDistance, SetIntersection

WORDS = ["rock", "rocks", "rocky", "crock", "sand", "sandy", "sands", "hand", "bolder", "boulder", "boulders"]
KINDS = ["rock"] * 4 + ["sand"] * 4 + ["boulder"] * 3


def baskets(n=40, seed=0):
    """Sets of numbers below 10; the label tells whether more than half of them are even."""
    rng = np.random.default_rng(seed)
    sets = [frozenset(rng.choice(10, size=rng.integers(2, 7), replace=False).tolist()) for _ in range(n)]
    labels = np.array([int(sum(i % 2 == 0 for i in s) > len(s) / 2) for s in sets])
    return sets, labels


@pytest.mark.parametrize(
    "model",
    [
        KernelNearestNeighbors(EditDistance(2.0), n_neighbors=1),
        LocalLogisticRegression(EditDistance(1.0), degree=0, optimizer=None),
        *(
            GaussianProcessClassifier(5.0 * EditDistance(2.0), inference=inference)
            for inference in ("laplace", "ep", "variational")
        ),
    ],
    ids=repr,
)
def test_strings(model):
    model.fit(WORDS, KINDS)
    assert model.score(WORDS, KINDS) == 1.0
    assert model.predict(["rockys", "boulderss", "sandys"]).tolist() == ["rock", "boulder", "sand"]
    assert_allclose(model.predict_proba(["rocker", "band"]).sum(axis=1), 1.0)
    # An object array, as pandas and scikit-learn's splitters hand over, is the same.
    again = model.fit(np.array(WORDS, dtype=object), KINDS).predict_proba(np.array(["rocker"], dtype=object))
    assert_allclose(again, model.predict_proba(["rocker"]))


@pytest.mark.parametrize(
    "model",
    [
        KernelNearestNeighbors(SetIntersection(normalized=True)),
        LocalLogisticRegression(SetIntersection(), degree=0),
        GaussianProcessClassifier(1.0 * SetIntersection(), inference="laplace"),
        GaussianProcessClassifier(1.0 * SetIntersection(), inference="ep", link="probit"),
    ],
    ids=repr,
)
def test_sets_learn_better_than_chance_in_cross_validation(model):
    sets, labels = baskets(60)
    assert cross_val_score(model, sets, labels, cv=3).mean() > max(labels.mean(), 1 - labels.mean()) + 0.05


def test_the_kernel_trick_on_sets_counts_subsets():
    sets = [frozenset("ab"), frozenset("abc"), frozenset("xyz")]
    model = KernelNearestNeighbors(SetIntersection(), n_neighbors=1).fit(sets, [0, 0, 1])
    distances, indices = model.kneighbors([frozenset("ab"), frozenset("yz")], 3)
    # {a, b} has 4 subsets, {a, b, c} has 8, and they share 4: d² = 4 + 8 - 2·4.
    assert_allclose(distances[0], np.sqrt([0.0, 4 + 8 - 8, 4 + 8 - 2]))
    assert indices[1].tolist() == [2, 0, 1]  # d² = 4 + 8 - 8, 4 + 4 - 2, 4 + 8 - 2
