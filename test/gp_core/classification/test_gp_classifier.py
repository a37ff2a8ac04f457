"""The Gaussian process classifier as an estimator: scikit-learn as a reference, gradients, errors."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier as SklearnGPC
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gp_core.classification import GaussianProcessClassifier
from gp_core.classification.gp_binary import INFERENCE
from gp_core.classification.links import LINKS as LINK
from gp_core.kernels import RBF, Constant, Kernel, Linear, White
from gp_core.priors import Gamma
from gp_core.quadrature import gaussian_expectation
from gp_core.regression import ConstantMean, LinearMean

THEIR_KERNEL = sklearn_kernels.ConstantKernel(1.0) * sklearn_kernels.RBF(1.0)
LAPLACE = {"inference": "laplace", "link": "logit"}
INFERENCES = ["laplace", "ep", "variational"]
LINKS = ["logit", "probit"]
all_inferences = pytest.mark.parametrize("inference", INFERENCES)
both_links = pytest.mark.parametrize("link", LINKS)


def moons(n=60, seed=0):
    return make_moons(n, noise=0.25, random_state=seed)


# -- against scikit-learn --------------------------------------------------------------------------------


def test_laplace_evidence_and_gradient_equal_scikit_learns():
    X, y = moons()
    theirs = SklearnGPC(THEIR_KERNEL, optimizer=None).fit(X, y)
    ours = GaussianProcessClassifier(1.0 * RBF(1.0), optimizer=None, **LAPLACE).fit(X, y)
    for theta in [np.log([1.0, 1.0]), np.log([30.0, 0.3]), np.log([0.1, 3.0])]:
        value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
        their_value, their_gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
        # scikit-learn stops Newton when the objective changes by less than 1e-10.
        assert value == pytest.approx(their_value, abs=1e-4)
        assert_allclose(gradient, their_gradient, rtol=1e-3, atol=1e-3)


def test_learned_hyperparameters_and_labels_equal_scikit_learns():
    X, y = moons(100)
    queries = np.random.default_rng(1).uniform(-2, 3, size=(200, 2))
    theirs = SklearnGPC(THEIR_KERNEL).fit(X, y)
    ours = GaussianProcessClassifier(1.0 * RBF(1.0), **LAPLACE).fit(X, y)
    assert ours.log_marginal_likelihood_value_ >= theirs.log_marginal_likelihood_value_ - 1e-4
    assert_allclose(ours.kernel_.theta, theirs.kernel_.theta, atol=0.02)
    np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))
    # scikit-learn integrates the logistic function by five error functions, good to about 1e-3.
    assert_allclose(ours.predict_proba(queries), theirs.predict_proba(queries), atol=3e-3)


def test_several_classes_equal_scikit_learns_one_vs_rest():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3, :2], y[::3]
    kernel = sklearn_kernels.ConstantKernel(4.0) * sklearn_kernels.RBF(1.0)
    theirs = SklearnGPC(kernel, optimizer=None, multi_class="one_vs_rest").fit(X, y)
    ours = GaussianProcessClassifier(4.0 * RBF(1.0), optimizer=None, **LAPLACE).fit(X, y)
    assert ours.kernel_ == (4.0 * RBF(1.0),) * 3
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=3e-3)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


# -- evidence --------------------------------------------------------------------------------------------


@all_inferences
@both_links
@pytest.mark.parametrize(
    "kernel", [3.0 * RBF([0.7, 2.0]), 0.5 * Linear() + Constant(2.0) + White(0.3)], ids=repr
)
def test_evidence_gradient_is_a_finite_difference(inference, link, kernel):
    X, y = moons(40)
    model = GaussianProcessClassifier(kernel, inference=inference, link=link, optimizer=None).fit(X, y)
    theta = kernel.theta + 0.1
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    step = 1e-4
    for j, unit in enumerate(np.eye(len(theta))):
        up = model.log_marginal_likelihood(theta + step * unit)
        down = model.log_marginal_likelihood(theta - step * unit)
        assert gradient[j] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-5)


@all_inferences
@both_links
def test_learning_reaches_a_stationary_point_that_beats_the_start(inference, link):
    X, y = moons(50)
    model = GaussianProcessClassifier(1.0 * RBF(1.0), inference=inference, link=link).fit(X, y)
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-6)
    assert value > model.log_marginal_likelihood(np.zeros(2)) + 1.0
    assert np.abs(gradient).max() < 1e-2
    assert model.score(X, y) > 0.9


def test_methods_agree_on_the_evidence_and_rank_as_theory_says():
    """The bound lies below EP's estimate, and all three within 4 nats of each other on 50 points."""
    X, y = moons(50)
    for link in LINKS:
        for kernel in [1.0 * RBF(1.0), 10.0 * RBF(0.7)]:
            value = {
                i: GaussianProcessClassifier(kernel, inference=i, link=link, optimizer=None)
                .fit(X, y)
                .log_marginal_likelihood_value_
                for i in INFERENCES
            }
            assert value["variational"] < value["ep"] + 1e-6
            assert max(value.values()) - min(value.values()) < 4.0


