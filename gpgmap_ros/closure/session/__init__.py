"""The state of a LoopCloser on disk.

session_file   everything in one archive
session_log    what came since it was written, appended record by record
session_check  whether what was read can be
"""

from gpgmap_ros.deprecation import deprecated_names

# gpgmap_ros.closure.session was the module of the LoopCloser
__getattr__ = deprecated_names(
    __name__,
    {
        "LoopCloser": "gpgmap_ros.closure:LoopCloser",
        "LoopClosure": "gpgmap_ros.closure:LoopClosure",
        "known_covariances": "gpgmap_ros.closure.loop_closer:known_covariances",
        "listed": "gpgmap_ros.closure.types:list_pairs",
    },
)
