"""Classifiers: kernel nearest neighbour, logistic regression and its relatives, Gaussian processes."""

from gp_core.classification.gp_classifier import GaussianProcessClassifier

__all__ = ["GaussianProcessClassifier"]
