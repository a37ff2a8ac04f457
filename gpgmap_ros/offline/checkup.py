"""What may be wrong, and the remedy: with the installation, and with a recording. `gpgmap doctor` prints it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gp_core.compiled import cache_folder
from gpgmap_ros.config import Config
from gpgmap_ros.findings import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.pointcloud2 import CloudError, check_layout, read_xyz
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.offline.choosing import Choice, ChoiceError, Wish, choose
from gpgmap_ros.offline.poses import Poses, frame, nanoseconds
from gpgmap_ros.offline.replay import PATIENCE, poses_for
from gpgmap_ros.transform_buffer import NANOSECONDS, TransformUnavailable

LOOK_CLOUDS = 200
"""Clouds of a recording that are looked at."""


# -- the installation ------------------------------------------------------------------------------------

NEEDED = ("numpy", "scipy", "numba", "PyYAML", "matplotlib", "rosbags")
OPTIONAL = {
    "laspy": "reads LAS and LAZ for `gpgmap map`: pip install laspy lazrs",
    "gtsam": "corrects trajectories when loops are closed: pip install 'gtsam>=4.3'",
    "rerun-sdk": "shows `gpgmap replay --rerun`: pip install rerun-sdk",
}
ROS_MODULES = ("rclpy", "sensor_msgs.msg", "nav_msgs.msg", "tf2_msgs.msg", "grid_map_msgs.msg")


def installation() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 10)
    yield Finding(
        "Python",
        GOOD if good else WRONG,
        f"{version} on {platform.platform()}",
        "" if good else "use 3.10 or newer",
    )
    for name in NEEDED:
        yield _package(name, WRONG, f"pip install {name}")
    for name, what in OPTIONAL.items():
        yield _package(name, NOTE, what)
    yield _cache()
    yield from _ros()


def _package(name: str, otherwise: str, remedy: str) -> Finding:
    try:
        return Finding(name, GOOD, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed", remedy)


def _cache() -> Finding:
    """Where compiled loops are kept: without a folder for them every start compiles anew."""
    folder = cache_folder()
    if folder is not None:
        return Finding("compiled loops", GOOD, f"kept in {folder}; `gpgmap compile` makes them")
    return Finding(
        "compiled loops",
        NOTE,
        "can't be kept: neither the package's folder nor the user's cache can be written to, every start compiles anew",
        "set NUMBA_CACHE_DIR to a folder that can",
    )


def _ros() -> Iterator[Finding]:
    missing = [name for name in ROS_MODULES if not _importable(name)]
    if missing:
        remedy = "`make setup`, or source your ROS 2 installation; the offline commands need none of it"
        yield Finding("ROS 2", NOTE, f"not importable: {', '.join(missing)}", remedy)
        return
    distribution = os.environ.get("ROS_DISTRO", "from wheels")
    domain, reach = (
        os.environ.get("ROS_DOMAIN_ID", "0"),
        os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET"),
    )
    yield Finding("ROS 2", GOOD, f"{distribution}; ROS_DOMAIN_ID {domain}, discovery range {reach}")
    if os.environ.get("ROS_LOCALHOST_ONLY") == "1":
        yield Finding(
            "ROS 2",
            NOTE,
            "ROS_LOCALHOST_ONLY=1: other machines are not seen",
            "unset it for a robot's network",
        )


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# -- a recording -----------------------------------------------------------------------------------------


def recording_findings(paths: list[Path], wish: Wish, config: Config) -> Iterator[Finding]:
    """From what is in it to what the pipeline would do with it."""
    with Recording(paths) as recording:
        for topic in sorted(recording.topics.values(), key=lambda item: item.name):
            yield Finding("topic", GOOD, f"{topic.name}  {topic.type_name}  {topic.count} messages")
        try:
            choice = choose(recording, wish, config.map_frame, config.base_frame)
        except (ChoiceError, CloudError, BagError) as error:
            yield Finding("choice", WRONG, str(error), "decide with --topic, --odom, --tf or --still")
            yield from (Finding("damage", WRONG, text) for text in recording.losses)
            return
        yield from (Finding("choice", GOOD, text) for text in choice.reasons)
        yield from (Finding("choice", NOTE, text, "record /tf_static as well") for text in choice.warnings)
        yield from _clouds(recording, choice, config)
        for text in recording.losses:
            yield Finding("damage", WRONG, text, "what is left is used; record anew if the loss matters")


def _clouds(recording: Recording, choice: Choice, config: Config) -> Iterator[Finding]:
    decoder, poses = Decoder(), poses_for(choice)
    stamps, received, sizes, shares, ranges = [], [], [], [], []
    coverage = _Coverage(poses)
    bad: list[str] = []
    fields = ""
    for message in recording.messages(choice.topics):
        if message.topic != choice.topic:
            try:
                poses.insert(decoder(message), message.topic)
            except (BagError, ValueError) as error:
                bad.append(str(error))
            coverage.look()
            continue
        if len(stamps) >= LOOK_CLOUDS:
            if coverage.waiting and message.time - received[-1] < PATIENCE * NANOSECONDS:
                continue
            break
        try:
            cloud = decoder(message)
            check_layout(cloud)
        except (BagError, CloudError) as error:
            bad.append(str(error))
            continue
        fields = fields or ", ".join(item.name for item in cloud.fields)
        xyz = read_xyz(cloud)
        total = int(cloud.width) * int(cloud.height)
        stamps.append(nanoseconds(cloud.header.stamp))
        received.append(message.time)
        sizes.append(total)
        shares.append(len(xyz) / max(total, 1))
        if len(xyz):
            ranges.append(np.percentile(np.linalg.norm(xyz, axis=1), (5.0, 50.0, 95.0)))
        coverage.waiting.append((frame(cloud.header.frame_id), stamps[-1]))
        coverage.look()
    yield from (Finding("clouds", WRONG, text, "see the driver's settings") for text in sorted(set(bad))[:3])
    if not stamps:
        yield Finding("clouds", WRONG, f"none of {choice.topic} can be read", "choose another with --topic")
        return
    yield from _cloud_numbers(stamps, received, sizes, shares, fields)
    yield from _cloud_ranges(ranges, config)
    yield from coverage.findings(choice)


def _cloud_numbers(
    stamps: list[int], received: list[int], sizes: list[int], shares: list[float], fields: str
) -> Iterator[Finding]:
    gaps = np.diff(stamps) / 1e9
    rate = f"{1.0 / np.median(gaps):.1f} Hz" if len(gaps) and np.median(gaps) > 0.0 else "one cloud"
    yield Finding(
        "clouds",
        GOOD,
        f"{len(stamps)} looked at: {rate}, {int(np.median(sizes)):,} points, {np.median(shares):.0%} returns;"
        f" fields {fields}",
    )
    if len(gaps) and (gaps <= 0.0).any():
        yield Finding(
            "stamps",
            WRONG,
            f"{int((gaps <= 0.0).sum())} clouds are not newer than the one before",
            "check the driver's clock",
        )
    if len(gaps) and gaps.max() > 5.0 * max(float(np.median(gaps)), 1e-3):
        yield Finding(
            "stamps",
            NOTE,
            f"clouds are missing: the longest gap is {gaps.max():.2f} s",
            "was the disk or the network too slow?",
        )
    delay = (np.array(received) - np.array(stamps)) / 1e9
    if np.abs(np.median(delay)) > 1.0:
        yield Finding(
            "stamps", NOTE, f"stamps and recording times are {np.median(delay):.1f} s apart: there are two clocks",
            "poses must have the sensor's clock as well; synchronise by PTP or use the driver's host time",
        )  # fmt: skip
    if np.median(shares) < 0.3:
        yield Finding(
            "clouds",
            NOTE,
            f"only {np.median(shares):.0%} of the points are returns",
            "normal outdoors and upwards; else check the sensor",
        )


def _cloud_ranges(ranges: list[np.ndarray], config: Config) -> Iterator[Finding]:
    if not ranges:
        yield Finding(
            "clouds", WRONG, "no cloud has a single return", "is the sensor covered, or its output filtered?"
        )
        return
    low, middle, high = np.median(np.array(ranges), axis=0)
    yield Finding(
        "range",
        GOOD,
        f"5 % of the points are nearer than {low:.1f} m, half than {middle:.1f} m, 95 % than {high:.1f} m",
    )
    if high < config.filter.min_range or low > config.filter.max_range:
        yield Finding(
            "range", WRONG, f"all points are outside {config.filter.min_range} to {config.filter.max_range} m",
            "set filter.min_range and filter.max_range to what the sensor sees",
        )  # fmt: skip


class _Coverage:
    """Which clouds have poses: asked again with every message, as long as there is hope."""

    def __init__(self, poses: Poses) -> None:
        self._poses = poses
        self.waiting: list[tuple[str, int]] = []
        self._tilts: list[float] = []
        self._reasons: dict[str, tuple[int, str]] = {}

    def look(self) -> None:
        """Sort out those that have a pose now, and those that will never have one."""
        left = []
        for sensor, stamp in self.waiting:
            try:
                pose = self._poses.at(sensor, stamp)
                self._tilts.append(float(np.degrees(np.arccos(np.clip(pose.T_map_robot[2, 2], -1.0, 1.0)))))
            except TransformUnavailable as error:
                if error.reason == "too_early":
                    self._count(error)
                else:
                    left.append((sensor, stamp))
        self.waiting = left

    def _count(self, error: TransformUnavailable) -> None:
        count, text = self._reasons.get(error.reason, (0, str(error)))
        self._reasons[error.reason] = (count + 1, text)

    def findings(self, choice: Choice) -> Iterator[Finding]:
        for sensor, stamp in self.waiting:
            try:
                self._poses.at(sensor, stamp)
            except TransformUnavailable as error:
                self._count(error)
        known = len(self._tilts)
        total = known + sum(count for count, _ in self._reasons.values())
        for count, text in self._reasons.values():
            status = NOTE if known else WRONG
            yield Finding(
                "poses",
                status,
                f"{count} clouds have none: {text}",
                "record /tf from before to after the clouds",
            )
        if not known:
            return
        yield Finding("poses", GOOD, f"{known} of {total} clouds have one in '{choice.map_frame}'")
        if np.median(self._tilts) > 30.0:
            yield Finding(
                "frame", WRONG, f"the robot is tilted by {np.median(self._tilts):.0f} deg in '{choice.map_frame}'",
                "the map needs a gravity-aligned frame, z up: choose one with --map-frame",
            )  # fmt: skip
