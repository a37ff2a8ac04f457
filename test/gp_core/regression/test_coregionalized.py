"""Several outputs with a covariance between them and noise of any kind: against the formulas written out."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gp_core import GaussianProcessRegressor
from gp_core.kernels import RBF, Matern
from gp_core.regression import CoregionalizedGaussianProcessRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (15, 2))
Y = np.stack([np.sin(X[:, 0]), 0.5 - np.sin(X[:, 0])], axis=1) + 0.1 * RNG.normal(size=(15, 2))
Q = RNG.uniform(-3.0, 3.0, (4, 2))
B = np.array([[2.0, -0.8], [-0.8, 1.0]])
ROOT = 0.1 * RNG.normal(size=(30, 30))
NOISES = {
    "none": {},
    "per output": {"noise_variances": RNG.uniform(0.01, 0.3, (15, 2))},
    "between outputs": {"output_noise": [[0.2, 0.1], [0.1, 0.3]]},
    "full": {"noise_covariance": ROOT @ ROOT.T},
}


def stacked(noise):
    total = 0.05 * np.eye(30)
    if "noise_variances" in noise:
        total += np.diag(np.concatenate(list(noise["noise_variances"].T)))
    if "output_noise" in noise:
        total += np.block([[v * np.eye(15) for v in row] for row in noise["output_noise"]])
    return total + noise.get("noise_covariance", 0.0)


def fixed(**options):
    return CoregionalizedGaussianProcessRegressor(
        **({"kernel": RBF(1.0), "coregionalization": B, "noise_variance": 0.05, "optimizer": None} | options)
    )


@pytest.mark.parametrize("name", NOISES)
def test_the_formulas_written_out(name):
    noise = NOISES[name]
    gp = fixed().fit(X, Y, **noise)
    K, k = RBF(1.0)(X), RBF(1.0)(Q, X)
    A = np.block([[b * K for b in row] for row in B]) + stacked(noise)
    cross = np.block([[b * k for b in row] for row in B])
    y = np.concatenate([Y[:, 0], Y[:, 1]])
    mean, covariance = gp.predict(Q, return_cov=True)
    np.testing.assert_allclose(mean.T.ravel(), cross @ np.linalg.solve(A, y), rtol=1e-7, atol=1e-9)
    expected = np.block([[b * RBF(1.0)(Q) for b in row] for row in B]) - cross @ np.linalg.solve(A, cross.T)
    np.testing.assert_allclose(covariance.transpose(1, 0, 3, 2).reshape(8, 8), expected, atol=1e-8)
    std = gp.predict(Q, return_std=True)[1]
    np.testing.assert_allclose(std.T.ravel() ** 2, np.diag(expected), atol=1e-8)
    assert gp.log_marginal_likelihood() == pytest.approx(multivariate_normal(np.zeros(30), A).logpdf(y))


@pytest.mark.parametrize("name", NOISES)
def test_gradients(name):
    gp = fixed(kernel=Matern(1.0, nu=2.5), coregionalization=None, rank=2).fit(X, Y, **NOISES[name])
    _, gradient = gp.log_marginal_likelihood(gp.theta_, eval_gradient=True)
    step, value = 1e-5, gp.log_marginal_likelihood
    numeric = [
        (value(gp.theta_ + step * e) - value(gp.theta_ - step * e)) / (2 * step)
        for e in np.eye(len(gp.theta_))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)
    slope, std = gp.predict_gradient(Q, return_std=True)
    h = 1e-3
    for d in range(2):
        e = h * np.eye(2)[d]
        np.testing.assert_allclose(
            slope[:, :, d], (gp.predict(Q + e) - gp.predict(Q - e)) / (2 * h), atol=1e-4
        )
        for i, q in enumerate(Q):
            C = gp.predict(np.array([q + e, q - e]), return_cov=True)[1]
            for o in range(2):
                c = C[:, o, :, o]
                variance = (c[0, 0] - 2.0 * c[0, 1] + c[1, 1]) / (2 * h) ** 2
                assert std[i, o, d] ** 2 == pytest.approx(variance, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("name", NOISES)
def test_samples_have_the_moments_of_the_posterior(name):
    gp = fixed().fit(X, Y, **NOISES[name])
    draws = gp.sample_y(Q, 20000, random_state=0)
    mean, covariance = gp.predict(Q, return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=2), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.reshape(8, -1)), covariance.reshape(8, 8), atol=0.08)


def test_without_coupling_it_is_the_plain_process():
    plain = GaussianProcessRegressor(RBF(1.0), noise_variance=0.05, optimizer=None).fit(X, Y)
    gp = fixed(coregionalization=np.eye(2)).fit(X, Y)
    np.testing.assert_allclose(gp.predict(Q), plain.predict(Q), rtol=1e-6)
    np.testing.assert_allclose(
        gp.predict(Q, return_std=True)[1], plain.predict(Q, return_std=True)[1], rtol=1e-6
    )
    np.testing.assert_allclose(gp.predict_gradient(Q), plain.predict_gradient(Q), rtol=1e-6)
    assert gp.log_marginal_likelihood() == pytest.approx(plain.log_marginal_likelihood())
    one = fixed(coregionalization=[[1.0]]).fit(X, Y[:, 0])
    assert one.predict(Q).shape == (4,)
    assert one.sample_y(Q, 3, random_state=0).shape == (4, 3)


def test_an_output_helps_another():
    gp = CoregionalizedGaussianProcessRegressor().fit(X, Y)
    correlation = gp.coregionalization_[0, 1] / np.sqrt(np.prod(np.diag(gp.coregionalization_)))
    assert correlation < -0.8
    noise = np.full((15, 2), 1e-6)
    noise[:, 1] = 1e6  # the second output has seen nothing
    helped = fixed(coregionalization=[[1.0, -0.99], [-0.99, 1.0]]).fit(
        X, Y - [0.0, 0.5], noise_variances=noise
    )
    truth = -np.sin(X[:, 0])
    assert np.corrcoef(helped.predict(X)[:, 1], truth)[0, 1] > 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fixed().fit(X, Y, noise_variances=np.ones((15, 3))), r"\(15, 2\)"),
        (lambda: fixed().fit(X, Y, noise_variances=-np.ones((15, 2))), ">= 0"),
        (lambda: fixed().fit(X, Y, output_noise=np.ones((3, 3))), r"\(2, 2\)"),
        (lambda: fixed().fit(X, Y, noise_covariance=np.ones((15, 15))), r"\(30, 30\)"),
        (lambda: fixed(coregionalization=[[1.0, 2.0], [2.0, 1.0]]).fit(X, Y), "negative eigenvalue"),
        (lambda: fixed(coregionalization=None, rank=0).fit(X, Y), "rank"),
        (lambda: fixed(optimizer="adam").fit(X, Y), "lbfgs"),
        (lambda: fixed().fit(X, Y).predict(Q, True, True), "not both"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_before_a_fit_functions_are_drawn_from_the_prior():
    gp = CoregionalizedGaussianProcessRegressor(RBF(1.0), coregionalization=B)
    draws = gp.sample_y(Q, 40_000, random_state=0)
    assert draws.shape == (4, 2, 40_000)
    expected = np.einsum("op,mn->monp", B, RBF(1.0)(Q)).reshape(8, 8)
    np.testing.assert_allclose(np.cov(draws.reshape(8, -1)), expected, atol=0.05)
    with pytest.raises(ValueError, match="give it, or fit first"):
        CoregionalizedGaussianProcessRegressor().sample_y(Q)


@pytest.mark.parametrize(
    "noise",
    [
        {"output_noise": [[0.1, 0.2], [0.2, 0.1]]},
        {"noise_covariance": np.diag([-0.01] + 29 * [1.0])},
    ],
    ids=list,
)
def test_noise_that_is_no_covariance_is_named_as_the_cause(noise):
    with pytest.raises(ValueError, match=f"{next(iter(noise))} is not positive definite"):
        fixed().fit(X, Y, **noise)
