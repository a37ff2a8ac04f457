"""Exact GP regression against scikit-learn, against the formulas written out, and against differences."""

import warnings

import numpy as np
import pytest
import sklearn.gaussian_process.kernels as sk
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor as SklearnGP

from gp_core import GaussianProcessRegressor
from gp_core.basis import GaussianBasis
from gp_core.kernels import RBF, BasisFunctions, Exponential, Linear, Matern, Metric, RationalQuadratic, White
from gp_core.linalg import JitterWarning
from gp_core.priors import Gamma, InverseGamma, LogNormal
from gp_core.regression import ConstantMean, LinearMean

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (40, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=40)
Y2 = np.stack([Y, np.cos(X[:, 1]) + 0.1 * RNG.normal(size=40)], axis=1)
Q = RNG.uniform(-3.0, 3.0, (15, 2))
STEP = 1e-6

PAIRS = [
    (2.0 * RBF([1.0, 2.0]), sk.ConstantKernel(2.0) * sk.RBF([1.0, 2.0])),
    (1.5 * Matern(1.2, nu=1.5), sk.ConstantKernel(1.5) * sk.Matern(1.2, nu=1.5)),
    (1.5 * Matern([1.2, 0.8], nu=2.5), sk.ConstantKernel(1.5) * sk.Matern([1.2, 0.8], nu=2.5)),
    (RBF(1.0) + 0.5 * Linear(), sk.RBF(1.0) + sk.ConstantKernel(0.5) * sk.DotProduct(0.0, "fixed")),
    (2.0 * RationalQuadratic(1.0, alpha=0.7), sk.ConstantKernel(2.0) * sk.RationalQuadratic(1.0, 0.7)),
    (RBF(0.8) * Matern(2.0), sk.RBF(0.8) * sk.Matern(2.0)),
]


def fixed(kernel, **options):
    return GaussianProcessRegressor(kernel, optimizer=None, **({"noise_variance": 0.01} | options))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda k: str(k)[:40])
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("normalize", [False, True])
def test_prediction_matches_scikit_learn(ours, theirs, y, normalize):
    a = fixed(ours, normalize_y=normalize).fit(X, y)
    b = SklearnGP(theirs, alpha=0.01, optimizer=None, normalize_y=normalize).fit(X, y)
    for got, expected in zip(a.predict(Q, return_std=True), b.predict(Q, return_std=True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        a.predict(Q, return_cov=True)[1], b.predict(Q, return_cov=True)[1], rtol=1e-6, atol=1e-9
    )
    assert a.log_marginal_likelihood() == pytest.approx(b.log_marginal_likelihood_value_, rel=1e-9)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda k: str(k)[:40])
def test_likelihood_gradient_matches_scikit_learn(ours, theirs):
    a = fixed(ours).fit(X, Y2)
    b = SklearnGP(theirs + sk.WhiteKernel(0.01), alpha=0.0, optimizer=None).fit(X, Y2)
    value, gradient = a.log_marginal_likelihood(a.theta_, eval_gradient=True)
    expected, expected_gradient = b.log_marginal_likelihood(b.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-9)
    # theirs: kernel, then noise; ours: noise, then kernel
    np.testing.assert_allclose(sorted(gradient), sorted(expected_gradient), rtol=1e-6, atol=1e-7)
    assert gradient[0] == pytest.approx(expected_gradient[-1], rel=1e-6)


def test_learned_hyperparameters_match_scikit_learn():
    a = GaussianProcessRegressor(1.0 * RBF([1.0, 1.0]), noise_variance=0.1).fit(X, Y)
    b = SklearnGP(sk.ConstantKernel() * sk.RBF([1.0, 1.0]) + sk.WhiteKernel(0.1)).fit(X, Y)
    assert a.log_marginal_likelihood_value_ == pytest.approx(b.log_marginal_likelihood_value_, abs=1e-4)
    np.testing.assert_allclose(a.kernel_.theta, b.kernel_.theta[:3], atol=1e-2)
    assert a.noise_variance_ == pytest.approx(b.kernel_.k2.noise_level, rel=1e-2)


