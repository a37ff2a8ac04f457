"""The process of LiDAR odometry (odometry_process.py starts it): requests from its input, answers to its output."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback

from gp_core.parallel import single_threaded_blas
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack, OdometryStep


def main() -> int:
    """Requests are (name of a method of `LidarOdometry`, its arguments); `restart` has no answer."""
    # Ctrl-C reaches all processes of a terminal: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    odometry = LidarOdometry()
    with single_threaded_blas():
        while True:
            try:
                method, arguments = pickle.load(sys.stdin.buffer)
            except EOFError:  # the parent is gone, or needs no more
                return 0
            answer: OdometryStep | LostTrack | str | None
            try:
                answer = getattr(odometry, method)(*arguments)
            except LostTrack as error:
                answer = error
            except Exception:
                answer = traceback.format_exc()
            if method == "restart" and answer is None:
                continue
            try:
                pickle.dump(answer, answers)
                answers.flush()
            except BrokenPipeError:
                return 0


if __name__ == "__main__":
    sys.exit(main())
