"""Whatever finite numbers go in, probabilities come out, or one ValueError: for every classifier."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from sklearn.base import clone

from gp_core.classification import (
    BayesianLogisticRegression,
    GaussianProcessClassifier,
    KernelNearestNeighbors,
    LocalLogisticRegression,
    LogisticRegression,
)

MODELS = [
    KernelNearestNeighbors(n_neighbors=2, weights="distance"),
    LogisticRegression(),
    LogisticRegression(0.0),
    BayesianLogisticRegression(optimizer="lbfgs"),
    BayesianLogisticRegression(prior_covariance=1e6, link="probit"),
    LocalLogisticRegression(max_iter=5),
    LocalLogisticRegression(degree=0, optimizer=None),
    GaussianProcessClassifier(max_iter=5),
    GaussianProcessClassifier(inference="ep", max_iter=3),
    GaussianProcessClassifier(inference="variational", link="probit", max_iter=3),
]
PLAIN = st.floats(-5, 5).map(lambda v: round(v, 1))  # rounded, so that points coincide
WILD = st.sampled_from([0.0, -0.0, 1.0, 1e-300, -1e-8, 1e8, -1e12, 1e100, 3.0])


@st.composite
def problems(draw):
    n, d, classes = draw(st.integers(2, 10)), draw(st.integers(1, 3)), draw(st.integers(2, 3))
    cells = draw(st.sampled_from([PLAIN, PLAIN, WILD]))
    X = draw(arrays(np.float64, (n, d), elements=cells))
    y = np.arange(n) % min(classes, n)
    return X, y, draw(arrays(np.float64, (3, d), elements=cells))


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{MODELS.index(m)}")
@settings(max_examples=12, deadline=None)
@given(problem=problems())
def test_probabilities_or_one_clear_error(model, problem):
    X, y, queries = problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # convergence, jitter: reported, and allowed
        try:
            p = clone(model).fit(X, y).predict_proba(np.vstack([queries, X]))
        except ValueError as error:
            assert len(str(error)) > 20  # noqa: PT017
            return
    assert np.isfinite(p).all()
    assert (p >= 0.0).all()
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