def test_the_formulas_written_out():
    kernel = 2.0 * RBF(1.0)
    gp = fixed(kernel).fit(X, Y)
    A = kernel(X) + 0.01 * np.eye(40)
    k = kernel(Q, X)
    np.testing.assert_allclose(gp.predict(Q), k @ np.linalg.solve(A, Y), rtol=1e-8)
    covariance = kernel(Q) - k @ np.linalg.solve(A, k.T)
    np.testing.assert_allclose(gp.predict(Q, return_cov=True)[1], covariance, atol=1e-9)
    np.testing.assert_allclose(gp.predict(Q, return_std=True)[1] ** 2, np.diag(covariance), rtol=1e-6)
    assert gp.log_marginal_likelihood() == pytest.approx(
        multivariate_normal(np.zeros(40), A).logpdf(Y), rel=1e-9
    )
    noisy = gp.predict(Q, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, np.diag(covariance) + 0.01, rtol=1e-6)
    np.testing.assert_allclose(
        gp.predict(Q, return_cov=True, include_noise=True)[1], covariance + 0.01 * np.eye(15), atol=1e-9
    )


@pytest.mark.parametrize(
    "model",
    [
        {"kernel": 1.3 * RBF([1.0, 2.0]) + White(0.1)},
        {"kernel": 1.3 * Matern([1.0, 2.0], nu=0.5)},
        {"kernel": 1.3 * Matern(1.0, nu=0.7), "noise_variance": 0.0},
        {"kernel": RBF(1.0) * RationalQuadratic(2.0) + Exponential(0.5), "normalize_y": True},
        {"kernel": Metric(RBF(1.0, "fixed"), [1.0, 2.0], [[0.3, -0.4]]), "mean": ConstantMean(0.5)},
        {"kernel": RBF(1.0), "mean": LinearMean([0.1, 0.2], 0.3)},
        {"kernel": RBF(1.0), "mean": LinearMean([0.1, 0.2], 0.3, bias_bounds="fixed")},
        {"kernel": BasisFunctions(GaussianBasis([[0.0, 1.0], [1.0, 0.0]], 1.0, centers_bounds=(-5.0, 5.0)))},
    ],
    ids=lambda m: str(m["kernel"])[:40],
)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [None, "points", "full"])
def test_likelihood_gradient_against_differences(model, y, noise):
    known = {"points": np.linspace(0.01, 0.2, 40), "full": 0.1 * RBF(0.3)(X), None: None}[noise]
    if noise and y.ndim == 2:
        model = model | {"normalize_y": False}  # the two together are refused, see test_bad_input
    gp = fixed(**model).fit(X, y, noise_covariance=known)
    theta = gp.theta_
    _, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
    numeric = [
        (gp.log_marginal_likelihood(theta + STEP * e) - gp.log_marginal_likelihood(theta - STEP * e))
        / (2 * STEP)
        for e in np.eye(len(theta))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def test_learning_climbs_and_ends_at_a_stationary_point():
    gp = GaussianProcessRegressor(1.0 * RBF([1.0, 1.0]), noise_variance=0.5)
    before = fixed(gp.kernel, noise_variance=0.5).fit(X, Y).log_marginal_likelihood_value_
    gp.fit(X, Y)
    assert gp.optimum_.converged
    assert gp.log_marginal_likelihood_value_ > before
    _, gradient = gp.log_marginal_likelihood(gp.theta_, eval_gradient=True)
    free = ~gp.optimum_.at_bound
    assert np.abs(gradient[free]).max() < 1e-2


def test_fixed_parameters_stay():
    kernel = 1.0 * RBF(0.7, "fixed")
    gp = GaussianProcessRegressor(kernel, noise_variance=0.3, noise_variance_bounds="fixed").fit(X, Y)
    assert gp.noise_variance_ == 0.3
    assert gp.kernel_.values()["length_scale"] == 0.7
    assert gp.theta_names_ == ("scale",)


def local_maxima_data():
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-4.0, 4.0, 9))[:, None]
    return x, np.sin(x[:, 0]) + 0.2 * rng.normal(size=9)


