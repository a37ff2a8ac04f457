"""Laplace, expectation propagation and the variational bound against slow references and each other."""

import numpy as np
import pytest
from classification_references import (
    LINK,
    elliptical_slice_samples,
    ep_reference,
    exact_evidence,
    laplace_reference,
    toy_problem,
    variational_reference,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_core.classification.ep import expectation_propagation
from gp_core.classification.laplace import laplace
from gp_core.classification.links import LINKS
from gp_core.classification.posterior import prior_times_sites
from gp_core.classification.variational import variational

METHODS = {"laplace": laplace, "ep": expectation_propagation, "variational": variational}
REFERENCES = {"laplace": laplace_reference, "ep": ep_reference, "variational": variational_reference}
both_links = pytest.mark.parametrize("link", ["logit", "probit"])
all_methods = pytest.mark.parametrize("method", list(METHODS))


def training_marginals(K, posterior):
    return posterior.latent(K, np.diag(K))


@both_links
@all_methods
@pytest.mark.parametrize("amplitude", [0.5, 20.0])
def test_posterior_and_evidence_equal_the_slow_reference(method, link, amplitude):
    K, y = toy_problem(6, amplitude=amplitude, length=0.7)
    mean, covariance, log_evidence = REFERENCES[method](K, y, link)
    q = METHODS[method](K, y, LINKS[link])
    assert q.converged
    assert q.log_evidence == pytest.approx(log_evidence, abs=2e-6)
    np.testing.assert_allclose(q.mean, mean, atol=2e-4 * np.sqrt(amplitude))
    np.testing.assert_allclose(q.covariance(K, K), covariance, atol=2e-4 * amplitude)
    found_mean, found_variance = training_marginals(K, q)
    np.testing.assert_allclose(found_mean, q.mean, atol=1e-10)
    np.testing.assert_allclose(found_variance, np.diag(q.covariance(K, K)), atol=1e-10 * amplitude)


@both_links
@pytest.mark.parametrize("amplitude", [1.0, 25.0])
def test_evidence_against_the_integral_over_three_points(link, amplitude):
    """The bound stays below, EP within half a percent of a nat, Laplace within a nat."""
    K, y = toy_problem(3, amplitude=amplitude, length=1.5)
    exact = exact_evidence(K, y, link)
    found = {name: method(K, y, LINKS[link]).log_evidence for name, method in METHODS.items()}
    assert found["variational"] <= exact
    assert found["variational"] == pytest.approx(exact, abs=1.0)
    assert found["ep"] == pytest.approx(exact, abs=5e-3)
    assert found["laplace"] == pytest.approx(exact, abs=1.0)


@both_links
def test_expectation_propagation_is_exact_for_one_point(link):
    for k in [1e-3, 1.0, 1e4]:
        q = expectation_propagation(np.array([[k]]), np.array([1.0]), LINKS[link])
        log_z, mean, variance = LINKS[link].tilted(np.array([1.0]), np.zeros(1), np.array([k]))
        assert q.log_evidence == pytest.approx(log_z[0], abs=1e-9)
        assert q.mean == pytest.approx(mean, rel=1e-6)
        assert q.latent(np.array([[k]]), np.array([k]))[1] == pytest.approx(variance, rel=1e-6)


@both_links
@all_methods
@pytest.mark.parametrize("amplitude", [1e-3, 1.0, 100.0])
def test_evidence_weights_are_the_derivative_by_the_kernel_matrix(method, link, amplitude):
    K, y = toy_problem(9, amplitude=amplitude, length=0.8)
    rng = np.random.default_rng(3)
    root = rng.normal(size=K.shape)
    D = amplitude * root @ root.T / len(K)
    step = 1e-4

    def log_evidence(t):
        return METHODS[method](
            K + t * D, y, LINKS[link], tol=1e-14 if method == "laplace" else 1e-10
        ).log_evidence

    expected = (log_evidence(step) - log_evidence(-step)) / (2 * step)
    G = METHODS[method](K, y, LINKS[link]).evidence_weights(K)[0]
    np.testing.assert_allclose(G, G.T, atol=1e-12 * np.abs(G).max())
    assert np.sum(G * D) == pytest.approx(expected, rel=2e-5, abs=1e-6)


@both_links
@all_methods
def test_a_warm_start_changes_the_work_and_not_the_result(method, link):
    K, y = toy_problem(30, amplitude=10.0, length=0.6)
    cold = METHODS[method](K, y, LINKS[link])
    near = METHODS[method](1.02 * K, y, LINKS[link])
    warm = METHODS[method](K, y, LINKS[link], near)
    assert warm.iterations < cold.iterations
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-6)
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-4)


