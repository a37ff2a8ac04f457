"""Levenberg-Marquardt on SE(3) with numpy and scipy.

Each step solves (H + lambda diag H) d = -g for the Gauss-Newton approximation of the robust cost (edges weighted anew
at each step), moves every pose by T Exp(d), and is taken if the cost falls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from gp_core.arrays import Array
from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.elimination import Factor, NotPositiveDefinite, Structure
from gpgmap_ros.closure.graph.problem import ANCHOR_STD, Minimum, NotDetermined, Problem, tilt_cost
from gpgmap_ros.closure.graph.robust import Kernel

MAX_STEPS = 100
ENOUGH, ENOUGH_BETWEEN = 1e-6, 1e-3
"""Fall of the cost, relative to it or in itself, at which a solution is final; between two kernels."""
FIRST_DAMPING, MIN_DAMPING, MAX_DAMPING = 1e-6, 1e-12, 1e8


class SparseSolver:
    """Solves with what numpy and scipy have."""

    def minimise(self, problem: Problem, kernels: Sequence[Kernel]) -> Minimum:
        """See `GraphSolver`."""
        system = System(problem)
        poses, steps, cost, converged = problem.start, 0, 0.0, True
        with single_threaded_blas():  # fronts are small: threads that wait for each other take longer
            for k, kernel in enumerate(kernels):
                enough = ENOUGH if k + 1 == len(kernels) else ENOUGH_BETWEEN
                poses, cost, more, converged = descend(system, poses, kernel, enough)
                steps += more
        return Minimum(poses, cost, steps, converged)

    def marginals(self, problem: Problem, poses: Array, kernel: Kernel) -> Array:
        """See `GraphSolver`."""
        system = System(problem)
        diagonal, off_diagonal, _, _ = system.linearise(poses, kernel)
        try:
            with single_threaded_blas():
                found = Factor(system.structure, diagonal, off_diagonal).inverse_diagonal()
        except NotPositiveDefinite as error:
            raise NotDetermined(f"the poses are not determined: {error}") from error
        return np.asarray(0.5 * (found + np.swapaxes(found, 1, 2)))


class System:
    """The normal equations of a problem: their structure is found once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        count, edges = len(problem.start), len(problem.first)
        low = np.minimum(problem.first, problem.second)
        high = np.maximum(problem.first, problem.second)
        pairs, of_edge = np.unique(low * count + high, return_inverse=True)
        self.structure = Structure(count, pairs // count, pairs % count, 6)
        self._flipped = problem.first > problem.second
        each, ones = np.arange(edges), np.ones(edges)
        self._to_first = scipy.sparse.csr_matrix((ones, (problem.first, each)), shape=(count, edges))
        self._to_second = scipy.sparse.csr_matrix((ones, (problem.second, each)), shape=(count, edges))
        self._to_pair = scipy.sparse.csr_matrix((ones, (of_edge.ravel(), each)), shape=(len(pairs), edges))
        try:
            self._whiten = np.linalg.inv(np.linalg.cholesky(problem.covariance))
        except np.linalg.LinAlgError as error:
            raise NotDetermined("the covariance of an edge is not positive definite") from error
        self._Z_inverse = lie.inverses(problem.Z)
        self._held = lie.inverses(problem.start[problem.anchors])

    def cost(self, poses: Array, kernel: Kernel) -> float:
        between = lie.inverses(poses[self.problem.first]) @ poses[self.problem.second]
        e = self._whiten_residuals(lie.log(self._Z_inverse @ between))
        return self._cost(np.sum(e * e, axis=1), poses, kernel)

    def linearise(self, poses: Array, kernel: Kernel) -> tuple[Array, Array, Array, float]:
        """Diagonal (N, 6, 6) and off-diagonal (P, 6, 6) blocks of the matrix, the gradient (N, 6), and the cost."""
        problem = self.problem
        between = lie.inverses(poses[problem.first]) @ poses[problem.second]
        r = lie.log(self._Z_inverse @ between)
        e = self._whiten_residuals(r)
        squared = np.sum(e * e, axis=1)
        weight = np.where(problem.robust, kernel.weight(squared), 1.0)
        # an error of pose j, and one of pose i seen from j
        B = self._whiten @ lie.log_derivative(r)
        A = -B @ lie.adjoint(lie.inverses(between))
        wA, wB = weight[:, None, None] * A, weight[:, None, None] * B
        A_t, B_t = np.swapaxes(A, 1, 2), np.swapaxes(B, 1, 2)
        diagonal = self._to_first @ (A_t @ wA).reshape(-1, 36) + self._to_second @ (B_t @ wB).reshape(-1, 36)
        across = A_t @ wB
        across[self._flipped] = np.swapaxes(across[self._flipped], 1, 2)
        off_diagonal = self._to_pair @ across.reshape(-1, 36)
        we = (weight[:, None] * e)[..., None]
        gradient = np.asarray(self._to_first @ (A_t @ we)[..., 0] + self._to_second @ (B_t @ we)[..., 0])
        anchors = self._anchor_errors(poses)
        diagonal = np.asarray(diagonal).reshape(-1, 6, 6)
        diagonal[problem.anchors] += np.eye(6) / ANCHOR_STD**2
        gradient[problem.anchors] += anchors / ANCHOR_STD**2
        # the vertical u as a pose sees it: d u / d w = [u], of which x and y count
        u = poses[:, 2, :3]
        J = lie.hat(u)[:, :2] / problem.tilt_std
        diagonal[:, :3, :3] += np.swapaxes(J, 1, 2) @ J
        gradient[:, :3] += np.einsum("nij,ni->nj", J, u[:, :2]) / problem.tilt_std
        return (
            diagonal,
            np.asarray(off_diagonal).reshape(-1, 6, 6),
            gradient,
            self._cost(squared, poses, kernel),
        )

    def _whiten_residuals(self, r: Array) -> Array:
        return np.asarray((self._whiten @ r[..., None])[..., 0])

    def _anchor_errors(self, poses: Array) -> Array:
        return lie.log(self._held @ poses[self.problem.anchors])

    def _cost(self, squared: Array, poses: Array, kernel: Kernel) -> float:
        edges = np.where(self.problem.robust, kernel.cost(squared), 0.5 * squared)
        held = 0.5 * np.sum(self._anchor_errors(poses) ** 2) / ANCHOR_STD**2
        return float(np.sum(edges) + held) + tilt_cost(self.problem, poses)


def descend(system: System, poses: Array, kernel: Kernel, enough: float) -> tuple[Array, float, int, bool]:
    """Poses, cost, steps, and whether the cost does not fall any more."""
    damping, cost = FIRST_DAMPING, np.inf
    for step in range(MAX_STEPS):
        diagonal, off_diagonal, gradient, cost = system.linearise(poses, kernel)
        if not np.isfinite(cost):
            raise NotDetermined(
                "the cost of the pose graph is not finite: are two submaps half a turn apart?"
            )
        along = np.einsum("nii->ni", diagonal)
        while True:
            damped = diagonal.copy()
            np.einsum("nii->ni", damped)[:] += damping * along
            try:
                moved = poses @ lie.exp(-Factor(system.structure, damped, off_diagonal).solve(gradient))
                fallen = cost - system.cost(moved, kernel)
            except NotPositiveDefinite:
                fallen = -np.inf
            if fallen >= 0.0:
                break
            damping = max(10.0 * damping, MIN_DAMPING)
            if damping > MAX_DAMPING:  # no step makes it smaller: this is as low as rounding lets it be
                if step == 0 and not np.isfinite(fallen):
                    raise NotDetermined("the poses are not determined by the graph")
                return poses, cost, step, True
        poses, damping = moved, max(0.1 * damping, MIN_DAMPING)
        cost -= fallen
        if fallen <= enough * max(cost, 1.0):
            return poses, cost, step + 1, True
    return poses, cost, MAX_STEPS, False
