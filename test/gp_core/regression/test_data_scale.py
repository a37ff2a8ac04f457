"""Fits follow the scale of the data: starts, bounds and restarts; warnings where something is at its bound."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import gp_core
from gp_core import GaussianProcessRegressor
from gp_core.estimators import report
from gp_core.kernels import RBF, Columns, Constant, Exponential, Linear, Metric, Polynomial, Scaled, White
from gp_core.optimize import minimize
from gp_core.regression import ConstantMean, LinearMean
from gp_core.scales import DataScale, search_space

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (40, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=40)
Q = RNG.uniform(-3.0, 3.0, (15, 2))


@pytest.mark.parametrize("kernel", [None, 1.0 * RBF(1.0), 1.0 * RBF([1.0, 1.0])], ids=repr)
@pytest.mark.parametrize(("inputs", "outputs"), [(1e4, 1.0), (1e-4, 1.0), (1.0, 1e-6), (1.0, 1e6)])
def test_units_do_not_matter(kernel, inputs, outputs):
    plain = GaussianProcessRegressor(kernel).fit(X, Y)
    scaled = GaussianProcessRegressor(kernel).fit(X * inputs, Y * outputs)
    expected = plain.log_marginal_likelihood_value_ - len(X) * np.log(outputs)
    assert scaled.log_marginal_likelihood_value_ == pytest.approx(expected, abs=1e-2)
    np.testing.assert_allclose(scaled.predict(Q * inputs) / outputs, plain.predict(Q), atol=1e-2)


@pytest.mark.parametrize("length_scale", [1e-3, 1e4], ids=["diagonal", "constant"])
def test_a_flat_start_is_left(length_scale):
    good = GaussianProcessRegressor(1.0 * RBF(1.0)).fit(X, Y)
    flat = GaussianProcessRegressor(1.0 * RBF(length_scale)).fit(X, Y)
    assert flat.log_marginal_likelihood_value_ == pytest.approx(good.log_marginal_likelihood_value_, abs=1e-2)


def test_restarts_are_drawn_where_the_data_are():
    data = load_wine().data  # twelve inputs with spreads from 0.1 to 300
    kernel = 1.0 * RBF(np.ones(12))
    gp = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gp.fit(data[:, 1:], data[:, 0])
    reached = -np.array(gp.optimum_.run_values[-3:])
    assert (reached > -180.0).all()  # drawn over (1e-5, 1e5) nine of ten ended at -252.57
    assert gp.log_marginal_likelihood_value_ == pytest.approx(-176.95, abs=0.1)


def test_a_parameter_at_its_bound_is_named():
    with pytest.warns(ConvergenceWarning, match=r"length_scale is at its upper bound 0\.1\b"):
        GaussianProcessRegressor(1.0 * RBF(0.05, (0.01, 0.1))).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="noise_variance is at its lower bound 0.5"):
        GaussianProcessRegressor(1.0 * RBF(1.0), noise_variance=1.0, noise_variance_bounds=(0.5, 2.0)).fit(
            X, Y
        )


def test_an_idle_input_at_its_bound_is_no_cause_for_alarm(recwarn):
    gp = GaussianProcessRegressor(1.0 * RBF([1.0, 1.0], [(1e-2, 1e2), (1e-2, 1e6)])).fit(
        X, np.sin(X[:, 0]) + 0.1 * np.random.default_rng(4).normal(size=40)
    )
    assert gp.relevance_[1] < 1e-3
    assert not [w for w in recwarn if "length_scale" in str(w.message)]


def test_bounds_that_are_given_hold():
    gp = GaussianProcessRegressor(
        Scaled(RBF(5.0, (4.0, 6.0)), 2.0, (1.0, 3.0)), n_restarts_optimizer=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gp.fit(X, Y)
    assert 4.0 - 1e-9 <= gp.kernel_.values()["length_scale"] <= 6.0 + 1e-9
    assert 1.0 - 1e-9 <= gp.kernel_.values()["scale"] <= 3.0 + 1e-9


def test_the_search_space_of_every_part():
    inputs = X * [1.0, 1000.0]
    kernel = (
        2.0 * Columns(Exponential(1.0), 1)
        + Constant(1.0) * Metric(Polynomial(2), [1.0, 1.0], [[0.0, 1.0]])
        + 3.0 * Linear()
        + White(0.1)
    )
    data = DataScale.of(inputs, 10.0 * Y[:, None])
    space = search_space(kernel, data)
    names = kernel.theta_names
    typical = dict(
        zip(names, np.where(kernel.signed, space.candidates[2], np.exp(space.candidates[2])), strict=True)
    )
    spread = inputs.std(axis=0)
    assert typical["k0.length_scale"] == pytest.approx(spread[1])
    assert typical["k1.metric.length_scale[1]"] == pytest.approx(spread[1] * np.sqrt(2.0))
    variance = np.mean((10.0 * Y) ** 2)
    assert typical["k0.scale"] == pytest.approx(variance)
    assert typical["k2.scale"] == pytest.approx(variance / np.mean(np.sum(inputs**2, axis=1)))
    assert typical["k1.value"] == pytest.approx(variance)
    assert typical["k1.metric.factor[0,1]"] == 1.0
    assert (space.bounds[:, 0] <= space.restarts[:, 0]).all()
    assert (space.restarts[:, 1] <= space.bounds[:, 1]).all()
    assert (space.restarts[:, 0] < space.restarts[:, 1]).all()


def test_constant_data_have_a_scale():
    data = DataScale.of(np.ones((5, 2)), np.zeros((5, 1)))
    np.testing.assert_array_equal(data.spreads, 1.0)
    assert data.variance == data.noise == 1.0


def test_out_of_iterations_and_a_failed_line_search_have_different_remedies():
    def rough(x):
        return float(np.sin(1e9 * x[0])) + abs(x[0]), np.array([1e3])

    def valley(x):
        a, b = x
        return (1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2, np.array(
            [-2.0 * (1.0 - a) - 400.0 * a * (b - a * a), 200.0 * (b - a * a)]
        )

    failed = minimize(rough, np.array([0.5]), np.array([[-1.0, 1.0]]))
    assert not failed.converged
    with pytest.warns(ConvergenceWarning, match="line search") as caught:
        report(failed, 0.0)
    assert "max_iter" not in str(caught[0].message)
    early = minimize(valley, np.array([-1.2, 1.0]), np.array([[-4.0, 4.0]] * 2), max_iterations=2)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        report(early, 0.0)


# -- units of the mean, noise of two names ---------------------------------------------------------------


def test_a_mean_is_in_the_units_of_y():
    far = np.full((1, 2), 1e3)
    y = 500.0 + 20.0 * Y
    for mean in (480.0, lambda P: np.full(len(P), 480.0), ConstantMean(480.0, "fixed")):
        gp = GaussianProcessRegressor(RBF(1.0), mean=mean, normalize_y=True, optimizer=None).fit(X, y)
        assert gp.predict(far)[0] == pytest.approx(480.0)
    learned = GaussianProcessRegressor(1.0 * RBF(1.0), mean=ConstantMean(0.0), normalize_y=True).fit(X, y)
    assert learned.mean_.value == pytest.approx(500.0, abs=40.0)
    assert learned.predict(far)[0] == pytest.approx(learned.mean_.value)
    assert GaussianProcessRegressor(RBF(1.0), normalize_y=True, optimizer=None).fit(X, y).predict(far)[
        0
    ] == pytest.approx(y.mean())


def test_gradient_of_the_likelihood_by_a_mean_under_normalisation():
    gp = GaussianProcessRegressor(
        RBF(1.0), mean=LinearMean([1.0, 2.0], 3.0), normalize_y=True, optimizer=None
    )
    gp.fit(X, 100.0 * Y)
    _, gradient = gp.log_marginal_likelihood(gp.theta_, eval_gradient=True)
    step = 1e-5
    numeric = [
        (gp.log_marginal_likelihood(gp.theta_ + step * e) - gp.log_marginal_likelihood(gp.theta_ - step * e))
        / (2.0 * step)
        for e in np.eye(len(gp.theta_))
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_white_and_noise_variance_predict_alike():
    by_model = GaussianProcessRegressor(2.0 * RBF(1.0), noise_variance=0.3, optimizer=None).fit(X, Y)
    by_kernel = GaussianProcessRegressor(2.0 * RBF(1.0) + White(0.3), noise_variance=0.0, optimizer=None).fit(
        X, Y
    )
    for options in ({"return_std": True}, {"return_cov": True}):
        for noisy in (False, True):
            a = by_model.predict(Q, include_noise=noisy, **options)
            b = by_kernel.predict(Q, include_noise=noisy, **options)
            np.testing.assert_allclose(a[1], b[1], atol=1e-9)
    np.testing.assert_allclose(
        by_model.sample_y(Q, 2, random_state=1), by_kernel.sample_y(Q, 2, random_state=1), atol=1e-5
    )
    before = [
        GaussianProcessRegressor(k).sample_y(Q, 2, random_state=1) for k in (RBF(1.0), RBF(1.0) + White(9.0))
    ]
    np.testing.assert_allclose(before[0], before[1], atol=1e-5)


# -- saddles, parameters by name -------------------------------------------------------------------------


def test_a_factor_of_zeros_learns():
    rng = np.random.default_rng(3)
    inputs = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.sin(2.0 * (inputs[:, 0] + inputs[:, 1])) + 0.05 * rng.normal(size=60)
    kernel = 1.0 * Metric(RBF(1.0, "fixed"), [2.0, 2.0], np.zeros((1, 2)))
    gp = GaussianProcessRegressor(kernel).fit(inputs, y)
    diagonal = GaussianProcessRegressor(1.0 * RBF([2.0, 2.0])).fit(inputs, y)
    assert np.abs(gp.kernel_.kernel.factor).max() > 0.1
    assert gp.log_marginal_likelihood_value_ > diagonal.log_marginal_likelihood_value_ + 5.0
    for none in (None, 0.0):
        assert Metric(RBF(1.0), 1.0, none).n_theta == 2


def test_kernel_parameters_by_name():
    gp = GaussianProcessRegressor(1.0 * RBF(1.0), mean=ConstantMean(1.0), optimizer=None)
    assert gp.get_params()["kernel__length_scale"] == 1.0
    gp.set_params(kernel__length_scale=2.0, kernel__length_scale_bounds="fixed", noise_variance=0.5)
    assert gp.kernel == 1.0 * RBF(2.0, "fixed")
    assert gp.noise_variance == 0.5
    gp.set_params(kernel=RBF(1.0) + 3.0 * RBF(4.0), kernel__k1__length_scale=5.0, mean__mean__value=2.0)
    assert gp.kernel == RBF(1.0) + 3.0 * RBF(5.0)
    assert gp.mean == ConstantMean(2.0)
    with pytest.raises(ValueError, match="no parameter 'width'"):
        gp.set_params(kernel__width=1.0)
    with pytest.raises(ValueError, match="Invalid parameter"):
        gp.set_params(colour="red")
    assert clone(gp).kernel == gp.kernel
    search = GridSearchCV(
        GaussianProcessRegressor(1.0 * RBF(1.0), optimizer=None), {"kernel__length_scale": [1e-3, 1.5]}, cv=3
    )
    assert search.fit(X, Y).best_params_ == {"kernel__length_scale": 1.5}


@pytest.mark.parametrize("kernel", [RBF(1.0), 1.0 * RBF([1.0, 2.0])], ids=repr)
def test_a_fitted_model_is_displayed(kernel):
    gp = GaussianProcessRegressor(kernel, optimizer=None).fit(X, Y)
    assert "GaussianProcessRegressor" in gp._repr_html_()
    assert hasattr(gp, "relevance_") == (np.ndim(kernel.values()["length_scale"]) == 1)


def test_every_estimator_with_a_kernel_sets_its_parameters_by_name():
    for name in sorted(gp_core.__all__):
        estimator = getattr(gp_core, name)
        if "kernel" not in estimator.__init__.__code__.co_varnames:
            continue
        model = estimator(kernel=1.0 * RBF(1.0)).set_params(kernel__length_scale=2.0)
        assert model.kernel == 1.0 * RBF(2.0), name
