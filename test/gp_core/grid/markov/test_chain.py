"""The Markov chain of a strip: neighbouring groups of rows have exactly the covariance of the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid.markov.chain import Chain, make_chain
from gp_core.grid.markov.prior import MarkovPrior, make_markov_prior
from gp_core.kernels import Matern

ROWS, WIDTH = 2, 3
N = ROWS * WIDTH


@pytest.fixture(scope="module")
def prior() -> MarkovPrior:
    return make_markov_prior(2.0 * Matern(1.5, nu=0.5), (0.5, 0.5), (0.75, 0.75), 1e3, 2 * ROWS, WIDTH)


@pytest.fixture(scope="module")
def chain(prior: MarkovPrior) -> Chain:
    return make_chain(prior, ROWS, WIDTH)


def precision(chain: Chain, groups: int) -> np.ndarray:
    """Of so many groups in a row."""
    P = np.zeros((groups * N, groups * N))
    for k in range(groups):
        here = slice(k * N, (k + 1) * N)
        P[here, here] += chain.first if k == 0 else chain.arriving
        if k + 1 < groups:
            after = slice((k + 1) * N, (k + 2) * N)
            P[here, here] += chain.leaving
            P[after, here] += chain.coupling
            P[here, after] += chain.coupling.T
    return P


@pytest.mark.parametrize("groups", [2, 5])
def test_neighbouring_groups_have_the_covariance_of_the_kernel(
    chain: Chain, prior: MarkovPrior, groups: int
) -> None:
    covariance = np.linalg.inv(precision(chain, groups))
    expected = prior.block_covariance(2 * ROWS, WIDTH)
    for k in range(groups - 1):
        pair = slice(k * N, (k + 2) * N)
        np.testing.assert_allclose(covariance[pair, pair], expected, atol=1e-6 * expected[0, 0])


def test_one_group_alone_has_the_covariance_of_the_kernel(chain: Chain, prior: MarkovPrior) -> None:
    expected = prior.block_covariance(ROWS, WIDTH)
    np.testing.assert_allclose(np.linalg.inv(chain.first), expected, atol=1e-6 * expected[0, 0])


def test_the_precision_is_symmetric_and_positive(chain: Chain) -> None:
    for block in (chain.first, chain.arriving, chain.leaving):
        np.testing.assert_array_equal(block, block.T)
    assert np.linalg.eigvalsh(precision(chain, 6))[0] > 0.0
