"""A stand-in for tf2_ros with the part of `Buffer` that gpgmap_ros uses, and tf2's exceptions.

It decides as tf2 does (test_tf2_double.py compares the two where tf2_ros is installed): time 0 means the newest common
time, a frame with a leading slash or without a name is an invalid argument, a single buffered transform answers its own
stamp alone, `clear` keeps the names of the frames and the static transforms, and waiting polls.
"""

from __future__ import annotations

import time as wall
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from geometry_msgs.msg import TransformStamped
from rclpy.duration import Duration
from rclpy.time import Time

from gpgmap_ros.geometry import inverse, quaternion_of, transform_from

POLL = 0.02  # seconds between two looks while waiting
DEEPEST = 1000  # links followed before a tree is called a loop
NEWEST = 0  # the time that means: the newest


class TransformException(Exception):
    pass


class ConnectivityException(TransformException):
    pass


class LookupException(TransformException):
    pass


class ExtrapolationException(TransformException):
    pass


class InvalidArgumentException(TransformException):
    pass


class TimeoutException(TransformException):
    pass


@dataclass
class Cache:
    """Transforms of one frame to its parents, oldest first."""

    static: bool
    horizon: int
    entries: list[tuple[int, str, np.ndarray]] = field(default_factory=list)

    def insert(self, stamp: int, parent: str, T: np.ndarray) -> bool:
        if self.static:
            self.entries = [(0, parent, T)]
            return True
        if self.entries:
            oldest = self.entries[-1][0] - self.horizon
            self.entries = [entry for entry in self.entries if entry[0] >= oldest]
            if stamp < oldest:
                return False
        self.entries.append((stamp, parent, T))
        self.entries.sort(key=lambda entry: entry[0])
        return True

    def newest(self) -> tuple[int, str]:
        """Stamp and parent; no parent where there is nothing."""
        return self.entries[-1][:2] if self.entries else (0, "")

    def at(self, stamp: int) -> tuple[str, np.ndarray]:
        """Parent and transform to it; ExtrapolationException where the stamp is outside."""
        if not self.entries:
            raise ExtrapolationException("nothing is in the buffer")
        if self.static or stamp == NEWEST:
            return self.entries[-1][1:]
        stamps = [entry[0] for entry in self.entries]
        if stamp in stamps:
            return self.entries[stamps.index(stamp)][1:]
        if len(stamps) == 1:
            raise ExtrapolationException(
                f"{shown(stamp)} asked for, but only time {shown(stamps[0])} is there"
            )
        if stamp > stamps[-1]:
            raise ExtrapolationException(
                f"extrapolation into the future: {shown(stamp)} is after {shown(stamps[-1])}"
            )
        if stamp < stamps[0]:
            raise ExtrapolationException(
                f"extrapolation into the past: {shown(stamp)} is before {shown(stamps[0])}"
            )
        after = next(index for index, known in enumerate(stamps) if known > stamp)
        (t0, parent0, T0), (t1, parent1, T1) = self.entries[after - 1 : after + 1]
        if parent0 != parent1:
            return parent0, T0
        share = (stamp - t0) / (t1 - t0)
        q0, q1 = quaternion_of(T0), quaternion_of(T1)
        return parent0, transform_from((1 - share) * T0[:3, 3] + share * T1[:3, 3], slerp(q0, q1, share))


def shown(stamp: int) -> str:
    return f"{stamp / 1e9:.6f}"


def slerp(q0: np.ndarray, q1: np.ndarray, share: float) -> np.ndarray:
    """The rotation a share of the way between two, the shorter way round."""
    cosine = float(q0 @ q1)
    if cosine < 0.0:
        q1, cosine = -q1, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-9:
        return q0
    return (np.sin((1 - share) * angle) * q0 + np.sin(share * angle) * q1) / np.sin(angle)


