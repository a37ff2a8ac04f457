"""Points appended to a fitted process, and its leave-one-out predictions: against fits written out."""

import numpy as np
import pytest
from scipy.stats import norm

from gp_core import GaussianProcessRegressor
from gp_core.kernels import RBF, Columns, EditDistance, White

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (40, 2))
Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=40)
Y2 = np.stack([Y, np.cos(X[:, 1])], axis=1)
Q = RNG.uniform(-3.0, 3.0, (7, 2))


def fixed(**options):
    return GaussianProcessRegressor(2.0 * RBF(1.0), noise_variance=0.05, optimizer=None, **options)


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
def test_appending_is_fitting_all(y):
    whole = fixed(mean=0.5).fit(X, y)
    parts = fixed(mean=0.5).fit(X[:25], y[:25])
    for start in (25, 30, 31):
        stop = {25: 30, 30: 31, 31: 40}[start]
        assert parts.append(X[start:stop], y[start:stop]) is parts
    for a, b in zip(whole.predict(Q, return_std=True), parts.predict(Q, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    assert parts.log_marginal_likelihood() == pytest.approx(whole.log_marginal_likelihood())
    np.testing.assert_array_equal(parts.X_train_, X)
    theta = whole.theta_
    assert parts.log_marginal_likelihood(theta + 0.1) == pytest.approx(
        whole.log_marginal_likelihood(theta + 0.1)
    )


def test_appending_with_known_noise_and_with_learned_hyperparameters():
    noise = np.linspace(0.01, 0.2, 40)
    parts = fixed().fit(X[:30], Y[:30], noise[:30]).append(X[30:], Y[30:], noise[30:])
    np.testing.assert_allclose(parts.predict(Q), fixed().fit(X, Y, noise).predict(Q), rtol=1e-8)
    learned = GaussianProcessRegressor(normalize_y=True).fit(X[:30], Y[:30])
    before = learned.theta_
    learned.append(X[30:], Y[30:])
    np.testing.assert_array_equal(learned.theta_, before)
    assert learned.leave_one_out().mean.shape == (40,)


def test_appending_objects():
    words = ["rock", "rocks", "sand", "sandy"]
    gp = GaussianProcessRegressor(EditDistance(0.5), optimizer=None)
    whole = gp.fit(words, [1.0, 2.0, 3.0, 4.0]).predict(["rocky"])
    parts = GaussianProcessRegressor(EditDistance(0.5), optimizer=None).fit(words[:2], [1.0, 2.0])
    np.testing.assert_allclose(parts.append(words[2:], [3.0, 4.0]).predict(["rocky"]), whole)
    rows = [[w, float(i)] for i, w in enumerate(words)]
    mixed = GaussianProcessRegressor(Columns(EditDistance(0.5), 0) + Columns(RBF(1.0), 1), optimizer=None)
    whole = mixed.fit(rows, [1.0, 2.0, 3.0, 4.0]).predict(rows)
    parts = mixed.fit(rows[:3], [1.0, 2.0, 3.0]).append(rows[3:], [4.0])
    np.testing.assert_allclose(parts.predict(rows), whole)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gp: gp.append(X[:2], Y2[:2]), "as in fit"),
        (lambda gp: gp.append(X[:2], Y[:3]), "shape"),
        (lambda gp: gp.append(X[:2], Y[:2], [0.1, 0.1]), "only where fit got variances"),
        (lambda gp: gp.append(X[:2, :1], Y[:2]), "1 features"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(fixed().fit(X, Y))


@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("options", [{}, {"mean": 0.5}, {"kernel": RBF(1.0) + White(0.1)}], ids=str)
def test_leaving_one_out_is_fitting_without_it(y, options):
    model = GaussianProcessRegressor(
        **({"kernel": 2.0 * RBF(1.0), "noise_variance": 0.05, "optimizer": None} | options)
    )
    found = model.fit(X, y).leave_one_out()
    for i in (0, 17, 39):
        rest = np.delete(np.arange(40), i)
        gp = GaussianProcessRegressor(**model.get_params(deep=False)).fit(X[rest], y[rest])
        mean, std = gp.predict(X[i : i + 1], return_std=True, include_noise=True)
        np.testing.assert_allclose(found.mean[i], mean[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.std[i], std[0], rtol=1e-7)
        np.testing.assert_allclose(found.error[i], y[i] - mean[0], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.log_density[i], norm(mean[0], std[0]).logpdf(y[i]), rtol=1e-6)


def test_an_outlier_stands_out():
    spoiled = Y.copy()
    spoiled[11] += 5.0
    standardized = np.abs(fixed(normalize_y=False).fit(X, spoiled).leave_one_out().standardized)
    assert standardized.argmax() == 11
    assert standardized[11] > 5.0