def test_restarts_find_at_least_as_good_a_maximum_and_are_reproducible():
    x, y = local_maxima_data()
    start = 1.0 * RBF(50.0, (1e-1, 1e2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        once = GaussianProcessRegressor(start, noise_variance=2.0).fit(x, y)
        runs = [
            GaussianProcessRegressor(start, noise_variance=2.0, n_restarts_optimizer=5, random_state=1).fit(
                x, y
            )
            for _ in range(2)
        ]
    assert runs[0].log_marginal_likelihood_value_ > once.log_marginal_likelihood_value_ + 0.1
    np.testing.assert_array_equal(runs[0].theta_, runs[1].theta_)


def test_too_few_iterations_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        GaussianProcessRegressor(1.0 * RBF([1.0, 1.0]), max_iter=1).fit(X, Y)


# -- noise ---------------------------------------------------------------------------------------------


def test_noise_free_interpolates_with_no_variance_left():
    gp = fixed(RBF(1.0), noise_variance=0.0).fit(X[:10], Y[:10])
    mean, std = gp.predict(X[:10], return_std=True)
    np.testing.assert_allclose(mean, Y[:10], atol=1e-8)
    np.testing.assert_allclose(std, 0.0, atol=1e-5)
    assert "noise_variance" not in gp.theta_names_


def test_noise_per_point_and_full_covariance():
    variances = np.linspace(0.01, 0.5, 40)
    by_points = fixed(RBF(1.0), noise_variance=0.0).fit(X, Y, noise_covariance=variances)
    by_matrix = fixed(RBF(1.0), noise_variance=0.0).fit(X, Y, noise_covariance=np.diag(variances))
    sklearn = SklearnGP(sk.RBF(1.0), alpha=variances, optimizer=None).fit(X, Y)
    np.testing.assert_allclose(by_points.predict(Q), sklearn.predict(Q), rtol=1e-8)
    np.testing.assert_allclose(by_matrix.predict(Q), by_points.predict(Q), rtol=1e-10)
    correlated = 0.2 * RBF(0.5)(X) + 0.01 * np.eye(40)
    gp = fixed(RBF(1.0), noise_variance=0.05).fit(X, Y, noise_covariance=correlated)
    A = RBF(1.0)(X) + correlated + 0.05 * np.eye(40)
    np.testing.assert_allclose(gp.predict(Q), RBF(1.0)(Q, X) @ np.linalg.solve(A, Y), rtol=1e-8)


def test_known_noise_is_in_the_units_of_y():
    variances = np.linspace(0.1, 0.5, 40)
    plain = fixed(RBF(1.0), noise_variance=0.0).fit(X, Y, variances)
    scaled = fixed(RBF(1.0), noise_variance=0.0, normalize_y=True).fit(X, Y, variances)
    A = RBF(1.0)(X) * Y.var() + np.diag(variances)
    expected = Y.mean() + Y.var() * RBF(1.0)(Q, X) @ np.linalg.solve(A, Y - Y.mean())
    np.testing.assert_allclose(scaled.predict(Q), expected, rtol=1e-8)
    assert not np.allclose(plain.predict(Q), expected)


def test_duplicates_without_noise_get_reported_jitter():
    twice, y = np.concatenate([X[:5], X[:5]]), np.concatenate([Y[:5], Y[:5]])
    with pytest.warns(JitterWarning, match="added to its diagonal"):
        gp = fixed(RBF(1.0), noise_variance=0.0).fit(twice, y)
    assert gp.jitter_ > 0.0
    np.testing.assert_allclose(gp.predict(X[:5]), Y[:5], atol=1e-4)
    assert fixed(RBF(1.0)).fit(X, Y).jitter_ == 0.0


# -- means, priors, outputs ----------------------------------------------------------------------------


def test_far_from_data_the_mean_function_remains():
    far = np.full((1, 2), 100.0)
    assert fixed(RBF(1.0), mean=3.0).fit(X, Y).predict(far)[0] == pytest.approx(3.0)
    assert fixed(RBF(1.0), mean=lambda P: P[:, 0]).fit(X, Y).predict(far)[0] == pytest.approx(100.0)
    per_output = fixed(RBF(1.0), mean=ConstantMean([1.0, 2.0])).fit(X, Y2)
    np.testing.assert_allclose(per_output.predict(far)[0], [1.0, 2.0])


def test_a_mean_is_the_same_as_fitting_the_rest():
    def mean(P):
        return 1.0 + 2.0 * P[:, 0]

    a = fixed(RBF(1.0), mean=mean).fit(X, Y)
    b = fixed(RBF(1.0)).fit(X, Y - mean(X))
    np.testing.assert_allclose(a.predict(Q), b.predict(Q) + mean(Q), rtol=1e-9)


def test_a_linear_mean_is_learned():
    rng = np.random.default_rng(1)
    y = 5.0 + X @ [1.0, -2.0] + 0.05 * rng.normal(size=40)
    gp = GaussianProcessRegressor(0.1 * RBF(1.0), mean=LinearMean([0.0, 0.0])).fit(X, y)
    np.testing.assert_allclose(gp.mean_.weights, [1.0, -2.0], atol=0.1)
    assert gp.mean_.bias == pytest.approx(5.0, abs=0.2)
    assert "mean.weights[0]" in gp.theta_names_


def test_priors_pull_the_hyperparameters():
    free = GaussianProcessRegressor(1.0 * RBF(1.0)).fit(X, Y)
    held = GaussianProcessRegressor(1.0 * RBF(1.0), priors={"length_scale": LogNormal(0.2, 0.01)}).fit(X, Y)
    assert held.kernel_.values()["length_scale"] == pytest.approx(0.2, rel=0.05)
    assert free.kernel_.values()["length_scale"] > 1.0
    assert held.log_marginal_likelihood_value_ < free.log_marginal_likelihood_value_
    both = {"noise_variance": InverseGamma(3.0, 1.0), "scale": Gamma(2.0, 1.0)}
    assert (
        GaussianProcessRegressor(1.0 * RBF(1.0), priors=both).fit(X, Y).noise_variance_ > free.noise_variance_
    )


def test_outputs_are_independent_given_the_hyperparameters():
    both = fixed(RBF(1.0)).fit(X, Y2)
    for o in range(2):
        one = fixed(RBF(1.0)).fit(X, Y2[:, o])
        np.testing.assert_allclose(both.predict(Q)[:, o], one.predict(Q), rtol=1e-9)
        np.testing.assert_allclose(both.predict_gradient(Q)[:, o], one.predict_gradient(Q), rtol=1e-9)
        np.testing.assert_allclose(
            both.predict(Q, return_std=True)[1][:, o], one.predict(Q, return_std=True)[1]
        )
    total = sum(fixed(RBF(1.0)).fit(X, Y2[:, o]).log_marginal_likelihood_value_ for o in range(2))
    assert both.log_marginal_likelihood_value_ == pytest.approx(total)


def test_relevance_finds_the_input_that_matters():
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-3.0, 3.0, (80, 3))
    y = np.sin(2.0 * inputs[:, 1]) + 0.3 * inputs[:, 0] + 0.05 * rng.normal(size=80)
    gp = GaussianProcessRegressor(1.0 * RBF([1.0, 1.0, 1.0])).fit(inputs, y)
    relevance = gp.relevance_
    assert relevance[1] > relevance[0] > relevance[2]
    assert relevance[2] < 1e-2 * relevance[1]
    with pytest.raises(AttributeError, match="one length scale per input"):
        _ = GaussianProcessRegressor(RBF(1.0), optimizer=None).fit(inputs, y).relevance_


# -- gradient ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [2.0 * RBF([1.0, 2.0]), Matern(1.0, nu=1.5), RBF(1.0) * Linear() + Matern(2.0, nu=2.5)]
)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_gradient_of_the_mean_against_differences(kernel, y):
    gp = fixed(kernel, mean=LinearMean([0.5, -0.5], 1.0), normalize_y=True).fit(X, y)
    gradient = gp.predict_gradient(Q)
    for d in range(2):
        e = STEP * np.eye(2)[d]
        numeric = (gp.predict(Q + e) - gp.predict(Q - e)) / (2 * STEP)
        np.testing.assert_allclose(gradient[..., d], numeric, rtol=1e-5, atol=1e-6)


