"""LOESS against statsmodels and against weighted least squares written out."""

import tracemalloc

import numpy as np
import pytest
from statsmodels.nonparametric.kernel_regression import KernelReg
from statsmodels.nonparametric.smoothers_lowess import lowess

from gp_core import LocallyWeightedRegression
from gp_core.basis import PolynomialBasis
from gp_core.kernels import RBF, Linear, Matern, SetIntersection

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-3.0, 3.0, 60))[:, None]
Y = np.sin(2.0 * X[:, 0]) + 0.2 * RNG.normal(size=60)
Q = np.linspace(-3.0, 3.0, 11)[:, None]
X2 = RNG.uniform(-2.0, 2.0, (80, 2))
Y2 = np.stack([np.sin(X2[:, 0]), X2[:, 1] ** 2], axis=1)
Q2 = RNG.uniform(-2.0, 2.0, (7, 2))


@pytest.mark.parametrize("span", [0.2, 0.5, 2.0 / 3.0, 1.0])
@pytest.mark.parametrize("robust", [0, 1, 3])
def test_is_statsmodels_lowess(span, robust):
    outliers = Y.copy()
    outliers[[7, 30]] += 4.0
    reference = lowess(outliers, X[:, 0], frac=span, it=robust, delta=0.0, return_sorted=False)
    ours = LocallyWeightedRegression(span=span, robust_iterations=robust).fit(X, outliers)
    np.testing.assert_allclose(ours.predict(X), reference, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("span", [0.3, 0.7])
def test_between_the_points_too(span):
    reference = lowess(Y, X[:, 0], frac=span, it=0, xvals=Q[:, 0])
    ours = LocallyWeightedRegression(span=span).fit(X, Y).predict(Q)
    np.testing.assert_allclose(ours, reference, rtol=2e-5, atol=2e-5)


def test_local_linear_with_a_kernel_is_statsmodels():
    reference = KernelReg(Y, X, "c", reg_type="ll", bw=[0.4]).fit(Q)[0]
    np.testing.assert_allclose(LocallyWeightedRegression(RBF(0.4)).fit(X, Y).predict(Q), reference, rtol=1e-7)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("kernel", [RBF(0.7), Matern([0.5, 1.0])])
def test_is_weighted_least_squares(degree, kernel):
    ours = LocallyWeightedRegression(kernel, degree=degree).fit(X2, Y2).predict(Q2)
    for q, got in zip(Q2, ours, strict=True):
        P = PolynomialBasis(degree)(X2 - q)
        root = np.sqrt(kernel(q[None], X2)[0])[:, None]
        b = np.linalg.lstsq(P * root, Y2 * root, rcond=None)[0]
        np.testing.assert_allclose(got, b[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("kernel", [None, RBF(0.5)])
def test_a_polynomial_of_its_degree_is_met_exactly(degree, kernel):
    coefficients = np.random.default_rng(1).normal(size=PolynomialBasis(degree).exponents(2).shape[0])
    y = PolynomialBasis(degree)(X2) @ coefficients
    model = LocallyWeightedRegression(kernel, degree=degree, span=0.4, robust_iterations=2).fit(X2, y)
    np.testing.assert_allclose(model.predict(Q2), PolynomialBasis(degree)(Q2) @ coefficients, atol=1e-8)


def test_robust_fit_ignores_an_outlier():
    y = 2.0 * X[:, 0]
    y[30] += 50.0
    plain = LocallyWeightedRegression(span=0.5).fit(X, y)
    robust = LocallyWeightedRegression(span=0.5, robust_iterations=4).fit(X, y)
    truth = 2.0 * X[:, 0]
    assert np.abs(plain.predict(X) - truth).max() > 1.0
    assert np.abs(robust.predict(X) - truth).max() < 1e-3
    assert robust.robustness_weights_[30] == 0.0


def test_prediction_in_batches_is_the_same(monkeypatch):
    model = LocallyWeightedRegression(degree=2).fit(X2, Y2)
    whole = model.predict(X2)
    monkeypatch.setattr("gp_core.regression.locally_weighted._BLOCK_ENTRIES", 400)
    np.testing.assert_allclose(model.predict(X2), whole, rtol=1e-10)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("kernel", [None, RBF(0.5)])
@pytest.mark.parametrize(
    "points",
    [np.array([[1.0, 2.0]]), np.ones((6, 2)), np.stack([np.arange(6.0), np.arange(6.0)], axis=1)],
    ids=["one point", "duplicates", "on a line"],
)
def test_points_that_span_little(degree, kernel, points):
    y = points.sum(axis=1) + 1.0
    model = LocallyWeightedRegression(kernel, degree=degree).fit(points, y)
    assert np.isfinite(model.predict(Q2)).all()
    if degree > 0:  # the targets are linear
        np.testing.assert_allclose(model.predict(points[:1]), y[:1], atol=1e-6)


def test_far_from_all_points():
    model = LocallyWeightedRegression(RBF(0.01), degree=0).fit(X, Y)
    np.testing.assert_allclose(model.predict([[-1e5], [1e5]]), [Y[0], Y[-1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LocallyWeightedRegression(degree=3).fit(X, Y), "0, 1 or 2"),
        (lambda: LocallyWeightedRegression(degree=-1).fit(X, Y), "degree must be >= 0"),
        (lambda: LocallyWeightedRegression(span=0.0).fit(X, Y), "span must be in"),
        (lambda: LocallyWeightedRegression(robust_iterations=-1).fit(X, Y), "robust_iterations"),
        (lambda: LocallyWeightedRegression("tricube").fit(X, Y), "gp_core kernel"),
        (lambda: LocallyWeightedRegression(Linear()).fit(X, Y).predict(Q), "negative values"),
        (lambda: LocallyWeightedRegression(SetIntersection()).fit([{1}, {2}], [1.0, 2.0]), "degree=0"),
        (lambda: LocallyWeightedRegression().fit(X, Y).predict(Q2), "2 features"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def many_points(n, d, seed=3):
    rng = np.random.default_rng(seed)
    points = rng.uniform(-2.0, 2.0, (n, d))
    return points, np.stack([np.sin(points[:, 0]), points.sum(axis=1) ** 2], axis=1)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("robust", [0, 2])
def test_neighbours_found_by_search_are_those_of_all_distances(monkeypatch, degree, d, robust):
    points, targets = many_points(400, d)
    targets += 0.2 * np.random.default_rng(5).normal(size=targets.shape)
    targets[5] += 30.0
    queries = many_points(50, d, seed=4)[0]
    model = LocallyWeightedRegression(degree=degree, span=0.1, robust_iterations=robust)
    fast = model.fit(points, targets).coefficients(queries)
    weights = model.weights(queries)
    assert ((weights > 0.0).sum(axis=1) < 40).all()
    for q, w, got in zip(queries, weights, fast, strict=True):
        root = np.sqrt(w)[:, None]
        b = np.linalg.lstsq(PolynomialBasis(degree)(points - q) * root, targets * root, rcond=None)[0]
        np.testing.assert_allclose(got, b, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(model.predict(queries), fast[:, 0])


def test_ties_and_duplicates_weigh_alike_whatever_the_search():
    grid = np.repeat(
        np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), axis=-1).reshape(-1, 2), 3, axis=0
    )
    targets = np.random.default_rng(0).normal(size=len(grid))
    centres = np.array([[0.5, 0.5], [4.5, 6.5]])  # four corners at one distance, three points in each
    model = LocallyWeightedRegression(degree=0, span=0.01).fit(grid, targets)
    for centre, got in zip(centres, model.predict(centres), strict=True):
        corners = np.abs(grid - centre).max(axis=1) < 0.6
        assert got == pytest.approx(targets[corners].mean())
    column = LocallyWeightedRegression(degree=0, span=0.01).fit(grid[:, :1], targets)
    assert column.predict([[3.0]])[0] == pytest.approx(targets[grid[:, 0] == 3.0].mean())
    assert column.predict([[3.5]])[0] == pytest.approx(targets[np.abs(grid[:, 0] - 3.5) < 0.6].mean())


def test_coefficients_are_the_derivatives_of_a_polynomial_in_the_units_of_the_inputs():
    points, _ = many_points(300, 2)
    points *= [10.0, 0.1]
    x, y = points.T
    targets = 3.0 + 0.5 * x - 20.0 * y + 0.1 * x**2 + 2.0 * x * y - 300.0 * y**2
    b = LocallyWeightedRegression(degree=2, span=0.2).fit(points, targets).coefficients([[2.0, 0.03]])[0]
    expected = [
        3.0 + 1.0 - 0.6 + 0.4 + 0.12 - 0.27,
        0.5 + 0.4 + 0.06,
        -20.0 + 4.0 - 18.0,
        0.1,
        2.0,
        -300.0,
    ]
    np.testing.assert_allclose(b, expected, rtol=1e-7)


@pytest.mark.parametrize("d", [1, 2])
def test_prediction_takes_memory_for_neighbours_only(d):
    n = 6000
    points, targets = many_points(n, d)
    model = LocallyWeightedRegression(span=0.02).fit(points, targets)
    model.predict(points[:5])  # loops are compiled at their first call
    tracemalloc.start()
    model.predict(points)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * 8 * n**2  # a tenth of the matrix of all weights