def test_a_bad_start_is_left_for_the_scale_of_the_data():
    X, y = moons(40)
    good = GaussianProcessClassifier(1.0 * RBF(1.0), **LAPLACE).fit(X, y)
    flat = GaussianProcessClassifier(1.0 * RBF(1e-3), **LAPLACE).fit(X, y)
    assert flat.log_marginal_likelihood_value_ == pytest.approx(good.log_marginal_likelihood_value_, abs=1e-2)
    assert len(flat.models_[0].optimum.run_values) == 2


@pytest.mark.parametrize("factor", [1e4, 1e-6])
def test_units_of_the_inputs_do_not_matter(factor):
    X, y = moons(40)
    plain, scaled = GaussianProcessClassifier().fit(X, y), GaussianProcessClassifier().fit(factor * X, y)
    np.testing.assert_allclose(scaled.predict_proba(factor * X), plain.predict_proba(X), atol=1e-3)


def test_restarts_repeat_with_the_seed():
    X, y = moons(40)
    start = 1.0 * RBF(1.0, (1e-3, 10.0))
    restarted = [
        GaussianProcessClassifier(start, **LAPLACE, n_restarts_optimizer=4, random_state=0).fit(X, y)
        for _ in range(2)
    ]
    assert restarted[0].kernel_ == restarted[1].kernel_
    assert len(restarted[0].models_[0].optimum.run_values) == 5


def test_a_prior_pulls_the_length_scale():
    X, y = moons(40)
    free = GaussianProcessClassifier(1.0 * RBF(1.0), **LAPLACE).fit(X, y).kernel_.theta[1]
    tight = Gamma(shape=2000.0, rate=1000.0)  # around 2
    held = (
        GaussianProcessClassifier(1.0 * RBF(1.0), **LAPLACE, priors={"length_scale": tight})
        .fit(X, y)
        .kernel_.theta[1]
    )
    assert abs(held - np.log(2.0)) < 0.1 < abs(free - np.log(2.0))


# -- predictions -----------------------------------------------------------------------------------------


@all_inferences
@both_links
def test_probabilities_by_integral_and_by_sampling_agree(inference, link):
    X, y = moons(40)
    model = GaussianProcessClassifier(5.0 * RBF(1.0), inference=inference, link=link, optimizer=None).fit(
        X, y
    )
    queries = np.random.default_rng(2).uniform(-2, 3, size=(20, 2))
    exact = model.predict_proba(queries)
    sampled = model.predict_proba(queries, method="sampling", n_samples=40_000, random_state=0)
    assert_allclose(exact.sum(axis=1), 1.0, rtol=1e-12)
    assert_allclose(sampled, exact, atol=0.01)  # four standard errors
    np.testing.assert_array_equal(model.predict(queries), model.classes_[exact.argmax(axis=1)])


