"""The prior on the lattice: what of a slope shows across a cell."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.kernels import Exponential, Kernel, Matern


def prior_of(kernel: Kernel, noise: float = 0.1) -> MarkovPrior:
    prior = GridGP(Grid((0.0, 0.0), (4, 4), 1.0), kernel, noise).prior
    assert isinstance(prior, MarkovPrior)
    return prior


@pytest.mark.parametrize("nu", [1.25, 1.5, 2.5])
@pytest.mark.parametrize("blocks", [0.3, 1.0, 1.09, 2.5, 30.0])
def test_both_parts_of_a_difference_add_up_to_that_of_the_kernel(nu: float, blocks: float) -> None:
    prior = prior_of(4.0 * Matern(10.0, nu=nu))
    width = blocks * prior.spacing[0]
    carried, unresolved = prior.shares_across(width)
    slope = prior.gradient_variance - prior.unresolved_gradient
    total = 2.0 * (4.0 - float(prior.kernel(np.array([[width, 0.0]]), np.zeros((1, 2)))[0, 0])) / width**2
    np.testing.assert_allclose(carried * slope + unresolved * prior.unresolved_gradient, total, rtol=1e-6)
    assert np.all(unresolved < carried)


def test_within_a_block_all_of_the_slope_shows_and_far_across_nothing_below_it() -> None:
    prior = prior_of(4.0 * Matern(10.0, nu=2.5))
    np.testing.assert_allclose(prior.shares_across(1e-3 * prior.spacing[0]), 1.0, atol=1e-3)
    assert prior.shares_across(50.0 * prior.spacing[0])[1].max() < 1e-3


def test_surfaces_without_slope_have_an_infinite_variance_of_it() -> None:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 12.0, (400, 2))
    gp = GridGP(Grid((0.0, 0.0), (12, 12), 1.0), 4.0 * Exponential(10.0), 0.1)
    gp.update(xy, np.sin(xy[:, 0]) + 0.1 * rng.standard_normal(400))
    gp.learn_scale()
    posterior = gp.posterior()
    assert np.isposinf(posterior.gradient_variance).all()
    assert np.isfinite(posterior.variance).all()
