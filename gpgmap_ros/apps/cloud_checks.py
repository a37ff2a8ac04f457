"""What may be wrong with the clouds and poses of a recording: `gpgmap doctor` and `gpgmap replay` both ask here.

checks = CloudChecks(config)
checks.add_cloud(cloud)                             # for each cloud
checks.add_pose(stamp, pose)                        # where it has one; add_missing(error) where not
for finding in checks.findings(choice): ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from gpgmap_ros.apps.topic_selection import TopicSelection
from gpgmap_ros.arrays import Mask
from gpgmap_ros.config import Config
from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing import Cloud, SensorPose
from gpgmap_ros.sensing.continuity import POSE_GAP, Break
from gpgmap_ros.sensing.scan_motion import SCAN_DURATION
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

MAX_TILT = 30.0
"""Degrees that a robot may stand tilted, as a median, in a frame that is said to be level."""
MAX_RANGES = 200
"""Clouds whose ranges are looked at."""
MISSING_SHARE = 0.02
"""Share of the clouds before which some are missing from which on that is said."""
REMEDIES = {POSE_GAP: "find out why the poses stopped: the clouds in between are not used"}
"""What to do about clouds without a pose, by the reason of that, where recording more of /tf would not help."""
CAMERA_SHARE = 0.999
"""Share of every cloud's points that lie before a camera; a LiDAR whose z axis is up has none of the ground there."""
NOTICED_SHIFT = 0.01
"""Metres; smaller motion within a scan is below the noise of the sensors."""


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
        self._timed, self._skewed = 0, 0
        self._forward: list[float] = []  # share of the points that a camera could see, by cloud
        self._times_errors: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._stamps)

    @property
    def newest(self) -> int | None:
        """Stamp of the newest cloud."""
        return max(self._stamps, default=None)

    def add_cloud(self, cloud: Cloud) -> None:
        self._fields = self._fields or list(cloud.fields)
        self._stamps.append(cloud.stamp)
        self._received.append(cloud.received)
        self._sizes.append(cloud.size)
        self._shares.append(len(cloud.points) / max(cloud.size, 1))
        if cloud.times is not None:
            self._timed += 1
        if cloud.times_error:
            self._times_errors[cloud.times_error] += 1
        if len(cloud.points) and len(self._ranges) < MAX_RANGES:
            self._forward.append(float(np.mean(camera_sees(cloud.points))))
            self._ranges.append(np.percentile(np.linalg.norm(cloud.points, axis=1), (5.0, 50.0, 95.0)))

    def add_pose(self, stamp: int, pose: SensorPose) -> None:
        """Of a cloud."""
        self._poses.append((stamp, pose))

    def add_skewed(self) -> None:
        """A cloud whose points have times was not deskewed, because its motion is not known."""
        self._skewed += 1

    def add_missing(self, error: TransformUnavailable) -> None:
        """A cloud has no pose."""
        count, text = self._missing.get(error.reason, (0, str(error)))
        self._missing[error.reason] = (count + 1, text)

    def findings(self, choice: TopicSelection) -> Iterator[Finding]:
        """Good ones too; those that are not good have a remedy."""
        yield from (Finding("choice", NOTE, text, "record /tf_static as well") for text in choice.warnings)
        if self._stamps:
            yield from self._numbers()
            yield from self._seen_ranges()
            yield from self._camera()
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
        if len(gaps) and (
            gaps.max() > 5.0 * max(period, 1e-3) or np.mean(gaps > 1.5 * period) > MISSING_SHARE
        ):
            missing = int(np.sum(np.round(gaps[gaps > 1.5 * period] / max(period, 1e-3)) - 1.0))
            text = f"clouds are missing, about {missing}: the longest gap is {gaps.max():.2f} s"
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
            remedy = "set filter.min_range and filter.max_range to what the sensor sees; coordinates must be in metres"
            yield Finding(
                "range",
                WRONG,
                f"all points are outside {nearest:g} to {farthest:g} m, half beyond {middle:.1f} m",
                remedy,
            )

    def _camera(self) -> Iterator[Finding]:
        """Clouds of a camera, whose errors grow with the square of the range, mapped with the noise of a LiDAR."""
        noise = self._config.noise
        preset = noise.sensor != "stereo" and noise.range_quadratic == noise.range_std == -1.0
        if preset and self._forward and min(self._forward) > CAMERA_SHARE:
            yield Finding(
                "noise",
                NOTE,
                f"the points lie before the sensor as before a camera, and the noise is that of a {noise.sensor}",
                "if it is a stereo or depth camera, say --sensor stereo: errors would be stated much too small",
            )

    def _coverage(self, choice: TopicSelection) -> Iterator[Finding]:
        known, without = len(self._poses), sum(count for count, _ in self._missing.values())
        for reason, (count, text) in self._missing.items():
            status = NOTE if known else WRONG
            remedy = REMEDIES.get(reason, "record /tf from before to after the clouds")
            if reason == "too_early" and not any(self._stamps):
                remedy = "the stamps of the clouds are 0: let the driver set the time at which each was taken"
            yield Finding("poses", status, f"{count} clouds have none: {text}", remedy)
        if known:
            yield Finding(
                "poses", GOOD, f"{known} of {known + without} clouds have one in '{choice.map_frame}'"
            )

    def _tilt(self, choice: TopicSelection) -> Iterator[Finding]:
        if not self._poses:
            return
        up = np.array([pose.T_map_robot[2, 2] for _, pose in self._poses])
        tilt = float(np.degrees(np.median(np.arccos(np.clip(up, -1.0, 1.0)))))
        if tilt > MAX_TILT:
            yield Finding(
                "frame",
                WRONG,
                f"the robot is tilted by {tilt:.0f} deg in '{choice.map_frame}'",
                "the map needs a gravity-aligned frame, z up: "
                + (
                    f"{choice.pose_topic} has another, such as that of a camera; use other poses"
                    if choice.pose_source == "odometry"
                    else "choose one with --map-frame"
                ),
            )

    def _motion(self) -> Iterator[Finding]:
        """What the sensor's motion within a scan makes of the clouds."""
        if not self._config.deskew:
            return
        if self._times_errors:
            count, (text, _) = self._times_errors.total(), self._times_errors.most_common(1)[0]
            yield Finding(
                "times",
                NOTE,
                f"the times of the points can't be used in {count} of {len(self)} clouds: {text}",
                "these clouds are not deskewed, but mapped with the noise that this adds; correct the driver's"
                " settings, or --set deskew=false if it undoes the motion itself",
            )
        if self._skewed and sum(self._shift(SCAN_DURATION)) > NOTICED_SHIFT:
            yield Finding(
                "motion",
                NOTE,
                f"{self._skewed} of {self._timed} clouds are not deskewed: how the sensor moved meanwhile is not known",
                "they are mapped with the noise that this adds; record poses from before to after each cloud",
            )
        if not self._timed and not self._times_errors:
            yield from self._no_times()

    def _period(self) -> float:
        """Seconds from one cloud to the next; 0 where there is one only."""
        gaps = self._gaps()
        return float(np.median(gaps[gaps > 0.0])) if (gaps > 0.0).any() else 0.0

    def _no_times(self) -> Iterator[Finding]:
        period = self._period()
        duration = min(period, SCAN_DURATION)
        metres, sideways = self._shift(duration)
        if metres + sideways > self._config.mapping.resolution:
            yield Finding(
                "motion",
                NOTE,
                f"the points have no time field, and in {duration:.2g} s the sensor moves by {metres:.2f} m and its"
                f" turning moves far points by {sideways:.2f} m: all points of a cloud are mapped from one pose",
                "let the driver publish times or undistort the clouds, unless it does, or drive slower",
            )

    def _shift(self, duration: float) -> tuple[float, float]:
        """Metres by which the sensor moves within `duration`, and by which its turning moves points that are far."""
        if not self._ranges:
            return 0.0, 0.0
        speed, rate = self._speeds()
        reach = float(np.median(np.array(self._ranges), axis=0)[2])
        return speed * duration, rate * duration * reach

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


def camera_sees(points: Array) -> Mask:
    """Which of the points (N, 3) a camera of less than 120 degrees sees, in its optical frame: z forward, x right."""
    seen: Mask = np.abs(points[:, :2]).max(axis=1) < np.tan(np.radians(60.0)) * points[:, 2]
    return seen


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
