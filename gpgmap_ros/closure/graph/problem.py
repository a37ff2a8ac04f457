"""A pose graph as arrays, which every solver takes: N poses, M edges between them, A anchors.

Minimised over the poses X:

    sum over anchors |Log(P_k^-1 X_k)|^2 / ANCHOR_STD^2  +  sum over edges rho(|Log(Z_ij^-1 X_i^-1 X_j)|_S)
        +  sum over poses |u_xy|^2 / (2 tilt_std^2)

with rho(e) = e^2 / 2 for odometry and a robust kernel for closures, and u = R' (0, 0, 1) the vertical as a pose sees
it: frames that are aligned with gravity can't lean, however long the way between them is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.robust import Kernel

Indices = NDArray[np.intp]

ANCHOR_STD = 1e-6
"""Metres and radians: an anchor stays where it is."""


class SolverMissing(ImportError):
    """The library of the solver that was asked for is not installed."""


class NotDetermined(ValueError):
    """The graph does not determine its poses, or its numbers are too far apart to compute them."""


@dataclass(frozen=True)
class Problem:
    """start: (N, 4, 4) where solving starts; anchors: (A,) indices of the poses that are held there
    first, second: (M,) indices of the poses i and j that an edge joins; Z: (M, 4, 4) measured pose of j in i
    covariance: (M, 6, 6) over (rotation, translation) along j's own axes; robust: (M,) edges that have the kernel
    tilt_std: radians by which the z axes may lean from the vertical; infinite where they have nothing to do with it
    """

    start: Array
    anchors: Indices
    first: Indices
    second: Indices
    Z: Array
    covariance: Array
    robust: NDArray[np.bool_]
    tilt_std: float = np.inf


@dataclass(frozen=True)
class Minimum:
    """poses: (N, 4, 4); cost: there; iterations: steps that were taken; converged: the cost does not fall any more."""

    poses: Array
    cost: float
    iterations: int
    converged: bool


class GraphSolver(Protocol):
    """Minimises a Problem."""

    def minimise(self, problem: Problem, kernels: Sequence[Kernel]) -> Minimum:
        """With each kernel in turn, from where the one before it ended. NotDetermined where that fails."""
        ...

    def marginals(self, problem: Problem, poses: Array, kernel: Kernel) -> Array:
        """(N, 6, 6) covariances over (rotation, translation) along each pose's own axes. NotDetermined."""
        ...


def residuals(problem: Problem, poses: Array) -> Array:
    """(M, 6) Log(Z^-1 X_i^-1 X_j)."""
    between = lie.inverses(poses[problem.first]) @ poses[problem.second]
    return lie.log(lie.inverses(problem.Z) @ between)


def squared_errors(problem: Problem, poses: Array) -> Array:
    """(M,) squared whitened errors."""
    r = residuals(problem, poses)
    return np.asarray(np.sum(r * np.linalg.solve(problem.covariance, r[..., None])[..., 0], axis=1))


def cost(problem: Problem, poses: Array, kernel: Kernel) -> float:
    """What is minimised, without the anchors."""
    squared = squared_errors(problem, poses)
    edges = float(np.sum(np.where(problem.robust, kernel.cost(squared), 0.5 * squared)))
    return edges + tilt_cost(problem, poses)


def tilt_cost(problem: Problem, poses: Array) -> float:
    """What leaning poses cost."""
    return float(0.5 * np.sum(poses[:, 2, :2] ** 2) / problem.tilt_std**2)