@all_inferences
@both_links
def test_inference_methods_give_similar_probabilities(inference, link):
    """Within 0.05 of EP everywhere on the plane, at a moderate variance."""
    X, y = moons(60)
    queries = np.random.default_rng(2).uniform(-2, 3, size=(100, 2))
    kernel = 3.0 * RBF(1.0)
    model = GaussianProcessClassifier(kernel, inference=inference, link=link, optimizer=None).fit(X, y)
    reference = GaussianProcessClassifier(kernel, inference="ep", link=link, optimizer=None).fit(X, y)
    assert_allclose(model.predict_proba(queries), reference.predict_proba(queries), atol=0.05)


@all_inferences
def test_samples_of_the_latent_function_have_its_moments(inference):
    X, y = moons(40)
    model = GaussianProcessClassifier(5.0 * RBF(1.0), inference=inference, optimizer=None).fit(X, y)
    queries = np.random.default_rng(2).uniform(-1, 2, size=(4, 2))
    mean, std = model.predict_latent(queries, return_std=True)
    draws = model.sample_latent(queries, 20_000, random_state=0)
    assert draws.shape == (4, 20_000)
    assert_allclose(draws.mean(axis=1), mean, atol=0.05 * std.max())
    assert_allclose(draws.std(axis=1), std, rtol=0.03)
    assert_allclose(model.predict_latent(queries), mean, rtol=1e-12)


def test_far_from_the_data_the_classifier_knows_nothing():
    X, y = moons(40)
    model = GaussianProcessClassifier(3.0 * RBF(0.5), **LAPLACE, optimizer=None).fit(X, y)
    far = np.full((1, 2), 100.0)
    assert_allclose(model.predict_proba(far), 0.5, atol=1e-12)
    assert_allclose(model.predict_latent(far, return_std=True)[1], np.sqrt(3.0), rtol=1e-9)


def test_predictions_in_batches_equal_predictions_at_once(monkeypatch):
    X, y = moons(40)
    model = GaussianProcessClassifier(3.0 * RBF(0.5), **LAPLACE, optimizer=None).fit(X, y)
    queries = np.random.default_rng(2).uniform(-1, 2, size=(23, 2))
    whole = model.predict_proba(queries), model.predict(queries)
    monkeypatch.setattr("gp_core.classification.gp_binary._BATCH_ENTRIES", 160)
    assert_allclose(model.predict_proba(queries), whole[0], rtol=1e-12)
    np.testing.assert_array_equal(model.predict(queries), whole[1])


# -- as an estimator -------------------------------------------------------------------------------------


def test_three_classes_with_names_in_a_pipeline_and_a_grid_search():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_pipeline(
        StandardScaler(),
        GaussianProcessClassifier(4.0 * RBF(1.0), optimizer=None, **LAPLACE),
    )
    search = GridSearchCV(pipeline, {"gaussianprocessclassifier__link": LINKS}, cv=3).fit(X, names)
    assert search.best_score_ > 0.9
    model = search.best_estimator_[-1]
    latent, std = model.predict_latent(X[:5], return_std=True)
    assert latent.shape == std.shape == (5, 3)
    assert model.sample_latent(X[:5], 2, random_state=0).shape == (5, 3, 2)
    assert model.log_marginal_likelihood(np.zeros(6)) < 0.0
    with pytest.raises(ValueError, match=r"theta must have shape \(6,\)"):
        model.log_marginal_likelihood(np.zeros(2))


