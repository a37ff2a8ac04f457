"""The likelihood over two hyperparameters."""

import numpy as np
import pytest

from gp_core import GaussianProcessRegressor
from gp_core.kernels import RBF, Metric
from gp_core.regression import likelihood_contour
from gp_core.regression.contour import _maxima


def two_maxima():
    """Few points that are either a wiggle with little noise, or noise around a flat line."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-4.0, 4.0, 9))[:, None]
    return GaussianProcessRegressor(1.0 * RBF(1.0), noise_variance=0.1).fit(x, np.sin(2.0 * x[:, 0]))


def test_values_are_the_likelihood():
    gp = two_maxima()
    contour = likelihood_contour(gp, "length_scale", "noise_variance", [0.5, 1.0, 2.0], [0.01, 0.1])
    assert contour.values.shape == (2, 3)
    theta = gp.theta_.copy()
    theta[gp.theta_names_.index("length_scale")] = np.log(2.0)
    theta[gp.theta_names_.index("noise_variance")] = np.log(0.1)
    assert contour.values[1, 2] == pytest.approx(gp.log_marginal_likelihood(theta))


def test_local_maxima_are_found():
    gp = two_maxima()
    contour = likelihood_contour(
        gp, "length_scale", "noise_variance", np.geomspace(0.1, 20.0, 40), np.geomspace(1e-4, 5.0, 40)
    )
    assert len(contour.maxima) >= 2
    values = [value for _, _, value in contour.maxima]
    assert values == sorted(values, reverse=True)
    assert values[0] == contour.values.max()


def test_a_maximum_is_above_all_eight_neighbours():
    ridge = np.array([[0.0, 1.0, 0.0], [0.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    axis = np.array([1.0, 2.0, 3.0])
    assert _maxima(axis, axis, ridge) == ((3.0, 2.0, 3.0),)
    assert _maxima(axis, axis, ridge.T) == ((2.0, 3.0, 3.0),)
    corner = np.array([[5.0, -np.inf], [-np.inf, 6.0]])
    assert _maxima(axis[:2], axis[:2], corner) == ((2.0, 2.0, 6.0),)


def test_default_axes_surround_the_fit():
    gp = two_maxima()
    contour = likelihood_contour(gp, "length_scale", "scale", n=5)
    fitted = gp.kernel_.values()["length_scale"]
    assert contour.first[0] < fitted < contour.first[-1]
    assert contour.values.max() == pytest.approx(gp.log_marginal_likelihood_value_, abs=1e-9)


def test_signed_parameters_have_linear_axes():
    x = np.random.default_rng(0).normal(size=(10, 2))
    gp = GaussianProcessRegressor(Metric(RBF(1.0, "fixed"), 1.0, [[0.1, 0.2]]), optimizer=None).fit(
        x, x[:, 0]
    )
    contour = likelihood_contour(gp, "metric.factor[0,0]", "noise_variance", n=3)
    np.testing.assert_allclose(contour.first, [-2.9, 0.1, 3.1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lengthscale", "scale"), "there are"),
        (("length_scale", "scale", [-1.0, 1.0]), "must be > 0"),
        (("length_scale", "scale", [[1.0]]), "shape"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        likelihood_contour(two_maxima(), *arguments)
