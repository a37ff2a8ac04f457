"""Fixes of a GPS receiver: which can be used, and why the others can't."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from gpgmap_ros.sensing.messages import GpsFix
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

MAX_FIXES = 20_000
"""Fixes that are kept: beyond, every second one is forgotten, so that memory stays bounded."""
NULL_ISLAND = 1e-4
"""Degrees around (0, 0), which receivers send that know nothing: ten metres in the Gulf of Guinea."""
NO_FIX = -1
"""Status of a message without a position; -2, unknown, is what drivers leave that do not fill it."""
UNKNOWN_STD = 5.0
"""Metres: standard deviation of a position whose covariance is not given."""


class GpsTrack:
    """The usable fixes of one receiver in the order in which they came.

    refused: how many are not used, by reason; without_covariance: how many do not state their uncertainty
    """

    def __init__(self) -> None:
        self.fixes: list[GpsFix] = []
        self.refused: Counter[str] = Counter()
        self.without_covariance = 0
        self.received = 0
        self._every = 1

    def insert(self, fix: GpsFix) -> None:
        self.received += 1
        reason = objection(fix)
        if reason:
            self.refused[reason] += 1
            return
        if self.fixes and fix.frame_id != self.fixes[0].frame_id:
            self.refused[f"of another receiver than '{self.fixes[0].frame_id}'"] += 1
            return
        self.without_covariance += fix.covariance is None
        if self.received % self._every:
            return
        self.fixes.append(fix)
        if len(self.fixes) > MAX_FIXES:
            self.fixes, self._every = self.fixes[::2], 2 * self._every

    @property
    def longest_gap(self) -> float:
        """Seconds between two successive fixes; 0 where there are fewer."""
        return max(((b.stamp - a.stamp) / NANOSECONDS for a, b in pairwise(self.fixes)), default=0.0)


def objection(fix: GpsFix) -> str:
    """Why a fix can't be used; empty where it can."""
    if fix.status == NO_FIX:
        return "without a fix (status -1)"
    if not math.isfinite(fix.latitude) or not math.isfinite(fix.longitude):
        return "not finite"
    if abs(fix.latitude) > 90.0 or abs(fix.longitude) > 180.0:
        return "no latitude and longitude in degrees"
    if abs(fix.latitude) < NULL_ISLAND and abs(fix.longitude) < NULL_ISLAND:
        return "at (0, 0)"
    return ""
