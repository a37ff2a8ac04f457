"""LiDAR odometry in a process of its own: clouds are registered in one core while those before are mapped in another.

A process and not a thread: small_gicp holds the interpreter's lock while it registers, so that the thread that maps
would wait for it after every compiled loop.

Requests and answers are pickled on the child's standard input and output. The child ends when its input does: with
this process, however that ends.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
from typing import Any

from gpgmap_ros.geometry import Array
from gpgmap_ros.interpreter import module_command
from gpgmap_ros.sensing.lidar_odometry import LostTrack, OdometryStep, import_small_gicp


class OdometryProcess:
    """As `LidarOdometry`, which runs in the child. For one thread at a time."""

    def __init__(self) -> None:
        import_small_gicp()  # what is missing is said here, and not in the child
        self._process = subprocess.Popen(
            module_command("gpgmap_ros.sensing.odometry_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self, T_odom_sensor: Array | None = None) -> None:
        """See `LidarOdometry.restart`. It does not wait for the child."""
        self._send("restart", T_odom_sensor)

    def register(self, points: Array, stamp: int, turn: Array | None = None) -> OdometryStep:
        """See `LidarOdometry.register`."""
        return self._ask("register", points, stamp, turn)

    def follow(self, points: Array, stamp: int, T_odom_sensor: Array) -> OdometryStep:
        """See `LidarOdometry.follow`."""
        return self._ask("follow", points, stamp, T_odom_sensor)

    def close(self) -> None:
        """End the child, after the scan that it is registering."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # it has ended before
                pipe.close()
        self._process.wait()

    def _ask(self, method: str, *arguments: Any) -> OdometryStep:
        self._send(method, *arguments)
        assert self._process.stdout is not None
        try:
            answer = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        if isinstance(answer, LostTrack):
            raise answer
        if not isinstance(answer, OdometryStep):
            raise RuntimeError(f"LiDAR odometry failed: please report this\n{answer}")
        return answer

    def _send(self, method: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump((method, arguments), self._process.stdin, protocol=5)
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def _ended(self) -> RuntimeError:
        return RuntimeError(f"the process of LiDAR odometry ended with code {self._process.wait()}")
