"""Loop closures on bare ground: find the place again, and know how well.

surface       a submap made ready: heights, slopes, how far each cell can be trusted
prior         where to look, if something is known
search        all yaws and shifts, by FFT (correlation): where could it be?
refinement    Gauss-Newton on heights: where exactly?
overlay       two surfaces laid on each other: what both say
verification  slopes, variances, uniqueness: is it true?
repetition    how alike are different places of this ground?
covariance    how well is it known?
registration  these in order: `register(source, target)`
se3           on request: refined by GICP on the surfaces' points
database      which of many submaps (ranking)?
consistency   do closures agree with each other?
pose_graph    odometry and closures in, corrected poses out (graph/: its solvers)
candidates    which earlier submaps may share ground with a new one?
session       all of it for submaps as they are finished: `LoopCloser`
"""

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.consistency import Closure, Drift, consistent
from gpgmap_ros.closure.database import ClosureDatabase, DatabaseError, Match
from gpgmap_ros.closure.pose_graph import PoseGraph, Solution, SolverMissing
from gpgmap_ros.closure.prior import PosePrior
from gpgmap_ros.closure.registration import Registration, register
from gpgmap_ros.closure.se3 import PointRegistrationMissing, refine_se3
from gpgmap_ros.closure.session import LoopCloser, LoopClosure
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
    "PointRegistrationMissing",
    "PoseGraph",
    "PosePrior",
    "Registration",
    "Solution",
    "SolverMissing",
    "consistent",
    "refine_se3",
    "register",
]
