"""The solvers of the pose graph by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpgmap_ros.closure.graph.gtsam_solver import GtsamSolver
from gpgmap_ros.closure.graph.problem import GraphSolver
from gpgmap_ros.closure.graph.sparse_solver import SparseSolver

SOLVERS: Mapping[str, Callable[[], GraphSolver]] = {"sparse": SparseSolver, "gtsam": GtsamSolver}


def solver_named(name: str) -> GraphSolver:
    """SolverMissing where the solver's library is not installed, ValueError for a name that is none."""
    if name not in SOLVERS:
        raise ValueError(f"there is no solver '{name}': choose {' or '.join(SOLVERS)}")
    return SOLVERS[name]()
