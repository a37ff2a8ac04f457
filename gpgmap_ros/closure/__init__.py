"""Loop closures on bare ground: recognise a place from its terrain, and know how well.

types          the records: Registration, LoopClosure (the one record of a closure), Evidence
acceptance     every gate in order: when a closure is refused, and why
loop_closer    closures for submaps as they are finished: `LoopCloser`
registration/  the relative pose of two maps: search, refinement, verification, probability, covariance
retrieval/     which of many submaps to register with: candidate selection, database, ranking
graph/         pose graph and its solvers, pairwise consistency, outlier rejection, trajectory correction
session/       the state of a LoopCloser on disk
"""

from typing import TYPE_CHECKING

from gpgmap_ros.deprecation import deprecated_names
from gpgmap_ros.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpgmap_ros.closure.config import ClosureConfig
    from gpgmap_ros.closure.graph.drift import Drift
    from gpgmap_ros.closure.graph.pairwise_consistency import find_consistent
    from gpgmap_ros.closure.graph.pose_graph import PoseGraph, Solution
    from gpgmap_ros.closure.graph.problem import SolverMissing
    from gpgmap_ros.closure.loop_closer import LoopCloser
    from gpgmap_ros.closure.registration.pipeline import register
    from gpgmap_ros.closure.registration.prior import PosePrior
    from gpgmap_ros.closure.registration.se3 import PointRegistrationMissing, refine_se3
    from gpgmap_ros.closure.retrieval.database import ClosureDatabase, Match
    from gpgmap_ros.closure.retrieval.database_file import DatabaseError
    from gpgmap_ros.closure.types import LoopClosure, NotComparable, PoseConstraint, Registration

__all__ = [
    "ClosureConfig",
    "ClosureDatabase",
    "DatabaseError",
    "Drift",
    "LoopCloser",
    "LoopClosure",
    "Match",
    "NotComparable",
    "PointRegistrationMissing",
    "PoseConstraint",
    "PoseGraph",
    "PosePrior",
    "Registration",
    "Solution",
    "SolverMissing",
    "find_consistent",
    "refine_se3",
    "register",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ClosureConfig": "config",
        "ClosureDatabase": "retrieval.database",
        "DatabaseError": "retrieval.database_file",
        "Drift": "graph.drift",
        "LoopCloser": "loop_closer",
        "LoopClosure": "types",
        "Match": "retrieval.database",
        "NotComparable": "types",
        "PointRegistrationMissing": "registration.se3",
        "PoseConstraint": "types",
        "PoseGraph": "graph.pose_graph",
        "PosePrior": "registration.prior",
        "Registration": "types",
        "Solution": "graph.pose_graph",
        "SolverMissing": "graph.problem",
        "find_consistent": "graph.pairwise_consistency",
        "refine_se3": "registration.se3",
        "register": "registration.pipeline",
    },
    deprecated_names(
        __name__,
        {
            "Closure": "gpgmap_ros.closure.types:PoseConstraint",
            "consistent": "gpgmap_ros.closure.graph.pairwise_consistency:find_consistent",
        },
    ),
)