def test_cloned_and_pickled_models_predict_the_same():
    X, y = moons(30)
    model = GaussianProcessClassifier(2.0 * RBF(1.0), inference="ep", random_state=3).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), model.predict_proba(X))


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "mcmc"}, "inference must be one of 'laplace', 'ep', 'variational', got 'mcmc'"),
        ({"link": "cauchit"}, "link must be one of 'logit', 'probit', got 'cauchit'"),
        ({"optimizer": "adam"}, 'optimizer must be "lbfgs" or None'),
        ({"kernel": "rbf"}, "kernel must be a gp_core kernel"),
        ({"n_restarts_optimizer": -1}, "n_restarts_optimizer must be >= 0"),
        ({"max_iter": 0}, "max_iter must be >= 1"),
        ({"priors": {"nonsense": Gamma(2.0, 1.0)}}, "no free hyperparameter 'nonsense'"),
    ],
)
def test_wrong_options_are_named(options, message):
    X, y = moons(10)
    with pytest.raises(ValueError, match=message):
        GaussianProcessClassifier(**options).fit(X, y)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((3, 2)), [1, 1, 1], "one class only"),
        (np.zeros((1, 2)), [1], "one class only"),
        (np.zeros((0, 2)), [], "minimum of 1 is required"),
        (np.zeros((3, 2)), [0, 1], "inconsistent numbers of samples"),
        (np.array([[0.0], [np.nan]]), [0, 1], "NaN"),
        (np.array([[0.0], [np.inf]]), [0, 1], "infinity"),
        (np.zeros(3), [0, 1, 0], "2D array"),
        (np.zeros((3, 2)), [0.1, 0.2, 0.7], "Unknown label type"),
        (np.zeros((3, 2)), None, "requires y"),
    ],
)
def test_wrong_data_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessClassifier().fit(X, y)


def test_a_kernel_that_is_no_kernel_is_refused():
    class Distance(Kernel):
        """|x - z|, the opposite of a covariance."""

        def _matrix(self, X, Z):
            return np.abs(X - (X if Z is None else Z).T)

        def _diag(self, X):
            return np.zeros(len(X))

    with pytest.raises(ValueError, match="kernel matrix of the training points is not positive definite"):
        GaussianProcessClassifier(Distance()).fit(np.arange(4.0)[:, None], [0, 1, 0, 1])


@all_inferences
@both_links
def test_duplicates_with_opposite_labels_are_no_obstacle(inference, link):
    X = np.repeat([[0.0], [1.0]], 6, axis=0)
    y = np.array([0, 1] * 3 + [1] * 6)
    model = GaussianProcessClassifier(inference=inference, link=link).fit(X, y)
    probability = model.predict_proba([[0.0], [1.0]])[:, 1]
    assert probability[0] == pytest.approx(0.5, abs=0.15)
    assert probability[1] > 0.7


def test_an_unknown_prediction_method_is_refused():
    X, y = moons(10)
    with pytest.raises(ValueError, match='method must be "integral" or "sampling"'):
        GaussianProcessClassifier(optimizer=None).fit(X, y).predict_proba(X, method="guess")


@all_inferences
@both_links
def test_a_point_where_the_prior_has_no_variance_is_no_obstacle(inference, link):
    """The linear kernel pins f to 0 at the origin, whatever the label there."""
    X, y = np.array([[0.0], [0.0], [1.0], [-1.0], [2.0]]), np.array([0, 1, 1, 0, 1])
    model = GaussianProcessClassifier(1.0 * Linear(), inference=inference, link=link).fit(X, y)
    p = model.predict_proba([[0.0], [3.0]])[:, 1]
    assert p[0] == pytest.approx(0.5, abs=1e-6)
    assert p[1] > 0.6


