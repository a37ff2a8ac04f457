"""What may be wrong with the clouds and poses of a recording: `gpgmap doctor` and `gpgmap replay` both ask here.

checks = CloudChecks(config)
checks.add_cloud(cloud, xyz, stamp, received)       # for each cloud
checks.add_pose(stamp, pose)                        # where it has one; add_missing(error) where not
for finding in checks.findings(choice): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from gpgmap_ros.config import Config
from gpgmap_ros.findings import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.geometry import Array
from gpgmap_ros.offline.choosing import Choice
from gpgmap_ros.offline.continuity import Break
from gpgmap_ros.offline.poses import SensorPose
from gpgmap_ros.transform_buffer import NANOSECONDS, TransformUnavailable

MOST_TILT = 30.0
"""Degrees that a robot may stand tilted, as a median, in a frame that is said to be level."""
MOST_RANGES = 200
"""Clouds whose ranges are looked at."""
TIME_FIELDS = ("t", "time", "timestamp", "time_offset", "offset_time", "time_stamp", "timeoffset")
"""Names under which drivers give each point its time."""


class CloudChecks:
    """Numbers about clouds and their poses, and what they mean."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stamps: list[int] = []
        self._received: list[int] = []
        self._sizes: list[int] = []
        self._shares: list[float] = []
        self._ranges: list[Array] = []
        self._fields: list[str] = []
        self._poses: list[tuple[int, SensorPose]] = []
        self._missing: dict[str, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._stamps)

    def add_cloud(self, cloud: Any, xyz: Array, stamp: int, received: int) -> None:
        """cloud: the message; xyz: (N, 3) its returns; stamp, received: nanoseconds"""
        total = int(cloud.width) * int(cloud.height)
        self._fields = self._fields or [item.name for item in cloud.fields]
        self._stamps.append(stamp)
        self._received.append(received)
        self._sizes.append(total)
        self._shares.append(len(xyz) / max(total, 1))
        if len(xyz) and len(self._ranges) < MOST_RANGES:
            self._ranges.append(np.percentile(np.linalg.norm(xyz, axis=1), (5.0, 50.0, 95.0)))

    def add_pose(self, stamp: int, pose: SensorPose) -> None:
        """Of a cloud."""
        self._poses.append((stamp, pose))

    def add_missing(self, error: TransformUnavailable) -> None:
        """A cloud has no pose."""
        count, text = self._missing.get(error.reason, (0, str(error)))
        self._missing[error.reason] = (count + 1, text)

    def findings(self, choice: Choice) -> Iterator[Finding]:
        """Good ones too; those that are not good have a remedy."""
        yield from (Finding("choice", NOTE, text, "record /tf_static as well") for text in choice.warnings)
        if self._stamps:
            yield from self._numbers()
            yield from self._seen_ranges()
        yield from self._coverage(choice)
        yield from self._tilt(choice)
        yield from self._motion()

    def _numbers(self) -> Iterator[Finding]:
        gaps = self._gaps()
        period = float(np.median(gaps)) if len(gaps) else 0.0
        rate = f"{1.0 / period:.1f} Hz" if period > 0.0 else "one cloud"
        share = float(np.median(self._shares))
        yield Finding(
            "clouds",
            GOOD,
            f"{len(self)} looked at: {rate}, {int(np.median(self._sizes)):,} points, {share:.0%} returns;"
            f" fields {', '.join(self._fields)}",
        )
        if len(gaps) and (gaps <= 0.0).any():
            text = f"{int((gaps <= 0.0).sum())} clouds are not newer than the one before"
            yield Finding("stamps", WRONG, text, "check the driver's clock")
        if len(gaps) and gaps.max() > 5.0 * max(period, 1e-3):
            text = f"clouds are missing: the longest gap is {gaps.max():.2f} s"
            yield Finding("stamps", NOTE, text, "was the disk or the network too slow?")
        delay = float(np.median(np.array(self._received) - np.array(self._stamps))) / NANOSECONDS
        if abs(delay) > 1.0:
            yield Finding(
                "stamps",
                NOTE,
                f"stamps and recording times are {delay:.1f} s apart: there are two clocks",
                "poses must have the sensor's clock as well; synchronise by PTP or use the driver's host time",
            )
        if share < 0.3:
            text = f"only {share:.0%} of the points are returns"
            yield Finding("clouds", NOTE, text, "normal outdoors and upwards; else check the sensor")

    def _seen_ranges(self) -> Iterator[Finding]:
        if not self._ranges:
            remedy = "is the sensor covered, or its output filtered?"
            yield Finding("clouds", WRONG, "no cloud has a single return", remedy)
            return
        low, middle, high = np.median(np.array(self._ranges), axis=0)
        yield Finding(
            "range",
            GOOD,
            f"5 % of the points are nearer than {low:.1f} m, half than {middle:.1f} m, 95 % than {high:.1f} m",
        )
        nearest, farthest = self._config.filter.min_range, self._config.filter.max_range
        if high < nearest or low > farthest:
            remedy = "set filter.min_range and filter.max_range to what the sensor sees"
            yield Finding("range", WRONG, f"all points are outside {nearest} to {farthest} m", remedy)

    def _coverage(self, choice: Choice) -> Iterator[Finding]:
        known, without = len(self._poses), sum(count for count, _ in self._missing.values())
        for count, text in self._missing.values():
            status = NOTE if known else WRONG
            remedy = "record /tf from before to after the clouds"
            yield Finding("poses", status, f"{count} clouds have none: {text}", remedy)
        if known:
            yield Finding(
                "poses", GOOD, f"{known} of {known + without} clouds have one in '{choice.map_frame}'"
            )

    def _tilt(self, choice: Choice) -> Iterator[Finding]:
        if not self._poses:
            return
        up = np.array([pose.T_map_robot[2, 2] for _, pose in self._poses])
        tilt = float(np.degrees(np.median(np.arccos(np.clip(up, -1.0, 1.0)))))
        if tilt > MOST_TILT:
            yield Finding(
                "frame",
                WRONG,
                f"the robot is tilted by {tilt:.0f} deg in '{choice.map_frame}'",
                "the map needs a gravity-aligned frame, z up: choose one with --map-frame",
            )

    def _motion(self) -> Iterator[Finding]:
        """How far points of one cloud are apart in time, and what the sensor's motion makes of it."""
        field = next((name for name in self._fields if name.lower() in TIME_FIELDS), None)
        gaps = self._gaps()
        period = float(np.median(gaps[gaps > 0.0])) if (gaps > 0.0).any() else 0.0
        if field is None or not period or not self._ranges:
            return
        speed, rate = self._speeds()
        metres, angle = speed * period, rate * period
        reach = float(np.median(np.array(self._ranges), axis=0)[2])
        if metres + angle * reach > self._config.mapping.resolution:
            yield Finding(
                "motion",
                NOTE,
                f"each point has a time ('{field}'), and between two clouds the sensor moves by {metres:.2f} m and"
                f" turns by {np.degrees(angle):.1f} deg: all points of a cloud are mapped from one pose",
                "let the driver or the odometry undistort the clouds, unless that has been done, or drive slower",
            )

    def _speeds(self) -> tuple[float, float]:
        """m/s and rad/s of the sensor in the fastest tenth of the drive."""
        speeds, rates = [0.0], [0.0]
        order = sorted(self._poses, key=lambda item: (item[1].drive, item[0]))
        for (s, a), (t, b) in pairwise(order):
            seconds = (t - s) / NANOSECONDS
            if a.drive == b.drive and seconds > 0.0:
                T, U = a.T_map_sensor, b.T_map_sensor
                speeds.append(float(np.linalg.norm(U[:3, 3] - T[:3, 3])) / seconds)
                cosine = 0.5 * (float(np.sum(T[:3, :3] * U[:3, :3])) - 1.0)
                rates.append(float(np.arccos(np.clip(cosine, -1.0, 1.0))) / seconds)
        return float(np.percentile(speeds, 90.0)), float(np.percentile(rates, 90.0))

    def _gaps(self) -> Array:
        """Seconds between successive clouds; those between two drives left out."""
        drives = {stamp: pose.drive for stamp, pose in self._poses}
        gaps = [
            (b - a) / NANOSECONDS
            for a, b in pairwise(self._stamps)
            if drives.get(a, 0) == drives.get(b, 0) or a not in drives or b not in drives
        ]
        return np.array(gaps)


def drive_findings(breaks: Iterable[Break], outliers: int) -> Iterator[Finding]:
    """What is to be known of several drives in one recording."""
    for text in dict.fromkeys(item.reason for item in breaks):
        yield Finding(
            "drives",
            NOTE,
            f"another drive begins: {text}",
            "each drive has a frame of its own, and only loop closures join them; if it is one drive, raise the limit",
        )
    if outliers:
        yield Finding(
            "poses",
            NOTE,
            f"{outliers} poses agree with none before and after and are left out",
            "check the odometry; where the robot is that fast, raise the limits in group 'drive'",
        )
