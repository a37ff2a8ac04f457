"""Transforms by frame and time: the contract that mapping needs, and the buffer for where tf2_ros is not installed.

Frames form a tree. Each frame has one parent; the transform to it is static, or a series over time that is
interpolated. Look-ups outside the series are refused, never extrapolated. A leading slash in the name of a frame, as
ROS 1 wrote it, is left out.

A transform that would make a frame its own ancestor is refused: no loop is ever in the tree. The frames that are there
stay, except moving ones that nobody has renewed for as long as history is kept, and those that contradict a static
transform, which is sent only once.
"""

from __future__ import annotations

import bisect
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gpgmap_ros.geometry import Array, interpolate, inverse

NANOSECONDS = 1_000_000_000
HORIZON = 10.0
"""Seconds of history kept for each moving frame, where nothing else is asked for: as tf2 does."""


class TransformUnavailable(LookupError):
    """No transform for these frames at this time: `reason` is a short, countable word, the text says it in full.

    reason: unknown_frame | not_connected | no_odometry | too_early | too_late | between_drives | pose_gap |
        lost_track | interrupted
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class TransformLoop(ValueError):
    """A transform that was refused because a frame would be its own ancestor."""


class Link(Protocol):
    """What is known of a frame that has a parent. newest: stamp of a moving one, None for a static one"""

    @property
    def parent(self) -> str: ...

    @property
    def newest(self) -> int | None: ...


class TransformTree(ABC):
    """Answers look-ups of transforms; safe to fill in one thread and ask in another."""

    _links: Mapping[str, Link]  # by the name of the child

    def __init__(self, horizon: float) -> None:
        """horizon: seconds of history kept for each moving frame"""
        self._horizon = round(horizon * NANOSECONDS)
        self._lock = threading.RLock()

    def insert(
        self, parent: str, child: str, stamp: int, T_parent_child: Array, static: bool = False
    ) -> None:
        """Add a transform; `stamp` in nanoseconds. ValueError where it is none, TransformLoop if it closes a loop."""
        parent, child = frame_name(parent), frame_name(child)
        if not parent or not child or parent == child:
            raise ValueError(f"a transform needs two different frames, got '{parent}' <- '{child}'")
        if not np.all(np.isfinite(T_parent_child)):
            raise ValueError(f"the transform '{parent}' <- '{child}' is not finite")
        with self._lock:
            self.prevent_loop(parent, child, stamp, static)
            self._insert(parent, child, stamp, T_parent_child, static)

    def prevent_loop(self, parent: str, child: str, stamp: int, static: bool = False) -> str | None:
        """TransformLoop where `child` is above `parent`, so that `insert` would close a loop.

        A link between them may have to give way: it is forgotten, and its child is returned.
        """
        with self._lock:
            link = self._links.get(child)
            if link is not None and link.parent == parent:
                return None
            above = self._ancestors(parent)
            if child not in above:
                return None
            between = above[: above.index(child)]
            for frame in between:
                newest = self._links[frame].newest
                if newest is not None and (static or stamp - newest > self._horizon):
                    self.forget_frame(frame)
                    return frame
        # "a <- b": b is the child
        loop = " <- ".join(f"'{frame}'" for frame in shorten([child, *reversed(between), child]))
        raise TransformLoop(f"the frames would form a loop: {loop}")

    def clear(self) -> None:
        """Forget the moving frames, as after a jump back in time; static ones stay."""
        with self._lock:
            self._clear()

    def lookup(self, target: str, source: str, stamp: int) -> Array:
        """T_target_source at `stamp` (nanoseconds); TransformUnavailable where it is not known."""
        target, source = frame_name(target), frame_name(source)
        with self._lock:
            return np.eye(4) if target == source else self._lookup(target, source, stamp)

    def newest(self, target: str, source: str) -> int | None:
        """The newest stamp at which all moving transforms between two frames are known; None where there is none."""
        with self._lock:
            return self._newest(frame_name(target), frame_name(source))

    @abstractmethod
    def forget_frame(self, child: str) -> None:
        """Forget the history of a moving frame, which starts anew; others may go with it."""

    @abstractmethod
    def _insert(self, parent: str, child: str, stamp: int, T_parent_child: Array, static: bool) -> None: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _lookup(self, target: str, source: str, stamp: int) -> Array: ...

    @abstractmethod
    def _newest(self, target: str, source: str) -> int | None: ...

    def _chains(self, target: str, source: str) -> tuple[list[str], list[str]]:
        """The frames from the target, and from the source, up to but without their nearest common ancestor."""
        self._check_known(target, source)
        chain_target, chain_source = self._ancestors(target), self._ancestors(source)
        common = next((frame for frame in chain_source if frame in chain_target), None)
        if common is None:
            raise not_connected(target, source, self._frames())
        return chain_target[: chain_target.index(common)], chain_source[: chain_source.index(common)]

    def _ancestors(self, frame: str) -> list[str]:
        chain = [frame]
        while (link := self._links.get(chain[-1])) is not None:
            chain.append(link.parent)
        return chain

    def _check_known(self, *frames: str) -> None:
        missing = [frame for frame in frames if frame not in self._links]
        if missing:  # a root has no link of its own
            known = self._frames()
            if not known.issuperset(missing):
                raise unknown_frame([frame for frame in missing if frame not in known], known)

    def _frames(self) -> set[str]:
        return set(self._links) | {link.parent for link in self._links.values()}


@dataclass
class _Link:
    """Transforms from a frame to its parent, by time; a static one has a single entry that is valid always."""

    parent: str
    static: bool
    stamps: list[int] = field(default_factory=list)
    transforms: list[Array] = field(default_factory=list)

    @property
    def newest(self) -> int | None:
        return None if self.static else self.stamps[-1]

    def insert(self, stamp: int, T_parent_child: Array, horizon: int) -> None:
        if self.static:
            self.stamps, self.transforms = [stamp], [T_parent_child]
            return
        index = bisect.bisect_left(self.stamps, stamp)
        if index < len(self.stamps) and self.stamps[index] == stamp:
            self.transforms[index] = T_parent_child
        else:
            self.stamps.insert(index, stamp)
            self.transforms.insert(index, T_parent_child)
        outdated = bisect.bisect_left(self.stamps, self.stamps[-1] - horizon)
        if outdated:
            del self.stamps[:outdated], self.transforms[:outdated]

    def refusal(self, stamp: int, child: str) -> TransformUnavailable | None:
        """Why there is no transform at a stamp; None where there is one."""
        if self.static or self.stamps[0] <= stamp <= self.stamps[-1]:
            return None
        first, last = self.stamps[0], self.stamps[-1]
        early = stamp < first
        gap = (first - stamp if early else stamp - last) / NANOSECONDS
        return TransformUnavailable(
            "too_early" if early else "too_late",
            f"'{self.parent}' <- '{child}' is known from {seconds(first)} to {seconds(last)}, asked for"
            f" {seconds(stamp)}: {gap:.3f} s {'before the oldest' if early else 'after the newest'}",
        )

    def at(self, stamp: int) -> Array:
        if self.static:
            return self.transforms[0]
        index = bisect.bisect_left(self.stamps, stamp)
        if self.stamps[index] == stamp:
            return self.transforms[index]
        before, after = self.stamps[index - 1], self.stamps[index]
        return interpolate(
            self.transforms[index - 1], self.transforms[index], (stamp - before) / (after - before)
        )


class TransformBuffer(TransformTree):
    """Keeps transforms itself. A frame that changes its parent starts a new history.

    horizon: seconds of history kept for each moving frame.
    """

    def __init__(self, horizon: float = HORIZON) -> None:
        super().__init__(horizon)
        self._links: dict[str, _Link] = {}

    def forget_frame(self, child: str) -> None:
        with self._lock:
            link = self._links.get(frame_name(child))
            if link is not None and not link.static:
                del self._links[frame_name(child)]

    def _insert(self, parent: str, child: str, stamp: int, T_parent_child: Array, static: bool) -> None:
        link = self._links.get(child)
        if link is None or link.parent != parent or link.static != static:
            link = self._links[child] = _Link(parent, static)
        link.insert(stamp, T_parent_child, self._horizon)

    def _clear(self) -> None:
        self._links = {child: link for child, link in self._links.items() if link.static}

    def _lookup(self, target: str, source: str, stamp: int) -> Array:
        up, down = self._chains(target, source)
        refusals = [self._links[frame].refusal(stamp, frame) for frame in (*up, *down)]
        # what is past on one link makes waiting for another one useless
        for reason in ("too_early", "too_late"):
            for refusal in refusals:
                if refusal is not None and refusal.reason == reason:
                    raise refusal
        return inverse(self._product(up, stamp)) @ self._product(down, stamp)

    def _newest(self, target: str, source: str) -> int | None:
        try:
            up, down = self._chains(target, source)
        except TransformUnavailable:
            return None
        links = [self._links[frame] for frame in (*up, *down)]
        return min((link.newest for link in links if link.newest is not None), default=None)

    def _product(self, chain: list[str], stamp: int) -> Array:
        """T_parent_frame for the parent of the last frame and the first frame of a chain."""
        T = np.eye(4)
        for frame in chain:
            T = self._links[frame].at(stamp) @ T
        return T


def frame_name(name: str) -> str:
    """The name of a frame as tf2 has it: ROS 1's begin with a slash."""
    return name.lstrip("/")


def shorten(frames: list[str], max_frames: int = 12) -> list[str]:
    """For a message: a tree may be thousands of frames deep."""
    return frames if len(frames) <= max_frames else [*frames[: max_frames - 1], "...", frames[-1]]


def unknown_frame(missing: Iterable[str], known: Iterable[str]) -> TransformUnavailable:
    if not all(missing):
        return TransformUnavailable(
            "unknown_frame", f"a frame id is empty; known frames: {list_frames(known)}"
        )
    names = " and ".join(f"'{frame}'" for frame in missing)
    return TransformUnavailable(
        "unknown_frame", f"no transform has named frame {names}; known frames: {list_frames(known)}"
    )


def not_connected(target: str, source: str, known: Iterable[str]) -> TransformUnavailable:
    return TransformUnavailable(
        "not_connected", f"'{target}' and '{source}' are not connected; known frames: {list_frames(known)}"
    )


def list_frames(frames: Iterable[str]) -> str:
    return ", ".join(f"'{frame}'" for frame in sorted(frames)) or "none"


def seconds(stamp: int) -> str:
    """A stamp in nanoseconds as text in seconds."""
    return f"{stamp // NANOSECONDS}.{stamp % NANOSECONDS // 1_000_000:03d}"
