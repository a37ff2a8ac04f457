"""The pose graph solved by GTSAM (Dellaert et al.), where it is installed: a second implementation to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.graph.problem import ANCHOR_STD, Minimum, NotDetermined, Problem, SolverMissing
from gpgmap_ros.closure.graph.robust import Kernel


class GtsamSolver:
    """Solves with GTSAM's Levenberg-Marquardt, by its default parameters. SolverMissing where it is not installed."""

    def __init__(self) -> None:
        try:
            import gtsam
        except ImportError as error:
            raise SolverMissing(
                "closure.solver is gtsam, which is not installed: pip install 'gtsam>=4.3', or set it to sparse"
            ) from error
        self._gtsam: Any = gtsam

    def minimise(self, problem: Problem, kernels: Sequence[Kernel]) -> Minimum:
        """See `GraphSolver`."""
        values, steps, cost = self._values(problem.start), 0, 0.0
        try:
            for kernel in kernels:
                graph = self._graph(problem, kernel)
                optimizer = self._gtsam.LevenbergMarquardtOptimizer(graph, values)
                values = optimizer.optimize()
                steps += optimizer.iterations()
                cost = float(graph.error(values))
        except RuntimeError as error:
            raise NotDetermined(first_line(error)) from error
        poses = np.array([values.atPose3(k).matrix() for k in range(len(problem.start))])
        return Minimum(poses.reshape(-1, 4, 4), cost, steps, True)

    def marginals(self, problem: Problem, poses: Array, kernel: Kernel) -> Array:
        """See `GraphSolver`."""
        try:
            marginals = self._gtsam.Marginals(self._graph(problem, kernel), self._values(poses))
            return np.array([marginals.marginalCovariance(k) for k in range(len(poses))]).reshape(-1, 6, 6)
        except RuntimeError as error:
            raise NotDetermined(f"the poses are not determined: {first_line(error)}") from error

    def _values(self, poses: Array) -> Any:
        values = self._gtsam.Values()
        for k, T in enumerate(poses):
            values.insert(k, self._gtsam.Pose3(T))
        return values

    def _graph(self, problem: Problem, kernel: Kernel) -> Any:
        gtsam = self._gtsam
        graph = gtsam.NonlinearFactorGraph()
        held = gtsam.noiseModel.Isotropic.Sigma(6, ANCHOR_STD)
        for k in problem.anchors.tolist():
            graph.add(gtsam.PriorFactorPose3(k, gtsam.Pose3(problem.start[k]), held))
        loss = getattr(gtsam.noiseModel.mEstimator, kernel.name).Create(kernel.width)
        ends = zip(problem.first.tolist(), problem.second.tolist(), strict=True)
        for (i, j), Z, covariance, robust in zip(
            ends, problem.Z, problem.covariance, problem.robust, strict=True
        ):
            noise = gtsam.noiseModel.Gaussian.Covariance(covariance)
            if robust:
                noise = gtsam.noiseModel.Robust.Create(loss, noise)
            graph.add(gtsam.BetweenFactorPose3(i, j, gtsam.Pose3(Z), noise))
        if np.isfinite(problem.tilt_std):
            up = gtsam.Unit3(np.array([0.0, 0.0, 1.0]))
            level = gtsam.noiseModel.Isotropic.Sigma(2, problem.tilt_std)
            for k in range(len(problem.start)):
                graph.add(gtsam.AttitudeFactorPose3(k, up, level, up))
        return graph


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
