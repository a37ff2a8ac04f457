"""The SLAM loop: cloud -> pose -> map -> submap -> closure -> corrected pose, the same live and replayed.

loop               `Slam`: the method in one file
mapping_pipeline   cloud and pose in, the map around the robot and submaps out
finalizer          solves and stores the submaps that have ended
executors          where that is done, and the closures: at once, in threads, closures in a process
closure_server     loop closures as requests and answers (closure_messages), wherever they run:
                   closure_local in this process, closure_process in a child (closure_child)
closure_updates    what changed in the pose graph; graph_view puts it together again where it is received
drives             the drives of a run, and which of them closures join; trajectory: their poses
session            a run on disk, opened to be used again; merging: several of them in one frame
localizer          where is the robot in a saved map? hypotheses, pose_belief and footprints serve it;
                   localization hands it the submaps of a loop
global_map         one map of all submaps, under corrected poses
comparison         what changed between two runs, maps or point clouds
first_start        what is compiled before the first cloud comes; closure_warm_up: before the first comparison
metrics            counts, durations and warnings of a run

A *drive* is a stretch of poses in one odometry frame. It ends where no motion leads from one pose to the next (a gap of
time, a jump, a clock that was set back) and with a reset. Its identifier, `Submap.session` in files, is the stamp of
its first cloud. Drives that closures join are in one frame and make up a *part* of the result. A *run* is one life of
the program: a node from configure to cleanup, or one replay. A map folder keeps the drives of several runs.
"""

from typing import TYPE_CHECKING

from gpgmap_ros.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpgmap_ros.slam.comparison import compare
    from gpgmap_ros.slam.executors import Executors
    from gpgmap_ros.slam.loop import Slam, SlamListener, Step
    from gpgmap_ros.slam.mapping_pipeline import CloudReport, MappingPipeline
    from gpgmap_ros.slam.merging import merge
    from gpgmap_ros.slam.session import Session, SessionError
    from gpgmap_ros.slam.trajectory import Trajectory

__all__ = [
    "CloudReport",
    "Executors",
    "MappingPipeline",
    "Session",
    "SessionError",
    "Slam",
    "SlamListener",
    "Step",
    "Trajectory",
    "compare",
    "merge",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CloudReport": "mapping_pipeline",
        "Executors": "executors",
        "MappingPipeline": "mapping_pipeline",
        "Session": "session",
        "SessionError": "session",
        "Slam": "loop",
        "SlamListener": "loop",
        "Step": "loop",
        "Trajectory": "trajectory",
        "compare": "comparison",
        "merge": "merging",
    },
)
