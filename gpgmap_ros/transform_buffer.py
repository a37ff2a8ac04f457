"""Transforms by frame and time, where tf2_ros is not installed: the part of its contract that mapping needs.

Frames form a tree. Each frame has one parent; the transform to it is static, or a series over time that is
interpolated. Look-ups outside the series are refused, never extrapolated.
"""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from gpgmap_ros.geometry import Array, interpolate, inverse

NANOSECONDS = 1_000_000_000


class TransformUnavailable(LookupError):
    """No transform for these frames at this time: `reason` is a short, countable word, the text says it in full.

    reason: unknown_frame | not_connected | too_early | too_late
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass
class _Link:
    """Transforms from a frame to its parent, by time; a static one has a single entry that is valid always."""

    parent: str
    static: bool
    stamps: list[int] = field(default_factory=list)
    transforms: list[Array] = field(default_factory=list)

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

    def at(self, stamp: int, child: str) -> Array:
        if self.static:
            return self.transforms[0]
        first, last = self.stamps[0], self.stamps[-1]
        if stamp < first or stamp > last:
            early = stamp < first
            gap = (first - stamp if early else stamp - last) / NANOSECONDS
            raise TransformUnavailable(
                "too_early" if early else "too_late",
                f"'{self.parent}' <- '{child}' is known from {seconds(first)} to {seconds(last)}, asked for"
                f" {seconds(stamp)}: {gap:.3f} s {'before the oldest' if early else 'after the newest'}",
            )
        index = bisect.bisect_left(self.stamps, stamp)
        if self.stamps[index] == stamp:
            return self.transforms[index]
        before, after = self.stamps[index - 1], self.stamps[index]
        return interpolate(
            self.transforms[index - 1], self.transforms[index], (stamp - before) / (after - before)
        )


class TransformBuffer:
    """Keeps transforms and answers look-ups; safe to fill in one thread and ask in another.

    horizon: seconds of history kept for each moving frame.
    """

    def __init__(self, horizon: float = 10.0) -> None:
        self._horizon = round(horizon * NANOSECONDS)
        self._links: dict[str, _Link] = {}
        self._changed = threading.Condition()
        self._interruptions = 0

    def insert(
        self, parent: str, child: str, stamp: int, T_parent_child: Array, static: bool = False
    ) -> None:
        """Add a transform; `stamp` in nanoseconds. A frame that changes its parent starts a new history."""
        if not parent or not child or parent == child:
            raise ValueError(f"a transform needs two different frames, got '{parent}' <- '{child}'")
        if not np.all(np.isfinite(T_parent_child)):
            raise ValueError(f"the transform '{parent}' <- '{child}' is not finite")
        with self._changed:
            link = self._links.get(child)
            if link is None or link.parent != parent or link.static != static:
                link = self._links[child] = _Link(parent, static)
            link.insert(stamp, T_parent_child, self._horizon)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget the moving frames, as after a jump back in time; static ones stay."""
        with self._changed:
            self._links = {child: link for child, link in self._links.items() if link.static}

    def interrupt(self) -> None:
        """End all waiting now, as if its time were over."""
        with self._changed:
            self._interruptions += 1
            self._changed.notify_all()

    def lookup(self, target: str, source: str, stamp: int, timeout: float = 0.0) -> Array:
        """T_target_source at `stamp` (nanoseconds), waiting up to `timeout` seconds for it to become known."""
        deadline = time.monotonic() + timeout
        with self._changed:
            interruptions = self._interruptions
            while True:
                try:
                    return self._lookup(target, source, stamp)
                except TransformUnavailable as error:
                    remaining = deadline - time.monotonic()
                    # what is older than the history will not come any more
                    over = remaining <= 0 or self._interruptions != interruptions
                    if error.reason == "too_early" or over:
                        raise
                self._changed.wait(remaining)

    def _lookup(self, target: str, source: str, stamp: int) -> Array:
        if target == source:
            return np.eye(4)
        chain_target, chain_source = self._ancestors(target), self._ancestors(source)
        common = next((frame for frame in chain_source if frame in chain_target), None)
        if common is None:
            raise self._unconnected(target, source)
        return inverse(self._to_ancestor(target, common, stamp)) @ self._to_ancestor(source, common, stamp)

    def _ancestors(self, frame: str) -> list[str]:
        chain = [frame]
        while (link := self._links.get(chain[-1])) is not None:
            if link.parent in chain:
                loop = " <- ".join([*chain[chain.index(link.parent) :], link.parent])
                raise TransformUnavailable("not_connected", f"the frames form a loop: {loop}")
            chain.append(link.parent)
        return chain

    def _to_ancestor(self, frame: str, ancestor: str, stamp: int) -> Array:
        """T_ancestor_frame."""
        T = np.eye(4)
        while frame != ancestor:
            link = self._links[frame]
            T = link.at(stamp, frame) @ T
            frame = link.parent
        return T

    def _unconnected(self, target: str, source: str) -> TransformUnavailable:
        known = set(self._links) | {link.parent for link in self._links.values()}
        missing = [frame for frame in (target, source) if frame not in known]
        listed = ", ".join(f"'{frame}'" for frame in sorted(known)) or "none"
        if missing:
            names = " and ".join(f"'{frame}'" for frame in missing)
            return TransformUnavailable(
                "unknown_frame", f"no transform has named frame {names}; known frames: {listed}"
            )
        return TransformUnavailable(
            "not_connected", f"'{target}' and '{source}' are not connected; known frames: {listed}"
        )


def seconds(stamp: int) -> str:
    """A stamp in nanoseconds as text in seconds."""
    return f"{stamp // NANOSECONDS}.{stamp % NANOSECONDS // 1_000_000:03d}"
