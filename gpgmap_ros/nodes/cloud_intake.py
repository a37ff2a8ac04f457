"""From a received message to a cloud with a pose: decoded, of the present time, located."""

from __future__ import annotations

from collections.abc import Callable

from gpgmap_ros.nodes.cloud_order import AHEAD, CloudOrder
from gpgmap_ros.nodes.worker import WaitingCloud
from gpgmap_ros.sensing import Cloud, CloudError, TransformUnavailable, decode_cloud
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue


class CloudIntake:
    """Runs in the worker's thread.

    poses: gives clouds their poses; drop: called with reason and text of a cloud that can't be used
    reset: called with the reason when time has gone back
    """

    def __init__(
        self, poses: PoseQueue, drop: Callable[[str, str], None], reset: Callable[[str], object]
    ) -> None:
        self._poses, self._drop, self._reset = poses, drop, reset
        self.order = CloudOrder()
        self._newest_pose: int | None = None

    def prepare(self, waiting: WaitingCloud) -> LocatedCloud | None:
        """The cloud in a message, with its pose; None where it can't be used."""
        cloud = self._decode(waiting)
        if cloud is None or not self._is_present(cloud, waiting.arrived):
            return None
        try:
            return self._poses.wait(cloud)
        except TransformUnavailable as error:
            self._drop(error.reason, str(error))
            return None

    def _decode(self, waiting: WaitingCloud) -> Cloud | None:
        try:
            cloud = decode_cloud(waiting.message, waiting.topic, round(waiting.arrived * 1e9))
        except CloudError as error:
            self._drop("bad_cloud", f"'{waiting.topic}' is malformed: {error}")
            return None
        if not len(cloud.points):
            self._drop("empty", f"'{waiting.topic}' has no valid point")
            return None
        return cloud

    def _is_present(self, cloud: Cloud, arrived: float) -> bool:
        """Whether the stamp of a cloud fits the others, or enough that fit each other have come: time has jumped."""
        offset = self.order.offset(cloud.stamp, arrived)
        if not offset:
            return True
        source = f"'{cloud.topic}' (frame '{cloud.frame_id}')"
        if not self._time_has_jumped(cloud, source, offset):
            side, reason = ("behind", "late") if offset < 0.0 else ("ahead of", "ahead")
            text = f"{source} is stamped {abs(offset):.1f} s {side} the newest cloud"
            self._drop(reason, f"{text}: late, or of another clock")
            return False
        if offset < 0.0:
            self._reset(f"'{cloud.topic}' went back by {-offset:.1f} s")
        return True

    def _time_has_jumped(self, cloud: Cloud, source: str, offset: float) -> bool:
        """Whether a cloud with a strange stamp is the last of enough that came in a row, with poses."""
        newest = self._poses.source.newest()
        if not self.order.straying:
            self._newest_pose = newest
        try:
            self._poses.source.pose_at(cloud.frame_id, cloud.stamp)  # nobody waits for a stray's pose
            usable = True
        except TransformUnavailable as error:
            near = newest is not None and abs(cloud.stamp - newest) <= AHEAD
            # Poses that went back as well are older than what the buffer keeps, and those of the present have ended.
            ended = newest is not None and self._newest_pose is not None and newest <= self._newest_pose
            usable = near or (error.reason == "too_early" and ended)
            if not usable:
                self.order.forget_strays()
        return self.order.stray(cloud.stamp, offset, source, usable)
