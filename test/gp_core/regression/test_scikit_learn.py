"""scikit-learn's own checks for every estimator, and the tools around them."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gp_core import (
    BayesianLinearRegression,
    CoregionalizedGaussianProcessRegressor,
    GaussianProcessRegressor,
    InterpolatedGaussianProcessRegressor,
    KernelRidge,
    LocallyWeightedRegression,
    NadarayaWatson,
    Ridge,
    RobustGaussianProcessRegressor,
)
from gp_core.basis import GaussianBasis
from gp_core.kernels import RBF, EditDistance, Matern, SetIntersection, White
from gp_core.regression import interpolated

# Few iterations: the code is that of the defaults, without the long search of every check.
CHECKED = [
    Ridge(),
    KernelRidge(),
    BayesianLinearRegression(),
    BayesianLinearRegression(optimizer="lbfgs", max_iter=5),
    NadarayaWatson(max_iter=2),
    LocallyWeightedRegression(),
    LocallyWeightedRegression(degree=0, span=0.1, robust_iterations=1),
    GaussianProcessRegressor(max_iter=5),
    GaussianProcessRegressor(
        1.0 * Matern(1.0) + White(0.1), normalize_y=True, noise_variance_bounds="fixed", max_iter=2
    ),
    CoregionalizedGaussianProcessRegressor(max_iter=1),
    RobustGaussianProcessRegressor(max_iter=2),
]
ESTIMATORS = [
    *CHECKED,
    GaussianProcessRegressor(),
    NadarayaWatson(),
    Ridge(solver="dual"),
    KernelRidge(Matern(2.0), alpha=0.1),
    NadarayaWatson(RBF(1.0), optimizer=None),
    LocallyWeightedRegression(RBF(1.0), degree=2),
    GaussianProcessRegressor(optimizer=None),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def three_inputs(monkeypatch):
    """Checks have up to ten inputs: the estimator validates them all as always, then works on three of them.

    The fifth of ten is the one that their targets depend on.
    """
    fit, query = interpolated.fit_inputs_and_one_target, interpolated.query_inputs

    def cut_at_fit(*arguments):
        X, y = fit(*arguments)
        return X[:, :5][:, -3:], y

    monkeypatch.setattr(interpolated, "fit_inputs_and_one_target", cut_at_fit)
    monkeypatch.setattr(interpolated, "query_inputs", lambda *arguments: query(*arguments)[:, :5][:, -3:])


@pytest.mark.usefixtures("three_inputs")
@parametrize_with_checks([InterpolatedGaussianProcessRegressor(grid_size=5, max_iter=2)])
def test_scikit_learn_checks_of_the_interpolated_process(estimator, check):
    check(estimator)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_the_interpolated_process_takes_up_to_three_inputs(D):
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (30, D))
    model = InterpolatedGaussianProcessRegressor(RBF(1.0), grid_size=5, optimizer=None).fit(X, X.sum(axis=1))
    assert model.n_features_in_ == D
    with pytest.raises(ValueError, match=f"X has 4 features, but .* is expecting {D}"):
        model.predict(np.zeros((2, 4)))


@pytest.mark.parametrize("D", [4, 10])
def test_more_inputs_than_three_are_one_clear_error(D):
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (30, D))
    with pytest.raises(ValueError, match=f"1 to 3 inputs, got {D}: use GaussianProcessRegressor"):
        InterpolatedGaussianProcessRegressor().fit(X, X[:, 0])


def data(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_in_a_pipeline_and_cross_validated(estimator):
    X, y = data()
    scores = cross_val_score(make_pipeline(StandardScaler(), estimator), X, y, cv=3)
    assert np.isfinite(scores).all()


def test_grid_search_over_kernels():
    X, y = data()
    kernels = [RBF(0.01), RBF(1.0)]
    search = GridSearchCV(KernelRidge(), {"kernel": kernels, "alpha": [0.01, 10.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"kernel": RBF(1.0), "alpha": 0.01}


def test_multi_output_wrapper_agrees_with_several_outputs():
    X, y = data()
    Y = np.stack([y, 2.0 * y + X[:, 0]], axis=1)
    for estimator in (KernelRidge(RBF(1.0)), Ridge(), LocallyWeightedRegression(RBF(1.0))):
        wrapped = MultiOutputRegressor(estimator).fit(X, Y).predict(X)
        np.testing.assert_allclose(estimator.fit(X, Y).predict(X), wrapped, rtol=1e-9, atol=1e-10)


SETS = [{1}, {2}, {1, 2}, {1, 2, 3}, {3}, {2, 3}, set(), {1, 3}]
WORDS = ["a", "ab", "abc", "abcd", "b", "bc", "", "abd"]


@pytest.mark.parametrize(
    ("objects", "kernel"),
    [
        (SETS, SetIntersection()),
        (SETS, 0.5 * SetIntersection(normalized=True) + 1.0),
        (WORDS, EditDistance(0.5)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "make",
    [
        lambda k: KernelRidge(k, alpha=1e-6),
        lambda k: GaussianProcessRegressor(k, noise_variance=1e-6, optimizer=None),
        lambda k: GaussianProcessRegressor(k),
        lambda k: NadarayaWatson(k),
        lambda k: LocallyWeightedRegression(k, degree=0),
    ],
    ids=["kernel ridge", "gp", "gp learned", "nadaraya-watson", "loess 0"],
)
def test_sets_and_strings_go_through_the_same_estimators(objects, kernel, make):
    y = np.array([len(o) for o in objects], dtype=float)
    model = make(kernel).fit(objects, y)
    prediction = model.predict(objects)
    assert prediction.shape == y.shape
    assert np.isfinite(prediction).all()
    array = np.empty(len(objects), dtype=object)
    array[:] = objects
    np.testing.assert_allclose(model.predict(array), prediction)
    scores = cross_val_score(make(kernel), objects, y, cv=2, scoring="neg_mean_squared_error")
    assert np.isfinite(scores).all()


def test_interpolation_on_sets():
    y = np.array([len(o) for o in SETS], dtype=float)
    model = KernelRidge(SetIntersection(), alpha=1e-9).fit(SETS, y)
    np.testing.assert_allclose(model.predict(SETS), y, atol=1e-6)


def test_basis_survives_clone_and_search():
    X, y = data()
    bases = [GaussianBasis([[0.0, 0.0]], width=w) for w in (0.1, 1.0)]
    search = GridSearchCV(BayesianLinearRegression(), {"basis": [None, *bases]}, cv=3).fit(X, y)
    assert search.best_params_["basis"] is None