def test_gradient_covariance_is_the_limit_of_differences():
    gp = fixed(2.0 * RBF([1.0, 2.0])).fit(X, Y)
    h = 1e-3
    mean, covariance = gp.predict_gradient(Q, return_cov=True)
    _, std = gp.predict_gradient(Q, return_std=True)
    assert mean.shape == std.shape == (15, 2)
    for i, q in enumerate(Q):
        stencil = np.array([q + h * s * e for e in np.eye(2) for s in (1.0, -1.0)])
        C = gp.predict(stencil, return_cov=True)[1]
        D = np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]) / (2.0 * h)
        np.testing.assert_allclose(covariance[i], D @ C @ D.T, atol=1e-4)
        np.testing.assert_allclose(std[i] ** 2, np.diag(covariance[i]), rtol=1e-9)


def test_gradient_of_a_rough_process_is_refused():
    with pytest.raises(ValueError, match="no derivative"):
        fixed(Exponential(1.0)).fit(X, Y).predict_gradient(Q)


# -- samples -------------------------------------------------------------------------------------------


def test_posterior_samples_have_the_posterior_moments():
    gp = fixed(2.0 * RBF(1.0), mean=1.0).fit(X[:10], Y[:10])
    draws = gp.sample_y(Q, 20000, random_state=0)
    assert draws.shape == (15, 20000)
    mean, covariance = gp.predict(Q, return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.12)


