"""scikit-learn's own checks on every classifier. None is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

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
    # The same code as with the defaults, without the long search of every check.
    LocalLogisticRegression(max_iter=2),
    LocalLogisticRegression(degree=0, optimizer=None),
    GaussianProcessClassifier(optimizer=None),
    GaussianProcessClassifier(inference="ep", optimizer=None),
    GaussianProcessClassifier(inference="laplace", link="logit", mean=0.3, max_iter=3),
    SparseGaussianProcessClassifier(n_inducing=20),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)
