"""Student t noise: against integration over all function values, and against what outliers do to normal noise."""

import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning

from gp_core import GaussianProcessRegressor, RobustGaussianProcessRegressor
from gp_core.kernels import RBF, EditDistance
from gp_core.regression import ConstantMean
from gp_core.regression.means import as_mean
from gp_core.regression.student_t import StudentTModel, variational_bound


def waves(n=40, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 6.0, n))[:, None]
    return x, np.sin(x[:, 0]) + noise * rng.normal(size=n)


def exact_posterior(x, y, kernel, s, nu, reach=6.0, nodes=601):
    """log p(y), means and variances of f at two points, by a sum over a fine grid of both function values."""
    f = np.linspace(-reach, reach, nodes)
    F = np.stack(np.meshgrid(f, f, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = stats.multivariate_normal(np.zeros(2), kernel(x)).logpdf(F)
    log_p = log_p + stats.t(nu, scale=np.sqrt(s)).logpdf(y - F).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    evidence = log_p.max() + np.log(p.sum() * (f[1] - f[0]) ** 2)
    p /= p.sum()
    mean = p @ F
    return evidence, mean, p @ np.square(F - mean)


@pytest.mark.parametrize(
    ("y", "nu", "tolerance"), [([0.5, 0.4], 4.0, 0.02), ([0.6, -0.5], 8.0, 0.03), ([0.3, 5.0], 3.0, 0.12)]
)
def test_close_to_the_exact_posterior(y, nu, tolerance):
    x, y, s = np.array([[0.0], [0.7]]), np.array(y), 0.2
    kernel = RBF(1.0)
    evidence, mean, variance = exact_posterior(x, y, kernel, s, nu)
    gp = RobustGaussianProcessRegressor(kernel, noise_variance=s, degrees_of_freedom=nu, optimizer=None).fit(
        x, y
    )
    assert gp.log_marginal_likelihood_value_ < evidence  # a lower bound
    assert gp.log_marginal_likelihood_value_ > evidence - 0.25
    found, std = gp.predict(x, return_std=True)
    np.testing.assert_allclose(found, mean, atol=tolerance)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=0.25)


def test_many_degrees_of_freedom_are_normal_noise():
    x, y = waves()
    normal = GaussianProcessRegressor(RBF(1.0), noise_variance=0.02, optimizer=None).fit(x, y)
    robust = RobustGaussianProcessRegressor(
        RBF(1.0), noise_variance=0.02, degrees_of_freedom=1e7, optimizer=None
    ).fit(x, y)
    for found, expected in zip(
        robust.predict(x, return_std=True), normal.predict(x, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert robust.log_marginal_likelihood() == pytest.approx(normal.log_marginal_likelihood(), abs=1e-4)


def test_the_bound_is_the_one_written_down():
    """With q(lambda) found, every expectation in the bound by quadrature."""
    x, y = waves(6)
    s, nu = 0.05, 3.0
    model = StudentTModel(RBF(1.0), as_mean(None), s, nu, "fixed", "fixed")
    bound = variational_bound(model, x, y, 1.0, np.ones(6))
    D = np.diag(s / bound.precisions)
    total = stats.multivariate_normal(np.zeros(6), RBF(1.0)(x) + D).logpdf(y)
    for precision in bound.precisions:
        q = stats.gamma(0.5 * (nu + 1.0), scale=precision / (0.5 * (nu + 1.0)))
        p = stats.gamma(0.5 * nu, scale=2.0 / nu)
        total += integrate.quad(
            lambda u, q=q, p=p, c=precision: q.pdf(u) * (0.5 * np.log(u / c) + p.logpdf(u) - q.logpdf(u)),
            0.0,
            40.0 * precision,
            limit=400,
        )[0]
    assert bound.value == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("normalize_y", [False, True])
def test_gradient(normalize_y):
    x, y = waves(15)
    y[4] += 3.0
    gp = RobustGaussianProcessRegressor(
        1.3 * RBF(0.8),
        degrees_of_freedom=3.0,
        degrees_of_freedom_bounds=(0.5, 100.0),
        mean=ConstantMean(0.2),
        normalize_y=normalize_y,
        optimizer=None,
    ).fit(x, y)
    theta = gp.theta_ + 0.1
    _, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
    numeric = approx_fprime(theta, gp.log_marginal_likelihood, 1e-5)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3)
    assert len(gradient) == 5


def test_outliers_do_not_pull_the_mean():
    x, y = waves(60)
    truth = np.sin(x[:, 0])
    spoiled = y.copy()
    spoiled[[10, 25, 40]] += [8.0, -12.0, 300.0]
    robust = RobustGaussianProcessRegressor().fit(x, spoiled)
    assert np.sqrt(np.mean(np.square(robust.predict(x) - truth))) < 0.1
    assert (robust.precisions_[[10, 25, 40]] < 0.05).all()
    assert np.median(robust.precisions_) > 0.8
    normal = GaussianProcessRegressor().fit(x, spoiled)
    assert np.sqrt(np.mean(np.square(normal.predict(x) - truth))) > 0.3
    # and without them it is as good as the normal model
    clean, plain = RobustGaussianProcessRegressor().fit(x, y), GaussianProcessRegressor().fit(x, y)
    np.testing.assert_allclose(clean.predict(x), plain.predict(x), atol=0.05)


def test_degrees_of_freedom_are_learned():
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 10.0, 80)[:, None]
    options = {"degrees_of_freedom": 6.0, "degrees_of_freedom_bounds": (0.5, 1e3)}
    heavy = np.sin(x[:, 0]) + 0.1 * rng.standard_t(1.2, size=80)
    light = np.sin(x[:, 0]) + 0.1 * rng.normal(size=80)
    assert RobustGaussianProcessRegressor(**options).fit(x, heavy).degrees_of_freedom_ < 3.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # normal noise drives nu to its bound
        assert RobustGaussianProcessRegressor(**options).fit(x, light).degrees_of_freedom_ > 8.0


def test_intervals_hold_new_observations():
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0.0, 8.0, 80))[:, None]
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_t(3.0, size=80)
    gp = RobustGaussianProcessRegressor(degrees_of_freedom=3.0).fit(x, y)
    q = rng.uniform(0.5, 7.5, (2000, 1))
    new = np.sin(q[:, 0]) + 0.1 * rng.standard_t(3.0, size=2000)
    for level in (0.5, 0.9, 0.99):
        low, high = gp.predict_interval(q, level)
        assert np.mean((low < new) & (new < high)) == pytest.approx(level, abs=0.06)


