"""The pose graph over submaps: corrected poses from odometry and closures, by one of the solvers of solvers.py.

Minimised over the poses X of the submaps:

    sum over odometry  |Log(Z_ij^-1 X_i^-1 X_j)|^2_S  +  sum over closures  rho(|Log(Z_ij^-1 X_i^-1 X_j)|_S)

with rho first of Huber, which pulls in a loop however far it is open, then of Cauchy from there, which lets go of a
closure that the others contradict. A closure whose error stays beyond its chi-square limit is listed as an outlier.
Frames that are aligned with gravity lean by no more than `tilt_std` (problem.py).

Several drives (sessions, robots) may be in one graph. The first submap of the first drive stays where it is; a drive
that closures join to it is moved to where they put it, and one that nothing joins yet stays where its odometry began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import graph_objection
from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.pairwise_consistency import pose_mahalanobis_sq
from gpgmap_ros.closure.graph.problem import Problem, SolverMissing
from gpgmap_ros.closure.graph.robust import Cauchy, Huber
from gpgmap_ros.closure.graph.solvers import solver_named
from gpgmap_ros.closure.types import PoseConstraint, PoseEdge
from gpgmap_ros.geometry import inverse

KERNEL_WIDTH = float(np.sqrt(quantile(0.95, 6)))
"""Whitened error beyond which a closure counts less and less."""

__all__ = ["PoseGraph", "Solution", "SolverMissing"]


@dataclass(frozen=True)
class Solution:
    """poses: T_map_submap (4, 4) by id; outliers: closures that the solution pulls apart, by their number
    closure_errors: squared whitened error by number, ~ chi-square(6); error: of the whole graph."""

    poses: Mapping[int, Array]
    outliers: tuple[int, ...]
    closure_errors: Mapping[int, float]
    error: float


class PoseGraph:
    """Submaps in the order they were made, odometry between them, closures across.

    solver: name of one in closure/graph/solvers.py; it is loaded when there is something to solve
    tilt_std: radians by which frames may lean, where they are aligned with gravity; infinite where they are not
    Covariances are (6, 6) over (x, y, z, roll, pitch, yaw) as of a Registration.
    """

    def __init__(self, solver: str = "sparse", tilt_std: float = np.inf) -> None:
        self._solver = solver
        self.tilt_std = tilt_std
        self._poses: dict[int, Array] = {}
        self._drive_of: dict[int, int] = {}  # id of the first submap of a submap's drive
        self._odometry: list[PoseEdge] = []
        self._closures: dict[int, PoseEdge] = {}
        self._next = 0

    def add_first(self, id: int, T_map_submap: Array) -> None:
        """The submap that holds the graph in place."""
        if self._poses:
            raise ValueError(f"the graph begins with '{next(iter(self._poses))}' already")
        self.add_drive(id, T_map_submap)

    def add_drive(self, id: int, T_odom_submap: Array) -> None:
        """The first submap of a drive that no odometry connects with those before."""
        if id in self._poses:
            raise ValueError(f"there is a submap '{id}' already")
        self._poses[id] = check_pose(T_odom_submap)
        self._drive_of[id] = id

    def add_odometry(self, before: int, id: int, T_before_submap: Array, covariance: Array) -> None:
        """A new submap and its pose relative to a known one."""
        self._require(before)
        if id in self._poses:
            raise ValueError(f"there is a submap '{id}' already")
        T = check_pose(T_before_submap)
        self._odometry.append(PoseConstraint(id, before, T, check_covariance(covariance)))
        self._poses[id] = self._poses[before] @ T
        self._drive_of[id] = self._drive_of[before]

    def add_closure(self, closure: PoseEdge) -> int:
        """A closure between two known submaps; returns its number."""
        self._require(closure.source)
        self._require(closure.target)
        check_pose(closure.T_target_source)
        check_covariance(closure.covariance)
        return self._number(closure)

    def _number(self, closure: PoseEdge) -> int:
        self._closures[self._next] = closure
        self._next += 1
        return self._next - 1

    def replace_closures(self, closures: Iterable[PoseEdge]) -> list[int]:
        """Exchange all closures for others; returns their numbers."""
        checked = {id(closure): closure for closure in self._closures.values()}
        self._closures = {}
        return [
            self._number(closure) if id(closure) in checked else self.add_closure(closure)
            for closure in closures
        ]

    def reject(self, number: int) -> None:
        """Take a closure out: the next solution is made without it."""
        if number not in self._closures:
            raise KeyError(f"there is no closure {number}")
        del self._closures[number]

    @property
    def closures(self) -> Mapping[int, PoseEdge]:
        return dict(self._closures)

    @property
    def odometry(self) -> Sequence[PoseEdge]:
        """From each submap to the one before it."""
        return list(self._odometry)

    @property
    def start(self) -> Mapping[int, Array]:
        """T_map_submap by odometry alone, drives put where the closures between them say: where solving starts."""
        return self._place_drives()[0]

    @property
    def anchors(self) -> Mapping[int, int]:
        """By submap, the one that holds it in place: two with the same anchor are in one frame."""
        return self._place_drives()[1]

    def solve(self, start: Mapping[int, Array] | None = None) -> Solution:
        """The corrected poses, from the odometry and the closures that are in the graph now.

        start: T_map_submap by id to start from, as of a solution with fewer closures; by odometry unless given
        SolverMissing where the solver is not installed, ValueError where the graph does not determine its poses.
        """
        if not self._poses:
            raise ValueError("the graph is empty: add_first comes first")
        problem = self._problem()
        if start is not None:
            poses = np.array([start[id] for id in self._poses]).reshape(-1, 4, 4)
            poses[problem.anchors] = problem.start[problem.anchors]
            problem = replace(problem, start=poses)
        found = solver_named(self._solver).minimise(problem, (Huber(KERNEL_WIDTH), Cauchy(KERNEL_WIDTH)))
        solved = dict(zip(self._poses, found.poses, strict=True))
        squared = squared_errors(list(self._closures.values()), solved)
        errors = dict(zip(self._closures, squared.tolist(), strict=True))
        outliers = tuple(number for number, error in errors.items() if graph_objection(error))
        return Solution(solved, outliers, errors, found.cost)

    def covariances(self, poses: Mapping[int, Array]) -> dict[int, Array]:
        """(6, 6) of the pose of each submap at a solution, relative to the one that holds it in place.

        Over (x, y, z, roll, pitch, yaw) along the map's axes; closures count as far as their kernel believes them.
        SolverMissing and ValueError as for `solve`.
        """
        at = np.array([poses[id] for id in self._poses]).reshape(-1, 4, 4)
        local = solver_named(self._solver).marginals(self._problem(), at, Cauchy(KERNEL_WIDTH))
        return {id: map_covariance(T, C) for id, T, C in zip(self._poses, at, local, strict=True)}

    def _place_drives(self) -> tuple[dict[int, Array], dict[int, int]]:
        """Poses to start from, and the anchor of each submap."""
        between = [
            (self._drive_of[c.target], self._drive_of[c.source], c)
            for c in self._closures.values()
            if self._drive_of[c.target] != self._drive_of[c.source]
        ]
        # by drive: from its odometry's frame to its anchor's, and that anchor
        shifts: dict[int, Array] = {}
        anchor: dict[int, int] = {}
        for first in dict.fromkeys(self._drive_of.values()):
            if first in shifts:
                continue
            shifts[first], anchor[first] = np.eye(4), first
            grown = True
            while grown:
                grown = False
                for target, source, c in between:
                    if (target in shifts) == (source in shifts):
                        continue
                    T = self._poses[c.target] @ c.T_target_source @ inverse(self._poses[c.source])
                    if target in shifts:
                        shifts[source], anchor[source] = shifts[target] @ T, first
                    else:
                        shifts[target], anchor[target] = shifts[source] @ inverse(T), first
                    grown = True
        poses = {id: shifts[self._drive_of[id]] @ T for id, T in self._poses.items()}
        return poses, {id: anchor[drive] for id, drive in self._drive_of.items()}

    def _problem(self) -> Problem:
        """The graph as arrays, in the order of the submaps."""
        number = {id: k for k, id in enumerate(self._poses)}
        start, anchors = self._place_drives()
        edges = [*self._odometry, *self._closures.values()]
        return Problem(
            start=np.array(list(start.values())).reshape(-1, 4, 4),
            anchors=np.array([number[id] for id in dict.fromkeys(anchors.values())], dtype=np.intp),
            first=np.array([number[edge.target] for edge in edges], dtype=np.intp),
            second=np.array([number[edge.source] for edge in edges], dtype=np.intp),
            Z=np.array([edge.T_target_source for edge in edges]).reshape(-1, 4, 4),
            covariance=local_covariances(edges),
            robust=np.arange(len(edges)) >= len(self._odometry),
            tilt_std=self.tilt_std,
        )

    def _require(self, id: int) -> None:
        if id not in self._poses:
            raise KeyError(f"there is no submap '{id}' in the graph")


def local_covariance(edge: PoseEdge) -> Array:
    """(6, 6) over (rotation, translation) along the source's own axes, the order and side of closure/graph/lie.py.

    T exp(w, v) with R' dt = v and R' dw = w for errors (dt, dw) along the target's axes.
    """
    return np.asarray(local_covariances([edge])[0])


def local_covariances(edges: Sequence[PoseEdge]) -> Array:
    """(M, 6, 6) `local_covariance` of each edge."""
    R = np.array([edge.T_target_source[:3, :3] for edge in edges]).reshape(-1, 3, 3)
    M = np.zeros((len(edges), 6, 6))
    M[:, :3, 3:] = M[:, 3:, :3] = np.swapaxes(R, 1, 2)
    local = M @ np.array([edge.covariance for edge in edges]).reshape(-1, 6, 6) @ np.swapaxes(M, 1, 2)
    return np.asarray(0.5 * (local + np.swapaxes(local, 1, 2)))


def map_covariance(T_map_submap: Array, local: Array) -> Array:
    """(6, 6) over (x, y, z, roll, pitch, yaw) along the map's axes, of one over (rotation, translation) along the
    submap's own: `local_covariance` backwards."""
    R = T_map_submap[:3, :3]
    M = np.zeros((6, 6))
    M[:3, 3:] = M[3:, :3] = R
    out = M @ local @ M.T
    return 0.5 * (out + out.T)


