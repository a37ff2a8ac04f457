"""Nadaraya-Watson against statsmodels, and its leave-one-out bandwidth."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.integrate import trapezoid
from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional
from statsmodels.nonparametric.kernel_regression import KernelReg

from gp_core import NadarayaWatson
from gp_core.kernels import RBF, Linear, Matern, RationalQuadratic
from gp_core.parallel import available_threads
from gp_core.regression.nadaraya_watson import leave_one_out

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3.0, 3.0, 60))[:, None]
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=60)
Q = np.linspace(-3.0, 3.0, 11)[:, None]
X2 = RNG.uniform(-2.0, 2.0, (50, 2))
Y2 = np.stack([np.sin(X2[:, 0]), X2[:, 1]], axis=1)


@pytest.mark.parametrize("h", [0.1, 0.5, 2.0])
def test_mean_is_statsmodels(h):
    reference = KernelReg(Y, X, "c", reg_type="lc", bw=[h]).fit(Q)[0]
    np.testing.assert_allclose(
        NadarayaWatson(RBF(h), optimizer=None).fit(X, Y).predict(Q), reference, rtol=1e-8
    )


def test_mean_is_statsmodels_with_a_bandwidth_per_input():
    reference = KernelReg(Y2[:, 0], X2, "cc", reg_type="lc", bw=[0.5, 1.5]).fit(X2[:9])[0]
    ours = NadarayaWatson(RBF([0.5, 1.5]), optimizer=None).fit(X2, Y2[:, 0])
    np.testing.assert_allclose(ours.predict(X2[:9]), reference, rtol=1e-8)


def test_bandwidth_by_leave_one_out_is_statsmodels():
    reference = KernelReg(Y, X, "c", reg_type="lc", bw="cv_ls")
    ours = NadarayaWatson(RBF(0.5)).fit(X, Y)
    assert ours.kernel_.length_scale == pytest.approx(reference.bw[0], rel=1e-2)
    scan = [leave_one_out(RBF(h), X, Y[:, None])[0] for h in np.geomspace(0.02, 5.0, 100)]
    assert ours.loo_error_ <= min(scan) + 1e-9


def test_leave_one_out_leaves_one_out():
    kernel = RBF(0.4)
    errors = []
    for i in range(60):
        keep = np.arange(60) != i
        model = NadarayaWatson(kernel, optimizer=None).fit(X[keep], Y[keep])
        errors.append(model.predict(X[i : i + 1])[0] - Y[i])
    assert leave_one_out(kernel, X, Y[:, None])[0] == pytest.approx(np.mean(np.square(errors)), rel=1e-9)
    assert NadarayaWatson(kernel, optimizer=None).fit(X, Y).loo_error_ == pytest.approx(
        np.mean(np.square(errors))
    )


@pytest.mark.parametrize(
    "kernel", [RBF([0.5, 1.0]), Matern(0.7), RationalQuadratic(0.7), RBF(0.5) + Matern(1.0)]
)
@pytest.mark.parametrize("targets", [Y2, Y2[:, :1]])
def test_leave_one_out_gradient_against_differences(kernel, targets):
    step = 1e-6
    numeric = [
        (
            leave_one_out(kernel.with_theta(kernel.theta + step * e), X2, targets)[0]
            - leave_one_out(kernel.with_theta(kernel.theta - step * e), X2, targets)[0]
        )
        / (2.0 * step)
        for e in np.eye(kernel.n_theta)
    ]
    np.testing.assert_allclose(leave_one_out(kernel, X2, targets)[1], numeric, atol=1e-8)


def test_conditional_density_is_statsmodels():
    h, g = 0.5, 0.3
    ours = NadarayaWatson(RBF(h), optimizer=None, target_bandwidth=g).fit(X, Y)
    reference = KDEMultivariateConditional([Y], [X[:, 0]], "c", "c", bw=[g, h])
    t = np.array([-0.5, 0.2, 1.0])
    expected = [[reference.pdf([v], q) for v in t] for q in Q[:4]]
    np.testing.assert_allclose(ours.conditional_density(Q[:4], t), np.squeeze(expected), rtol=1e-7)


def test_mean_and_deviation_are_those_of_the_conditional_density():
    model = NadarayaWatson(RBF(0.4), optimizer=None, target_bandwidth=0.2).fit(X, Y)
    t = np.linspace(-4.0, 4.0, 4001)
    p = model.conditional_density(Q, t)
    mean, std = model.predict(Q, return_std=True)
    np.testing.assert_allclose(trapezoid(p, t), 1.0, rtol=1e-6)
    np.testing.assert_allclose(trapezoid(p * t, t), mean, atol=1e-6)
    np.testing.assert_allclose(trapezoid(p * t**2, t) - mean**2, std**2, rtol=1e-5)


def test_weights_sum_to_one_and_far_away_go_to_the_nearest():
    model = NadarayaWatson(RBF(0.01), optimizer=None).fit(X, Y)
    far = np.array([[-1e6], [1e6], [0.05]])
    np.testing.assert_allclose(model.weights(far).sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict(far[:2]), [Y[0], Y[-1]])


def test_prediction_in_batches_is_the_same(monkeypatch):
    model = NadarayaWatson(RBF(0.5), optimizer=None).fit(X2, Y2)
    whole = model.predict(X2, return_std=True)
    monkeypatch.setattr("gp_core.regression.nadaraya_watson._BLOCK_ENTRIES", 200)
    np.testing.assert_allclose(model.predict(X2, return_std=True), whole, rtol=1e-12)


def test_one_point_and_duplicates():
    one = NadarayaWatson().fit([[1.0]], [2.0])
    assert one.predict([[5.0]])[0] == 2.0
    assert np.isnan(one.loo_error_)
    same = NadarayaWatson().fit(np.ones((5, 1)), np.arange(5.0))
    np.testing.assert_allclose(same.predict([[1.0]]), 2.0)
    assert np.isfinite(same.predict([[1.0]], return_std=True)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NadarayaWatson(Linear()).fit(X, Y), "negative values"),
        (lambda: NadarayaWatson("rbf").fit(X, Y), "gp_core kernel"),
        (lambda: NadarayaWatson(optimizer="cv").fit(X, Y), "loo"),
        (lambda: NadarayaWatson(target_bandwidth=0.0).fit(X, Y), "target_bandwidth must be > 0"),
        (lambda: NadarayaWatson().fit(X2, Y2).conditional_density(X2, [0.0]), "one column per output"),
        (lambda: NadarayaWatson().fit(X, Y).conditional_density(Q, [[0.0]]), "shape"),
        (lambda: NadarayaWatson().fit(X, np.where(Y > 0, np.nan, Y)), "NaN"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_default_bandwidth_does_not_depend_on_the_units_of_an_input():
    rng = np.random.default_rng(1)
    points = rng.uniform(-1.0, 1.0, (300, 2))
    targets = np.sin(3.0 * points[:, 0]) + points[:, 1] ** 2
    queries = rng.uniform(-0.9, 0.9, (200, 2))
    truth = np.sin(3.0 * queries[:, 0]) + queries[:, 1] ** 2
    for units in ([1.0, 1.0], [1e4, 1.0], [1e-7, 1e6]):
        model = NadarayaWatson().fit(points * units, targets)
        assert model.score(queries * units, truth) > 0.97
        np.testing.assert_allclose(model.kernel_.length_scale / np.array(units), [0.09, 0.14], rtol=0.5)


def test_the_fit_holds_far_less_than_the_matrix_of_weights():
    rng = np.random.default_rng(2)
    n = 3000
    points = rng.uniform(-1.0, 1.0, (n, 2))
    model = NadarayaWatson(RBF(0.1), max_iter=2)
    targets = np.sin(3.0 * points[:, 0])
    NadarayaWatson(RBF(0.1), optimizer=None).fit(points[:50], targets[:50])  # modules and caches
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two steps do not converge
        model.fit(points, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One matrix of N^2 weights is 72 MB, the search once held five; a thread's blocks take about 20 MB.
    assert peak < 72e6 + 25e6 * (available_threads() - 2)


def test_conditional_density_of_several_outputs_is_statsmodels():
    h, g = [0.5, 0.7], [0.3, 0.4]
    ours = NadarayaWatson(RBF(h), optimizer=None).fit(X2, Y2)
    ours.target_bandwidth_ = np.array(g)  # one per output, which only the rule gives
    reference = KDEMultivariateConditional(list(Y2.T), list(X2.T), "cc", "cc", bw=[*g, *h])
    t = np.array([[0.1, 0.2], [-0.5, 1.0], [0.7, -0.3]])
    expected = [[reference.pdf(v, q) for v in t] for q in X2[:4]]
    np.testing.assert_allclose(ours.conditional_density(X2[:4], t), np.squeeze(expected), rtol=1e-7)
