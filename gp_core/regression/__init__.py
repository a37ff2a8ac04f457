"""Regression: ridge in primal and dual form, Bayesian linear, kernel smoothers, Gaussian processes."""

from gp_core.regression.bayesian_linear import BayesianLinearRegression
from gp_core.regression.contour import LikelihoodContour, likelihood_contour
from gp_core.regression.coregionalized import CoregionalizedGaussianProcessRegressor
from gp_core.regression.gaussian_process import GaussianProcessRegressor, LeaveOneOut
from gp_core.regression.interpolated import InducingGrid, InterpolatedGaussianProcessRegressor
from gp_core.regression.locally_weighted import LocallyWeightedRegression
from gp_core.regression.means import ConstantMean, FunctionMean, LinearMean, Mean
from gp_core.regression.nadaraya_watson import NadarayaWatson
from gp_core.regression.ridge import KernelRidge, Ridge
from gp_core.regression.robust_gaussian_process import RobustGaussianProcessRegressor

__all__ = [
    "BayesianLinearRegression",
    "ConstantMean",
    "CoregionalizedGaussianProcessRegressor",
    "FunctionMean",
    "GaussianProcessRegressor",
    "InducingGrid",
    "InterpolatedGaussianProcessRegressor",
    "KernelRidge",
    "LeaveOneOut",
    "LikelihoodContour",
    "LinearMean",
    "LocallyWeightedRegression",
    "Mean",
    "NadarayaWatson",
    "Ridge",
    "RobustGaussianProcessRegressor",
    "likelihood_contour",
]
