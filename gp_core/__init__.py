"""Kernels, Gaussian processes and the models around them, as scikit-learn estimators.

The estimators are imported when they are first used, so that `gp_core.kernels` and `gp_core.grid` stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gp_core.classification import (
        BayesianLogisticRegression,
        GaussianProcessClassifier,
        KernelNearestNeighbors,
        LocalLogisticRegression,
        LogisticRegression,
        SparseGaussianProcessClassifier,
    )
    from gp_core.regression import (
        BayesianLinearRegression,
        GaussianProcessRegressor,
        KernelRidge,
        LocallyWeightedRegression,
        NadarayaWatson,
        Ridge,
    )

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "KernelNearestNeighbors",
    "KernelRidge",
    "LocalLogisticRegression",
    "LocallyWeightedRegression",
    "LogisticRegression",
    "NadarayaWatson",
    "Ridge",
    "SparseGaussianProcessClassifier",
]

_CLASSIFIERS = {
    "BayesianLogisticRegression",
    "GaussianProcessClassifier",
    "KernelNearestNeighbors",
    "LocalLogisticRegression",
    "LogisticRegression",
    "SparseGaussianProcessClassifier",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gp_core' has no attribute {name!r}")
    home = "gp_core.classification" if name in _CLASSIFIERS else "gp_core.regression"
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