class Buffer:
    """Keeps transforms and answers for them."""

    def __init__(self, cache_time: Duration | None = None) -> None:
        self._horizon = cache_time.nanoseconds if cache_time is not None else 10_000_000_000
        self._names: set[str] = set()
        self._caches: dict[str, Cache] = {}

    def set_transform(self, transform: TransformStamped, authority: str) -> None:
        self._set(transform, static=False)

    def set_transform_static(self, transform: TransformStamped, authority: str) -> None:
        self._set(transform, static=True)

    def _set(self, message: TransformStamped, static: bool) -> None:
        parent, child = message.header.frame_id.removeprefix("/"), message.child_frame_id.removeprefix("/")
        t, q = message.transform.translation, message.transform.rotation
        values = np.array([t.x, t.y, t.z, q.x, q.y, q.z, q.w])
        if not parent or not child or parent == child or np.isnan(values).any():
            return
        if abs(values[3:] @ values[3:] - 1.0) >= 0.01:
            return
        cache = self._caches.get(child)
        if cache is None or cache.static != static:
            cache = self._caches[child] = Cache(static, self._horizon)
        self._names |= {parent, child}
        stamp = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        cache.insert(stamp, parent, transform_from(values[:3], values[3:]))

    def clear(self) -> None:
        for cache in self._caches.values():
            if not cache.static:
                cache.entries.clear()

    def lookup_transform(
        self, target_frame: str, source_frame: str, time: Time, timeout: Duration | None = None
    ) -> TransformStamped:
        self.can_transform(target_frame, source_frame, time, timeout)
        T = self._look(target_frame, source_frame, time.nanoseconds)
        message = TransformStamped(child_frame_id=source_frame)
        message.header.frame_id = target_frame
        p, q = message.transform.translation, message.transform.rotation
        p.x, p.y, p.z = (float(value) for value in T[:3, 3])
        q.x, q.y, q.z, q.w = (float(value) for value in quaternion_of(T))
        return message

    def can_transform(
        self, target_frame: str, source_frame: str, time: Time, timeout: Duration | None = None
    ) -> bool:
        deadline = wall.monotonic() + (timeout.nanoseconds / 1e9 if timeout is not None else 0.0)
        while True:
            try:
                self._look(target_frame, source_frame, time.nanoseconds)
            except TransformException:
                if wall.monotonic() >= deadline:
                    return False
                wall.sleep(POLL)
            else:
                return True

    def get_latest_common_time(self, target_frame: str, source_frame: str) -> Time:
        self._validate(target_frame)
        self._validate(source_frame)
        try:
            return Time(nanoseconds=self._latest_common_time(target_frame, source_frame))
        except TransformException as error:
            raise TransformException(str(error)) from None

    def _validate(self, frame: str) -> None:
        if not frame or frame.startswith("/"):
            raise InvalidArgumentException(f"'{frame}' is no name of a frame")
        if frame not in self._names:
            raise LookupException(f"'{frame}' does not exist")

    def _look(self, target: str, source: str, stamp: int) -> np.ndarray:
        """T_target_source: up from the source as far as it goes, then up from the target until the two meet."""
        if target == source:
            return np.eye(4)
        self._validate(target)
        self._validate(source)
        if stamp == NEWEST:
            stamp = self._latest_common_time(target, source)
        top, T_top_source, missed = source, np.eye(4), None
        for _ in self._bounded():
            cache = self._caches.get(top)
            if top == target or cache is None:
                break
            try:
                parent, T = cache.at(stamp)
            except ExtrapolationException as error:
                missed = error
                break
            top, T_top_source = parent, T @ T_top_source
        if top == target:
            return T_top_source
        frame, T_frame_target = target, np.eye(4)
        for _ in self._bounded():
            if frame == top:
                return inverse(T_frame_target) @ T_top_source
            cache = self._caches.get(frame)
            if cache is None:
                break
            parent, T = cache.at(stamp)
            if parent == source:
                return inverse(T @ T_frame_target)
            frame, T_frame_target = parent, T @ T_frame_target
        if missed is not None:
            raise missed
        raise ConnectivityException(f"'{target}' and '{source}' are in two trees")

    def _bounded(self) -> Any:
        yield from range(DEEPEST)
        raise LookupException("the frames form a loop")

    def _latest_common_time(self, target: str, source: str) -> int:
        """The least of the newest stamps on the way; 0 where nothing moves on it."""
        if target == source:
            return self._caches[source].newest()[0] if source in self._caches else 0
        from_source = self._way_up(source, {target})
        from_target = self._way_up(target, {source, *from_source})
        meeting = next((frame for frame in from_target if frame in from_source), None)
        if meeting is None:
            raise ConnectivityException(f"'{target}' and '{source}' are in two trees")
        links = [*from_source[: from_source.index(meeting)], *from_target[: from_target.index(meeting)]]
        return min((stamp for frame in links if (stamp := self._caches[frame].newest()[0])), default=0)

    def _way_up(self, frame: str, ends: set[str]) -> list[str]:
        """A frame and those above it, nearest first, as far as one of the `ends` or the root."""
        way = [frame]
        for _ in self._bounded():
            cache = self._caches.get(way[-1])
            parent = cache.newest()[1] if cache is not None else ""
            if way[-1] in ends or not parent:
                break
            way.append(parent)
        return way