def test_the_interval_is_that_of_the_sum():
    x, y = waves(10)
    gp = RobustGaussianProcessRegressor(
        RBF(1.0), noise_variance=0.3, degrees_of_freedom=2.5, optimizer=None
    ).fit(x, y)
    mean, std = gp.predict([[8.0]], return_std=True)
    low, high = gp.predict_interval([[8.0]], 0.9)
    inside = integrate.quad(
        lambda f: (
            stats.norm(mean[0], std[0]).pdf(f)
            * np.diff(stats.t(2.5, f, np.sqrt(0.3)).cdf([low[0], high[0]]))[0]
        ),
        mean[0] - 8.0 * std[0],
        mean[0] + 8.0 * std[0],
    )[0]
    assert inside == pytest.approx(0.9, abs=1e-6)
    assert low[0] + high[0] == pytest.approx(2.0 * mean[0])


def test_deviation_of_observations():
    x, y = waves(10)
    heavy = RobustGaussianProcessRegressor(RBF(1.0), degrees_of_freedom=1.5, optimizer=None).fit(x, y)
    assert np.isinf(heavy.predict(x, return_std=True, include_noise=True)[1]).all()
    light = RobustGaussianProcessRegressor(RBF(1.0), noise_variance=0.1, optimizer=None).fit(x, y)
    _, std = light.predict(x, return_std=True)
    _, total = light.predict(x, return_std=True, include_noise=True)
    np.testing.assert_allclose(total**2 - std**2, 0.1 * 4.0 / 2.0)
    _, covariance = light.predict(x, return_cov=True, include_noise=True)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), total)


def test_units_do_not_matter():
    x, y = waves(30)
    y[7] += 5.0
    plain = RobustGaussianProcessRegressor(normalize_y=True).fit(x, y)
    scaled = RobustGaussianProcessRegressor(normalize_y=True).fit(x, 1e6 + 1e3 * y)
    np.testing.assert_allclose(scaled.predict(x), 1e6 + 1e3 * plain.predict(x), rtol=1e-8, atol=1e-2)
    assert scaled.noise_variance_ == pytest.approx(1e6 * plain.noise_variance_, rel=1e-3)


def test_gradients_samples_and_strings():
    x, y = waves(20)
    gp = RobustGaussianProcessRegressor().fit(x, y)
    step = 1e-5
    difference = (gp.predict(x + step) - gp.predict(x - step)) / (2.0 * step)
    np.testing.assert_allclose(gp.predict_gradient(x)[:, 0], difference, atol=1e-5)
    assert gp.sample_y(x, 3, random_state=0).shape == (20, 3)
    words = ["a", "ab", "abc", "abcd", "b", "bc"]
    model = RobustGaussianProcessRegressor(EditDistance(0.5), optimizer=None).fit(
        words, [len(w) for w in words]
    )
    assert model.predict(["abce"]).shape == (1,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degrees_of_freedom": 0.0}, "degrees_of_freedom"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"mean": lambda X: np.zeros((len(X), 2))}, "mean"),
    ],
)
def test_bad_options(options, message):
    x, y = waves(5)
    with pytest.raises(ValueError, match=message):
        RobustGaussianProcessRegressor(**options).fit(x, y)


def test_bad_input():
    x, y = waves(5)
    with pytest.raises(ValueError, match="one model per output"):
        RobustGaussianProcessRegressor().fit(x, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="level"):
        RobustGaussianProcessRegressor(optimizer=None).fit(x, y).predict_interval(x, 1.0)
