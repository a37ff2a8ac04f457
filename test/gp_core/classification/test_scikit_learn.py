"""scikit-learn's own checks on every classifier. None is expected to fail."""

import pytest
from sklearn.utils.estimator_checks import (
    check_classifiers_classes,
    check_dict_unchanged,
    check_estimators_nan_inf,
    check_methods_sample_order_invariance,
    parametrize_with_checks,
)

from gp_core.classification import (
    BayesianLogisticRegression,
    GaussianProcessClassifier,
    KernelNearestNeighbors,
    LocalLogisticRegression,
    LogisticRegression,
    SparseGaussianProcessClassifier,
)

ESTIMATORS = [
    KernelNearestNeighbors(),
    KernelNearestNeighbors(n_neighbors=1, weights="distance"),
    LogisticRegression(),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(link="probit", optimizer="lbfgs"),
    LocalLogisticRegression(optimizer=None),
    LocalLogisticRegression(degree=0, optimizer=None),
    GaussianProcessClassifier(optimizer=None),
    GaussianProcessClassifier(inference="ep", optimizer=None),
    GaussianProcessClassifier(inference="laplace", link="logit", mean=0.3, max_iter=3),
    SparseGaussianProcessClassifier(n_inducing=10, max_iter=2),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        check_classifiers_classes,
        check_dict_unchanged,
        check_estimators_nan_inf,
        check_methods_sample_order_invariance,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_of_the_local_regression_with_its_search(check):
    """Those that the search for a bandwidth could fail: it takes seconds in every check."""
    check("LocalLogisticRegression", LocalLogisticRegression(max_iter=1))
