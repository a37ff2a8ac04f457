"""When each point of a cloud was measured: the time field recognised by its name, its unit by its values.

Drivers disagree on everything: Ouster writes `t` in nanoseconds since the first point, Velodyne `time` in seconds
(before or after the stamp), Hesai and RoboSense `timestamp` in seconds since 1970, Livox `offset_time` in nanoseconds.
A scan takes between 5 ms and 1 s, so the span of the values gives the unit: the ranges of seconds, milliseconds,
microseconds and nanoseconds do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.sensing.pointcloud2 import DATATYPES

TIME_FIELDS: Final = ("t", "time", "timestamp", "offset_time", "time_offset")
"""Names under which drivers publish the time of a point, in the order in which they are tried."""
UNITS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds."""
MIN_SCAN, MAX_SCAN = 0.005, 1.0
"""Seconds: shortest and longest duration of a scan."""
MAX_OFFSET: Final = 2.0
"""Seconds between absolute times and the stamp of their cloud beyond which their clocks differ."""


class TimesError(ValueError):
    """A time field that cannot be used: why, and what to do."""


@dataclass(frozen=True)
class PointTimes:
    """Times of the points of a cloud.

    seconds: (N,) after the stamp of the cloud, NaN where a point has no time
    unit: of the field, one of `UNITS`
    absolute: whether the field holds times of day rather than times since the stamp or the first point
    clock_offset: seconds by which an absolute field's clock is ahead of the stamp's; 0 where they agree
    """

    seconds: NDArray[np.float64] = field(repr=False)
    unit: str
    absolute: bool
    clock_offset: float = 0.0


def find_time_field(message: Any) -> str | None:
    """Name of the field of a sensor_msgs/PointCloud2 that holds the time of each point; None where there is none."""
    readable = {
        item.name
        for item in message.fields
        if item.datatype in DATATYPES
        and item.count in (0, 1)
        and 0 <= item.offset <= message.point_step - np.dtype(DATATYPES[item.datatype]).itemsize
    }
    return next((name for name in TIME_FIELDS if name in readable), None)


def interpret_times(values: NDArray[Any], stamp: int) -> PointTimes:
    """Times after the stamp from the raw values (N,) of a time field. TimesError where they make no sense.

    stamp: of the cloud, nanoseconds
    """
    if values.dtype.kind not in "fiu":
        raise TimesError(f"the time field holds {values.dtype}, expected numbers")
    good = np.isfinite(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    if not good.any():
        raise TimesError("no point has a finite time: check the driver's time settings")
    first, last = values[good].min(), values[good].max()
    span = float(last) - float(first) if values.dtype.kind == "f" else float(int(last) - int(first))
    if span == 0.0:
        raise TimesError(f"all points have the same time ({first}): the driver does not fill the field")
    if values.dtype == np.float32 and np.spacing(np.float32(last)) > span * 1e-2:
        raise TimesError(
            f"times near {last} do not fit into float32 (steps of {np.spacing(np.float32(last)):g}): let the driver"
            " publish float64 or times since the first point"
        )
    unit = next((name for name, size in UNITS.items() if MIN_SCAN <= span * size <= MAX_SCAN), None)
    if unit is None:
        raise TimesError(
            f"the times span {span:g}, which is no scan of {MIN_SCAN:g} to {MAX_SCAN:g} s in s, ms, us or ns"
        )
    per_second = round(1.0 / UNITS[unit])
    # integers are subtracted as integers: a double does not hold nanoseconds since 1970
    since_first = _subtract(values, first) / per_second
    start = (
        float(first) / per_second - stamp * 1e-9
        if values.dtype.kind == "f"
        else (int(first) * (10**9 // per_second) - stamp) * 1e-9
    )
    relative_start = float(first) / per_second
    absolute = abs(relative_start) > MAX_SCAN
    if not absolute:
        return PointTimes(np.where(good, since_first + relative_start, np.nan), unit, absolute=False)
    if abs(start) <= MAX_OFFSET:
        return PointTimes(np.where(good, since_first + start, np.nan), unit, absolute=True)
    # Another clock: what the stamp refers to is not known; most drivers stamp the first point.
    return PointTimes(np.where(good, since_first, np.nan), unit, absolute=True, clock_offset=start)


def _subtract(values: NDArray[Any], first: Any) -> NDArray[np.float64]:
    if values.dtype.kind == "f":
        return np.asarray(values.astype(np.float64) - float(first))
    whole = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64) - first
    return np.asarray(whole, dtype=np.float64)