@pytest.mark.parametrize("inference", ["laplace", "ep", "variational"])
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_far_from_the_data_the_latent_function_returns_to_the_prior_mean(inference, link):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (40, 1))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=40) > -0.8, 1, 0)
    options = {"inference": inference, "link": link, "optimizer": None}
    flat = GaussianProcessClassifier(2.0 * RBF(1.0), **options).fit(X, y)
    raised = GaussianProcessClassifier(2.0 * RBF(1.0), mean=1.5, **options).fit(X, y)
    lowered = GaussianProcessClassifier(2.0 * RBF(1.0), mean=-1.5, **options).fit(X, 1 - y)
    far = [[50.0]]
    assert raised.predict_latent(far)[0] == pytest.approx(1.5)
    assert raised.predict_proba(far)[0, 1] > flat.predict_proba(far)[0, 1] + 0.1
    # Swapping the labels and the sign of the mean changes nothing.
    np.testing.assert_allclose(lowered.predict_proba(X)[:, 0], raised.predict_proba(X)[:, 1], atol=1e-6)
    assert lowered.log_marginal_likelihood() == pytest.approx(raised.log_marginal_likelihood(), abs=1e-6)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_evidence_with_a_prior_mean_is_the_integral(link):
    """One point: log p(y) is a one-dimensional integral, and EP is exact there."""
    for m, sign in ((0.7, 1.0), (-2.0, 1.0), (1.2, -1.0)):
        # Both links are symmetric: p(y = -1 | f) = p(y = +1 | -f).
        exact = gaussian_expectation(LINK[link].probability, np.array([sign * m]), np.array([3.0]))
        q = INFERENCE["ep"](np.array([[3.0]]), np.array([sign]), LINK[link], None, offset=np.array([m]))
        assert q.log_evidence == pytest.approx(float(np.log(exact[0])), abs=1e-8)


@pytest.mark.parametrize("inference", ["laplace", "ep", "variational"])
@pytest.mark.parametrize("mean", [ConstantMean(0.4), LinearMean([0.3, -0.2], 0.1)])
def test_the_gradient_by_a_learned_mean_is_a_finite_difference(inference, mean):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(25, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=25) > -0.3).astype(int)
    model = GaussianProcessClassifier(1.5 * RBF(0.8), mean=mean, inference=inference, optimizer=None).fit(
        X, y
    )
    theta = model.models_[0].prior.theta
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    step = 1e-4
    numeric = [
        (model.log_marginal_likelihood(theta + step * e) - model.log_marginal_likelihood(theta - step * e))
        / (2.0 * step)
        for e in np.eye(len(theta))
    ]
    assert len(theta) == 2 + mean.n_theta
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)


def test_a_learned_mean_takes_up_the_share_of_the_classes():
    rng = np.random.default_rng(2)
    X = rng.uniform(0.0, 10.0, (150, 1))
    y = (rng.uniform(size=150) < 0.9).astype(int)  # no structure but nine to one
    kernel = 0.5 * RBF(0.05, "fixed")
    model = GaussianProcessClassifier(kernel, mean=ConstantMean(0.0), inference="ep").fit(X, y)
    assert model.predict_proba([[1000.0]])[0, 1] == pytest.approx(y.mean(), abs=0.05)
    assert model.mean_.value > 1.0


def test_means_per_class_and_wrong_means():
    X, y = load_iris(return_X_y=True)
    X, y = X[::5], y[::5]
    options = {"inference": "laplace", "optimizer": None}
    model = GaussianProcessClassifier(mean=[1.0, 0.0, lambda Z: -Z[:, 0] / 5.0], **options).fit(X, y)
    np.testing.assert_allclose(model.predict_latent(np.full((1, 4), 500.0)), [[1.0, 0.0, -100.0]], atol=1e-9)
    with pytest.raises(ValueError, match="list of 3, one per class"):
        GaussianProcessClassifier(mean=[0.0, 1.0], **options).fit(X, y)
    with pytest.raises(ValueError, match="must have shape"):
        GaussianProcessClassifier(mean=lambda Z: Z, **options).fit(X, y)


def test_the_defaults_are_calibrated():
    """Laplace's probabilities stay too close to 1/2 after learning; the defaults do not."""
    for load, least in ((load_breast_cancer, 0.09), (load_iris, 0.2)):
        X, y = load(return_X_y=True)
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
        model = make_pipeline(StandardScaler(), GaussianProcessClassifier()).fit(train, y_train)
        assert log_loss(y_test, model.predict_proba(test)) < least
