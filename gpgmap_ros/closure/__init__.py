"""Loop closures on bare ground: find the place again, and know how well.

surface       a submap made ready: heights, slopes, how far each cell can be trusted
search        all yaws and shifts by FFT: where could it be?
refinement    Gauss-Newton on heights: where exactly?
verification  slopes, variances, uniqueness: is it true?
covariance    how well is it known?
registration  these in order: `register(source, target)`
database      which of many submaps?
consistency   do closures agree with each other?
pose_graph    odometry and closures in, corrected poses out
session       all of it for submaps as they are finished: `LoopCloser`
"""

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.consistency import Closure, Drift, consistent
from gpgmap_ros.closure.database import ClosureDatabase, DatabaseError, Match
from gpgmap_ros.closure.pose_graph import PoseGraph, Solution, SolverMissing
from gpgmap_ros.closure.registration import Registration, register
from gpgmap_ros.closure.session import LoopCloser, LoopClosure, PosePrior
from gpgmap_ros.closure.surface import NotComparable

__all__ = [
    "Closure",
    "ClosureConfig",
    "ClosureDatabase",
    "DatabaseError",
    "Drift",
    "LoopCloser",
    "LoopClosure",
    "Match",
    "NotComparable",
    "PoseGraph",
    "PosePrior",
    "Registration",
    "Solution",
    "SolverMissing",
    "consistent",
    "register",
]
