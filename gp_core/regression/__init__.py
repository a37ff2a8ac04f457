"""Regression: ridge in primal and dual form, Bayesian linear, kernel smoothers, Gaussian processes."""

from gp_core.regression.gaussian_process import GaussianProcessRegressor

__all__ = ["GaussianProcessRegressor"]
