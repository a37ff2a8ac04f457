"""Our own solver: at a minimum, robust, with honest covariances, and in agreement with GTSAM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.problem import (
    NotDetermined,
    Problem,
    SolverMissing,
    cost,
    squared_errors,
    tilt_cost,
)
from gpgmap_ros.closure.graph.robust import Cauchy, Huber
from gpgmap_ros.closure.graph.solvers import solver_named

KERNELS = (Huber(3.5), Cauchy(3.5))
Ring = Callable[..., Problem]


@pytest.fixture
def gtsam_solver():
    pytest.importorskip("gtsam", reason="GTSAM is not installed: pip install 'gtsam>=4.3'")
    return solver_named("gtsam")


def test_no_step_makes_the_cost_smaller(ring: Ring) -> None:
    problem = ring(wrong=2)
    found = solver_named("sparse").minimise(problem, KERNELS)
    assert found.converged
    least = cost(problem, found.poses, KERNELS[1])
    assert least < 0.2 * cost(problem, problem.start, KERNELS[1])
    np.testing.assert_allclose(found.cost, least, rtol=1e-6)
    np.testing.assert_allclose(found.poses[0], problem.start[0], atol=1e-9)
    rng = np.random.default_rng(3)
    for size in (1e-2, 1e-3):
        for _ in range(10):
            step = size * rng.normal(size=(len(problem.start), 6))
            step[0] = 0.0
            assert cost(problem, found.poses @ lie.exp(step), KERNELS[1]) > least


def test_gravity_keeps_frames_from_leaning(ring: Ring) -> None:
    """Closures whose tilts are wrong bend a ring that nothing holds upright."""
    problem = ring()
    tilted = problem.Z.copy()
    tilted[problem.robust] = tilted[problem.robust] @ lie.exp(np.array([[0.02, 0.01, 0.0, 0.0, 0.0, 0.0]]))
    problem = replace(problem, Z=tilted)
    free, upright = (
        solver_named("sparse").minimise(replace(problem, tilt_std=std), KERNELS).poses
        for std in (np.inf, 0.002)
    )
    lean = [np.abs(poses[:, 2, :2]).max() for poses in (free, upright)]
    assert lean[1] < 0.3 * lean[0]
    turned = free.copy()
    turned[:] = lie.exp(np.array([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])) @ free
    assert tilt_cost(replace(problem, tilt_std=0.002), turned) == pytest.approx(
        tilt_cost(replace(problem, tilt_std=0.002), free)
    ), "yaw is free"


@pytest.mark.parametrize("tilt_std", [np.inf, 0.003])
@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_both_solvers_agree(ring: Ring, gtsam_solver, wrong: int, tilt_std: float) -> None:
    """Far better than the poses are known: GTSAM stops when the cost falls by less than 1e-5 of it."""
    problem = replace(ring(wrong=wrong), tilt_std=tilt_std)
    ours = solver_named("sparse").minimise(problem, KERNELS)
    theirs = gtsam_solver.minimise(problem, KERNELS)
    assert ours.cost <= theirs.cost * (1.0 + 1e-5)
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-3)
    known = solver_named("sparse").marginals(problem, ours.poses, KERNELS[1])
    apart = lie.log(lie.inverses(ours.poses) @ theirs.poses)[1:]
    stds = np.sqrt(np.diagonal(known, axis1=1, axis2=2))[1:]
    assert np.max(np.abs(apart) / stds) < 0.05
    # and they let go of the same closures
    limit = 22.5
    one, other = (squared_errors(problem, found.poses) > limit for found in (ours, theirs))
    np.testing.assert_array_equal(one, other)
    assert one.sum() == wrong


@pytest.mark.parametrize("wrong", [0, 4])
def test_both_solvers_give_the_same_covariances(ring: Ring, gtsam_solver, wrong: int) -> None:
    problem = replace(ring(wrong=wrong), tilt_std=0.003)
    poses = solver_named("sparse").minimise(problem, KERNELS).poses
    ours = solver_named("sparse").marginals(problem, poses, KERNELS[1])
    theirs = gtsam_solver.marginals(problem, poses, KERNELS[1])
    scale = np.sqrt(np.einsum("nii,njj->nij", theirs, theirs))
    assert np.max(np.abs(ours - theirs)[1:] / scale[1:]) < 0.02
    for covariance in ours:
        assert np.linalg.eigvalsh(covariance)[0] > 0.0


def test_two_drives_that_nothing_joins_are_both_held(ring: Ring) -> None:
    one = ring(count=10)
    problem = Problem(
        np.concatenate([one.start, one.start]),
        np.array([0, 10]),
        np.concatenate([one.first, one.first + 10]),
        np.concatenate([one.second, one.second + 10]),
        np.concatenate([one.Z, one.Z]),
        np.concatenate([one.covariance, one.covariance]),
        np.concatenate([one.robust, one.robust]),
    )
    found = solver_named("sparse").minimise(problem, KERNELS)
    np.testing.assert_allclose(found.poses[:10], found.poses[10:], atol=1e-9)


def test_what_is_not_determined_is_said(ring: Ring) -> None:
    problem = ring(count=10)
    bad = problem.covariance.copy()
    bad[3] = 0.0
    with pytest.raises(NotDetermined, match="positive definite"):
        solver_named("sparse").minimise(
            Problem(
                problem.start, problem.anchors, problem.first, problem.second, problem.Z, bad, problem.robust
            ),
            KERNELS,
        )


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(ValueError, match="choose sparse or gtsam"):
        solver_named("ceres")


def test_without_gtsam_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gtsam", None)
    with pytest.raises(SolverMissing, match="set it to sparse"):
        solver_named("gtsam")


def test_a_loop_is_corrected_where_gtsam_cannot_be_imported() -> None:
    """In a fresh interpreter, so that nothing has imported it before."""
    program = """
import sys
sys.modules["gtsam"] = None
import numpy as np
from gpgmap_ros.closure import PoseConstraint, PoseGraph
step, sigma = np.eye(4), 0.01 * np.eye(6)
step[0, 3] = 1.0
graph = PoseGraph()
graph.add_first(0, np.eye(4))
for k in range(4):
    graph.add_odometry(k, k + 1, step, sigma)
graph.add_closure(PoseConstraint(4, 0, np.eye(4) + np.eye(4, k=3) * 3.9, 1e-4 * sigma))
solution = graph.solve()
assert abs(solution.poses[4][0, 3] - 3.9) < 1e-3, solution.poses[4]
assert graph.covariances(solution.poses)[4][0, 0] < 1e-5
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
