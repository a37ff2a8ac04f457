"""Classifiers: kernel nearest neighbour, logistic regression and its relatives, Gaussian processes."""

from gp_core.classification.bayesian_logistic import BayesianLogisticRegression
from gp_core.classification.gp_classifier import GaussianProcessClassifier
from gp_core.classification.local_logistic import LocalLogisticRegression
from gp_core.classification.logistic import LogisticRegression
from gp_core.classification.nearest_neighbors import KernelNearestNeighbors
from gp_core.classification.sparse_gp_classifier import SparseGaussianProcessClassifier
from gp_core.classification.support_vector import SupportVectorClassifier

__all__ = [
    "BayesianLogisticRegression",
    "GaussianProcessClassifier",
    "KernelNearestNeighbors",
    "LocalLogisticRegression",
    "LogisticRegression",
    "SparseGaussianProcessClassifier",
    "SupportVectorClassifier",
]
