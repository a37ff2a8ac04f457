"""The sparse solver on graphs small enough to know the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.problem import NotDetermined, Problem
from gpgmap_ros.closure.graph.robust import Cauchy, Huber
from gpgmap_ros.closure.graph.sparse_solver import SparseSolver, System

WIDE = Huber(1e6)  # quadratic for every error here


def shifted(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def line(measured: list[tuple[int, int, float, float]], count: int, robust: bool = False) -> Problem:
    """Poses along x, the first held. measured: (from, to, metres, standard deviation)"""
    return Problem(
        start=np.array([shifted(k) for k in range(count)]),
        anchors=np.array([0]),
        first=np.array([i for i, _, _, _ in measured]),
        second=np.array([j for _, j, _, _ in measured]),
        Z=np.array([shifted(metres) for _, _, metres, _ in measured]),
        covariance=np.array([std**2 * np.eye(6) for _, _, _, std in measured]),
        robust=np.full(len(measured), robust),
    )


def test_two_measurements_are_averaged_by_their_precision() -> None:
    problem = line([(0, 1, 1.0, 0.1), (0, 1, 2.0, 0.2)], 2)
    found = SparseSolver().minimise(problem, [WIDE])
    assert found.converged
    np.testing.assert_allclose(found.poses[1], shifted(1.2), atol=1e-6)
    assert found.cost == pytest.approx(0.5 * (0.2 / 0.1) ** 2 + 0.5 * (0.8 / 0.2) ** 2, rel=1e-5)


def test_the_direction_of_an_edge_does_not_matter() -> None:
    one = SparseSolver().minimise(line([(0, 1, 1.0, 0.1), (1, 2, 1.3, 0.1), (0, 2, 2.0, 0.1)], 3), [WIDE])
    other = SparseSolver().minimise(line([(0, 1, 1.0, 0.1), (2, 1, -1.3, 0.1), (2, 0, -2.0, 0.1)], 3), [WIDE])
    np.testing.assert_allclose(one.poses, other.poses, atol=1e-6)
    np.testing.assert_allclose(one.poses[:, 0, 3], [0.0, 0.9, 2.1], atol=1e-6)


def test_a_robust_kernel_lets_go_of_a_wrong_edge() -> None:
    edges = [(0, 1, 1.0, 0.1), (0, 1, 1.0, 0.1), (0, 1, 9.0, 0.1)]
    with_kernel = SparseSolver().minimise(line(edges, 2, robust=True), [Cauchy(1.0)])
    without = SparseSolver().minimise(line(edges, 2), [Cauchy(1.0)])
    assert abs(with_kernel.poses[1, 0, 3] - 1.0) < 0.05
    assert without.poses[1, 0, 3] == pytest.approx(11.0 / 3.0, abs=1e-5)


def test_variances_add_along_a_chain() -> None:
    problem = line([(0, 1, 1.0, 0.1), (1, 2, 1.0, 0.2)], 3)
    found = SparseSolver().marginals(problem, problem.start, WIDE)
    along = np.array([covariance[3, 3] for covariance in found])
    np.testing.assert_allclose(along, [0.0, 0.1**2, 0.1**2 + 0.2**2], atol=1e-9)


def test_marginals_do_not_depend_on_the_direction_of_an_edge(ring: Callable[..., Problem]) -> None:
    problem = ring(count=12, lap=6)
    # measured exactly where the poses are, so that only the covariance of an edge has to be turned with it
    Z = lie.inverses(problem.start[problem.first]) @ problem.start[problem.second]
    forth = replace(problem, Z=Z)
    turned = lie.adjoint(Z)
    back = replace(
        forth,
        first=problem.second,
        second=problem.first,
        Z=lie.inverses(Z),
        covariance=turned @ problem.covariance @ np.swapaxes(turned, 1, 2),
    )
    one, other = (SparseSolver().marginals(each, problem.start, WIDE) for each in (forth, back))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_the_gradient_is_the_derivative_of_the_cost(ring: Callable[..., Problem]) -> None:
    problem = ring(count=12, lap=6)
    system, kernel = System(problem), Cauchy(3.5)
    rng = np.random.default_rng(0)
    poses = problem.start @ lie.exp(1e-3 * rng.normal(size=(12, 6)))
    _, _, gradient, cost = system.linearise(poses, kernel)
    assert cost == pytest.approx(system.cost(poses, kernel))
    for _ in range(5):
        direction = rng.normal(size=(12, 6))
        direction[0] = 0.0  # the anchor is far stiffer than the rest
        ahead, back = (system.cost(poses @ lie.exp(h * direction), kernel) for h in (1e-6, -1e-6))
        assert np.sum(gradient * direction) == pytest.approx((ahead - back) / 2e-6, rel=1e-4)


def test_a_pose_without_an_edge_is_not_determined() -> None:
    with pytest.raises(NotDetermined):
        SparseSolver().marginals(line([(0, 1, 1.0, 0.1)], 3), line([], 3).start, WIDE)


def test_a_covariance_that_is_none_is_refused() -> None:
    problem = line([(0, 1, 1.0, 0.0)], 2)
    with pytest.raises(NotDetermined, match="not positive definite"):
        SparseSolver().minimise(problem, [WIDE])