@both_links
@all_methods
def test_flipping_all_labels_flips_the_mean(method, link):
    K, y = toy_problem(12)
    up, down = METHODS[method](K, y, LINKS[link]), METHODS[method](K, -y, LINKS[link])
    np.testing.assert_allclose(up.mean, -down.mean, atol=1e-6)
    assert up.log_evidence == pytest.approx(down.log_evidence, abs=1e-8)


@settings(max_examples=40, deadline=None)
@given(
    method=st.sampled_from(sorted(METHODS)),
    link=st.sampled_from(sorted(LINKS)),
    log_amplitude=st.floats(-9, 11.5),
    log_length=st.floats(-4, 4),
    n=st.integers(1, 25),
    copies=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_every_method_converges_whatever_the_scale_and_with_duplicates(
    method, link, log_amplitude, log_length, n, copies, seed
):
    rng = np.random.default_rng(seed)
    x = np.tile(rng.uniform(-3, 3, size=(n, 2)), (copies, 1))
    y = rng.choice([-1.0, 1.0], size=len(x))
    distance = ((x[:, None] - x[None, :]) ** 2).sum(-1)
    K = np.exp(log_amplitude) * np.exp(-0.5 * distance / np.exp(log_length) ** 2)
    q = METHODS[method](K, y, LINKS[link])
    mean, variance = training_marginals(K, q)
    assert q.converged
    assert np.isfinite(q.log_evidence)
    assert q.log_evidence <= 1e-6
    assert np.isfinite(mean).all()
    assert np.isfinite(variance).all()
    assert (variance <= np.diag(K) * (1 + 1e-9)).all()
    # Each factor pulls its own point towards its own label.
    assert (y * q.alpha >= -1e-6 * np.abs(q.alpha).max()).all()


def test_an_indefinite_matrix_is_refused():
    K = np.array([[1.0, 3.0], [3.0, 1.0]])
    with pytest.raises(ValueError, match="not positive definite here: use a valid kernel"):
        prior_times_sites(K, np.full(2, 0.6))


@pytest.mark.slow
@both_links
def test_all_methods_agree_with_monte_carlo(link):
    """Class probabilities at the training points: EP within 0.01, the others within 0.08 of the exact ones.

    EP's means are nearly exact; its deviations miss up to a tenth where the posterior is skewed.
    """
    K, y = toy_problem(20, amplitude=6.0, length=0.8, seed=5)
    draws = elliptical_slice_samples(K, y, link, 60_000)
    exact = LINK[link](draws).mean(axis=0)
    deviation = {}
    for name, method in METHODS.items():
        mean, variance = training_marginals(K, method(K, y, LINKS[link]))
        deviation[name] = np.abs(LINKS[link].class_probability(mean, variance) - exact).max()
    assert deviation["ep"] < 0.01
    assert deviation["variational"] < 0.08
    assert deviation["laplace"] < 0.08
    mean, variance = training_marginals(K, expectation_propagation(K, y, LINKS[link]))
    std = draws.std(axis=0)
    assert (np.abs(mean - draws.mean(axis=0)) / std).max() < 0.05
    assert np.abs(np.sqrt(variance) / std - 1).max() < 0.12


@both_links
@pytest.mark.parametrize("method", ["ep", "variational"])
def test_many_copies_of_few_points_converge_although_plain_parallel_updates_overshoot(method, link):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.uniform(-3, 3, size=5), 10)
    y = np.where(np.sin(2 * x) + 0.5 * rng.normal(size=50) > 0, 1.0, -1.0)
    K = 1e5 * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    q = METHODS[method](K, y, LINKS[link], max_iter=600)
    assert q.converged
