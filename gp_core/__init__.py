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
        SupportVectorClassifier,
    )
    from gp_core.density import KernelDensity
    from gp_core.gaussian import Gaussian
    from gp_core.kernel_pca import KernelPCA
    from gp_core.regression import (
        BayesianLinearRegression,
        CoregionalizedGaussianProcessRegressor,
        GaussianProcessRegressor,
        InterpolatedGaussianProcessRegressor,
        KernelRidge,
        LocallyWeightedRegression,
        NadarayaWatson,
        Ridge,
        RobustGaussianProcessRegressor,
    )

__version__ = "0.2.0"  # of both packages: setup.py reads it here

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "CoregionalizedGaussianProcessRegressor",
    "Gaussian",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "InterpolatedGaussianProcessRegressor",
    "KernelDensity",
    "KernelNearestNeighbors",
    "KernelPCA",
    "KernelRidge",
    "LocalLogisticRegression",
    "LocallyWeightedRegression",
    "LogisticRegression",
    "NadarayaWatson",
    "Ridge",
    "RobustGaussianProcessRegressor",
    "SparseGaussianProcessClassifier",
    "SupportVectorClassifier",
]

_CLASSIFIERS = {
    "BayesianLogisticRegression",
    "GaussianProcessClassifier",
    "KernelNearestNeighbors",
    "LocalLogisticRegression",
    "LogisticRegression",
    "SparseGaussianProcessClassifier",
    "SupportVectorClassifier",
}
_HOMES = {
    "Gaussian": "gp_core.gaussian",
    "KernelDensity": "gp_core.density",
    "KernelPCA": "gp_core.kernel_pca",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gp_core' has no attribute {name!r}")
    home = "gp_core.classification" if name in _CLASSIFIERS else _HOMES.get(name, "gp_core.regression")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
