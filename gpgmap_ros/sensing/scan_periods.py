"""Times of points held against the stamps of clouds: a scan that outlasts the time to the next one is none.

The unit of a time field is read from its span (point_times.py), so one that is wrong by a factor of up to a hundred
still looks like a scan. Clouds that would be moved by ten times their motion are worse than clouds that are not moved.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

import numpy as np

from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

MAX_OVERLAP: Final = 1.5
"""Duration of a scan, by the times of its points, over the time to the next one, above which these times are wrong."""
GAPS: Final = 9
"""Clouds over which the median of the time between two is taken: a stamp may be late, and clouds may be missing."""


class ScanPeriods:
    """Leaves out the times of points that can't be right. Clouds in the order in which they came."""

    def __init__(self) -> None:
        self._stamps: dict[tuple[str, str], int] = {}
        self._gaps: dict[tuple[str, str], deque[float]] = {}

    def check(self, cloud: Cloud) -> Cloud:
        """The cloud; without times, and with the reason, where they span more than the time between two clouds."""
        sensor = cloud.topic, cloud.frame_id
        gaps = self._gaps.setdefault(sensor, deque(maxlen=GAPS))
        gap = (cloud.stamp - self._stamps.get(sensor, cloud.stamp)) / NANOSECONDS
        self._stamps[sensor] = cloud.stamp
        if gap > 0.0:
            gaps.append(gap)
        if cloud.times is None or not gaps or not np.isfinite(cloud.times).any():
            return cloud
        duration, period = float(np.nanmax(cloud.times) - np.nanmin(cloud.times)), float(np.median(gaps))
        if duration <= MAX_OVERLAP * period:
            return cloud
        # rounded, so that a recording has one such text and not one for each cloud
        spans = f"they span {duration:.1g} s, and a cloud comes every {period:.1g} s"
        text = f"{spans}: the unit of the time field is wrong"
        return replace(cloud, times=None, times_error=text)