def test_prior_samples_before_fit():
    draws = GaussianProcessRegressor(2.0 * RBF(1.0), mean=5.0).sample_y(Q, 20000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), 5.0, atol=0.06)
    np.testing.assert_allclose(np.cov(draws), 2.0 * RBF(1.0)(Q), atol=0.12)


def test_samples_are_reproducible_and_have_the_shape_of_the_outputs():
    gp = fixed(RBF(1.0), normalize_y=True).fit(X, Y2)
    a, b = (gp.sample_y(Q, 3, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert a.shape == (15, 2, 3)
    rng = np.random.default_rng(7)
    np.testing.assert_array_equal(gp.sample_y(Q, 3, random_state=rng), a)
    assert not np.allclose(gp.sample_y(Q, 3, random_state=rng), a)


def test_samples_pass_through_noise_free_data():
    gp = fixed(RBF(1.0), noise_variance=0.0).fit(X[:8], Y[:8])
    draws = gp.sample_y(X[:8], 5, random_state=0)
    np.testing.assert_allclose(draws, np.repeat(Y[:8, None], 5, axis=1), atol=1e-2)


# -- batches, bad input --------------------------------------------------------------------------------


def test_prediction_in_batches_is_the_same(monkeypatch):
    gp = fixed(RBF(1.0)).fit(X, Y2)
    whole = [*gp.predict(Q, return_std=True), *gp.predict_gradient(Q, return_std=True)]
    monkeypatch.setattr("gp_core.regression.gaussian_process._BATCH_ENTRIES", 130)
    parts = [*gp.predict(Q, return_std=True), *gp.predict_gradient(Q, return_std=True)]
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("n", [1, 2])
def test_few_points(n):
    gp = GaussianProcessRegressor().fit(X[:n], Y[:n])
    assert np.isfinite(gp.predict(Q, return_std=True)).all()


def test_constant_targets():
    gp = GaussianProcessRegressor(normalize_y=True).fit(X, np.full(40, 3.0))
    np.testing.assert_allclose(gp.predict(Q), 3.0, atol=1e-6)


class Indefinite(RBF):
    """-k, which no noise below 1 can repair."""

    def _matrix(self, X, Z):
        return -super()._matrix(X, Z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fixed(RBF(1.0)).fit(X[:0], Y[:0]), "0 sample"),
        (lambda: fixed(RBF(1.0)).fit(X, Y[:-1]), "inconsistent"),
        (lambda: fixed(RBF(1.0)).fit(X, np.where(Y > 1.0, np.nan, Y)), "NaN"),
        (lambda: fixed(RBF(1.0)).fit(np.where(X > 2.0, np.inf, X), Y), "infinity"),
        (lambda: fixed(Indefinite(1.0)).fit(X, Y), "not positive definite here: raise noise_variance"),
        (lambda: GaussianProcessRegressor(Indefinite(1.0)).fit(X, Y), "not positive definite here"),
        (lambda: fixed("rbf").fit(X, Y), "gp_core kernel"),
        (lambda: fixed(RBF(1.0), noise_variance=-1.0).fit(X, Y), "noise_variance must be >= 0"),
        (lambda: GaussianProcessRegressor(optimizer="adam").fit(X, Y), "lbfgs"),
        (lambda: GaussianProcessRegressor(n_restarts_optimizer=-1).fit(X, Y), "n_restarts_optimizer"),
        (lambda: GaussianProcessRegressor(max_iter=0).fit(X, Y), "max_iter"),
        (lambda: GaussianProcessRegressor(priors={"lengthscale": Gamma()}).fit(X, Y), "there are"),
        (lambda: fixed(RBF(1.0)).fit(X, Y, noise_covariance=[1.0]), r"\(40,\)"),
        (lambda: fixed(RBF(1.0)).fit(X, Y, noise_covariance=-np.ones(40)), "negative variance"),
        (lambda: fixed(RBF(1.0)).fit(X, Y, noise_covariance=np.ones((2, 2))), r"\(40, 40\)"),
        (lambda: fixed(RBF(1.0)).fit(X, Y, noise_covariance=np.ones((40, 2))), "is for Coregionalized"),
        (lambda: fixed(RBF(1.0)).fit(X, Y, noise_covariance=-5.0 * np.eye(40)), "not positive definite"),
        (lambda: fixed(RBF(1.0), normalize_y=True).fit(X, Y2, np.ones(40)), "scale y yourself"),
        (lambda: fixed(RBF(1.0), mean=lambda P: np.zeros(3)).fit(X, Y), "one row per point"),
        (lambda: fixed(RBF(1.0), mean=lambda P: np.full(len(P), np.nan)).fit(X, Y), "NaN"),
        (lambda: fixed(RBF(1.0), mean=ConstantMean([1.0, 2.0, 3.0])).fit(X, Y2), "3 outputs"),
        (lambda: fixed(RBF(1.0), mean=LinearMean([1.0])).fit(X, Y), "1 weights"),
        (lambda: fixed(RBF(1.0)).fit(X, Y).predict(Q[:, :1]), "1 features"),
        (lambda: fixed(RBF(1.0)).fit(X, Y).predict(Q, return_std=True, return_cov=True), "not both"),
        (lambda: fixed(RBF(1.0)).fit(X, Y).predict_gradient(Q, return_std=True, return_cov=True), "not both"),
        (lambda: fixed(RBF(1.0), mean=lambda P: P[:, 0]).fit(X, Y).predict_gradient(Q), "no gradient"),
        (lambda: fixed(RBF(1.0)).fit(X, Y).log_marginal_likelihood([1.0]), "theta"),
        (lambda: fixed(RBF(1.0)).fit(X, Y).sample_y(Q, 0), "n_samples"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_predicting_before_fit():
    with pytest.raises(NotFittedError):
        GaussianProcessRegressor().predict(Q)


def test_known_noise_with_a_negative_eigenvalue_is_refused_also_where_the_kernel_outweighs_it():
    noise = 0.01 * np.eye(40)
    noise[0, 1] = noise[1, 0] = 0.05
    with pytest.raises(ValueError, match="noise_covariance is not positive definite"):
        fixed(RBF(1.0), noise_variance=1.0).fit(X, Y, noise_covariance=noise)
    fixed(RBF(1.0)).fit(X, Y, noise_covariance=np.zeros((40, 40)))


def test_an_error_names_the_parameter_as_the_user_wrote_it():
    with pytest.raises(ValueError, match=r"^noise_variance must be >= 0, got -1\.0$"):
        GaussianProcessRegressor(noise_variance=-1.0).fit(X, Y)
