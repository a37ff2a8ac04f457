"""Priors on hyperparameters: densities against scipy, gradients against differences."""

import numpy as np
import pytest
from scipy import stats

from gp_core.kernels import RBF, Metric, White
from gp_core.priors import Gamma, HalfNormal, InverseGamma, LogNormal, log_prior

PRIORS = [
    (LogNormal(2.0, 0.7), stats.lognorm(0.7, scale=2.0)),
    (Gamma(2.5, 1.5), stats.gamma(2.5, scale=1.0 / 1.5)),
    (InverseGamma(2.5, 1.5), stats.invgamma(2.5, scale=1.5)),
    (HalfNormal(1.7), stats.halfnorm(scale=1.7)),
]


@pytest.mark.parametrize(("prior", "reference"), PRIORS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("v", [0.05, 0.6, 1.0, 4.2])
def test_density_and_slope(prior, reference, v):
    value, slope = prior.log_density(v)
    assert value == pytest.approx(reference.logpdf(v), rel=1e-10)
    step = 1e-6 * v
    assert slope == pytest.approx(
        (reference.logpdf(v + step) - reference.logpdf(v - step)) / (2 * step), rel=1e-5, abs=1e-8
    )


def test_log_prior_by_name_with_its_gradient_in_theta():
    k = 2.0 * RBF([0.5, 3.0]) + White(0.2)
    priors = {"length_scale": Gamma(2.0, 1.0), "scale": HalfNormal(1.0), "length_scale[1]": LogNormal()}
    value, gradient = log_prior(priors, k)
    expected = sum(Gamma(2.0, 1.0).log_density(v)[0] for v in (0.5, 3.0))
    expected += HalfNormal(1.0).log_density(2.0)[0] + LogNormal().log_density(3.0)[0]
    assert value == pytest.approx(expected)
    step = 1e-6
    numeric = [
        (
            log_prior(priors, k.with_theta(k.theta + step * e))[0]
            - log_prior(priors, k.with_theta(k.theta - step * e))[0]
        )
        / (2 * step)
        for e in np.eye(4)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)


def test_unknown_and_signed_names_are_refused():
    with pytest.raises(ValueError, match="there are length_scale"):
        log_prior({"lengthscale": Gamma()}, RBF())
    with pytest.raises(ValueError, match="signed"):
        log_prior({"metric.factor": Gamma()}, Metric(RBF(), 1.0, [[1.0]]))


@pytest.mark.parametrize(
    "make",
    [lambda: LogNormal(0.0), lambda: Gamma(1.0, -1.0), lambda: InverseGamma(0.0), lambda: HalfNormal(-1.0)],
)
def test_parameters_must_be_positive(make):
    with pytest.raises(ValueError, match="> 0"):
        make()