def squared_errors(closures: Sequence[PoseEdge], poses: Mapping[int, Array]) -> Array:
    """(M,) squared Mahalanobis distances of the solution from closures."""
    if not closures:
        return np.zeros(0)
    T_targets = np.stack([poses[closure.target] for closure in closures])
    T_sources = np.stack([poses[closure.source] for closure in closures])
    Z = np.stack([closure.T_target_source for closure in closures])
    S = np.stack([closure.covariance for closure in closures])
    return pose_mahalanobis_sq(lie.inverses(T_targets) @ T_sources, Z, S)


def check_pose(T: Array) -> Array:
    T = np.asarray(T, dtype=np.float64)
    rigid = T.shape == (4, 4) and np.all(np.isfinite(T)) and np.allclose(T[3], [0.0, 0.0, 0.0, 1.0])
    if not rigid or not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-6) or np.linalg.det(T) < 0.0:
        raise ValueError("a pose must be a rigid 4 x 4 transform with determinant +1")
    return T


def check_covariance(covariance: Array) -> Array:
    covariance = np.asarray(covariance, dtype=np.float64)
    if covariance.shape != (6, 6) or not np.all(np.isfinite(covariance)):
        raise ValueError("a covariance must be 6 x 6 and finite: is the closure an accepted one?")
    if np.linalg.eigvalsh(0.5 * (covariance + covariance.T))[0] <= 0.0:
        raise ValueError("the covariance is not positive definite")
    return covariance
