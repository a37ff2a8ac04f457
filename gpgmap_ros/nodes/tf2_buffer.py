"""Transforms kept by tf2_ros, where it is installed: the same contract as gpgmap_ros.sensing.transform_buffer.

tf2 differs in four ways, which end here: it answers stamp 0 with the newest transform, refuses frames with a leading
slash, does not tell a stamp that is too old from one that is too new while it holds a single transform, and takes in
transforms that close a loop: every look-up through it then fails, until it is cleared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geometry_msgs.msg import TransformStamped
from rclpy.duration import Duration
from rclpy.time import Time

from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.messages import set_transform, time_message
from gpgmap_ros.sensing.messages import transform_of
from gpgmap_ros.sensing.transform_buffer import (
    HORIZON,
    TransformTree,
    TransformUnavailable,
    frame_name,
    list_frames,
)

AUTHORITY = "gpgmap_ros"


@dataclass
class _Link:
    """What was put into tf2 for a frame: its parent; for a moving one, the oldest and the newest stamp ever."""

    parent: str
    oldest: int | None = None
    newest: int | None = None


class Tf2Buffer(TransformTree):
    """tf2: the module tf2_ros, or what has its `Buffer` and exceptions; horizon: seconds of history."""

    def __init__(self, tf2: Any, horizon: float = HORIZON) -> None:
        super().__init__(horizon)
        self._tf2, self._buffer = tf2, tf2.Buffer(Duration(nanoseconds=round(horizon * 1e9)))
        self._links: dict[str, _Link] = {}
        # tf2 copies it: a new one for each transform would cost more than tf2 itself
        self._message = TransformStamped()

    def forget_frame(self, child: str) -> None:
        """tf2 can forget all moving frames, not one: the others come again with their next message."""
        with self._lock:
            link = self._links.get(frame_name(child))
            if link is not None and link.oldest is not None:
                self._clear()

    def _insert(self, parent: str, child: str, stamp: int, T_parent_child: Array, static: bool) -> None:
        # tf2 takes stamp 0 for "no stamp": never as a moving transform
        stamp = max(stamp, 0 if static else 1)
        message = self._message
        message.header.frame_id, message.child_frame_id = parent, child
        message.header.stamp = time_message(stamp)
        set_transform(message.transform, T_parent_child)
        if static:
            self._buffer.set_transform_static(message, AUTHORITY)
            self._links[child] = _Link(parent)
            return
        self._buffer.set_transform(message, AUTHORITY)
        link = self._links.get(child)
        if link is None or link.parent != parent or link.oldest is None or link.newest is None:
            self._links[child] = _Link(parent, stamp, stamp)
        else:
            link.oldest, link.newest = min(link.oldest, stamp), max(link.newest, stamp)

    def _clear(self) -> None:
        self._buffer.clear()
        self._links = {child: link for child, link in self._links.items() if link.oldest is None}

    def _lookup(self, target: str, source: str, stamp: int) -> Array:
        self._chains(target, source)
        try:
            # time 0 would mean the newest: one nanosecond is as old, and means itself
            found = self._buffer.lookup_transform(target, source, Time(nanoseconds=max(stamp, 1)))
        except self._tf2.TransformException as error:
            raise self._unavailable(error, target, source, stamp) from None
        return transform_of(found.transform)

    def _newest(self, target: str, source: str) -> int | None:
        try:
            self._chains(target, source)
            stamp = int(self._buffer.get_latest_common_time(target, source).nanoseconds)
        except (self._tf2.TransformException, TransformUnavailable):
            return None
        return stamp or None  # 0: nothing moves between them

    def _unavailable(self, error: Exception, target: str, source: str, stamp: int) -> TransformUnavailable:
        text = " ".join(str(error).split())
        if not isinstance(error, (self._tf2.ExtrapolationException, self._tf2.TimeoutException)):
            return TransformUnavailable(
                "not_connected", f"{text}; known frames: {list_frames(self._frames())}"
            )
        up, down = self._chains(target, source)
        oldest = [self._links[frame].oldest for frame in (*up, *down)]
        past = "into the past" in text or any(first is not None and stamp < first for first in oldest)
        return TransformUnavailable("too_early" if past else "too_late", text)
