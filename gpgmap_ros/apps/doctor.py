"""Diagnosis of a recording: findings with their remedies, for `gpgmap doctor`. The installation: installation.py."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

from gpgmap_ros.apps.cloud_checks import CloudChecks, drive_findings
from gpgmap_ros.apps.replay import MAX_WAITING, PATIENCE
from gpgmap_ros.apps.sensor_checks import ClockChecks, gps_findings, imu_findings
from gpgmap_ros.apps.topic_selection import (
    TopicRequest,
    TopicSelection,
    TopicSelectionError,
    recorded_source,
    select_topics,
)
from gpgmap_ros.config import Config
from gpgmap_ros.diagnostics import GOOD, WRONG, Finding
from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.sensing import CloudError, PoseSource, decode_cloud
from gpgmap_ros.sensing.gps import GpsTrack
from gpgmap_ros.sensing.messages import gps_fix, newest_stamp
from gpgmap_ros.sensing.sources import insert_message
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue

LOOK_CLOUDS = 200
"""Clouds of a recording that are looked at."""


def recording_findings(paths: list[Path], wish: TopicRequest, config: Config) -> Iterator[Finding]:
    """From what is in it to what the pipeline would do with it."""
    try:
        yield from _recording(paths, wish, config)
    except BagError as error:
        yield Finding("recording", WRONG, str(error), "without it nothing can be mapped")


def _recording(paths: list[Path], wish: TopicRequest, config: Config) -> Iterator[Finding]:
    with Recording(paths) as recording:
        for topic in sorted(recording.topics.values(), key=lambda item: item.name):
            yield Finding("topic", GOOD, f"{topic.name}  {topic.type_name}  {topic.count} messages")
        try:
            choice = select_topics(recording, wish, config.map_frame, config.base_frame)
        except (TopicSelectionError, CloudError, BagError) as error:
            yield Finding(
                "choice",
                WRONG,
                str(error),
                "--topic, --odom, --tf, --imu, --gps and --still decide what is used",
            )
            yield from (Finding("damage", WRONG, text) for text in recording.losses)
            return
        yield from (Finding("choice", GOOD, text) for text in choice.reasons)
        yield from _clouds(recording, choice, config)
        for text in recording.losses:
            yield Finding("damage", WRONG, text, "what is left is used; record it again if the loss matters")


def _clouds(recording: Recording, choice: TopicSelection, config: Config) -> Iterator[Finding]:
    decoder, checks, clocks, gps = Decoder(), CloudChecks(config), ClockChecks(), GpsTrack()
    source = recorded_source(choice, config.drive, math.radians(config.imu.max_tilt))
    now = 0
    poses = PoseQueue(source, PATIENCE, lambda: now, MAX_WAITING, config.deskew)
    received, taken = 0, 0
    bad: list[str] = []
    for message in recording.messages(choice.topics):
        now = message.time
        if message.topic != choice.topic:
            try:
                decoded = decoder(message)
                clocks.add(message.topic, newest_stamp(decoded), message.time)
                if message.topic == choice.gps_topic:
                    gps.insert(gps_fix(decoded, message.topic))
                else:
                    insert_message(source, decoded, message.topic)
            except (BagError, ValueError) as error:
                bad.append(str(error))
            _check_poses(poses.ready(), checks)
            continue
        if taken >= LOOK_CLOUDS:
            _check_poses(poses.ready(), checks)
            if poses.waiting and now - received < PATIENCE * NANOSECONDS:
                continue
            break
        try:
            cloud = decode_cloud(decoder(message), message.topic, message.time)
        except (BagError, CloudError) as error:
            bad.append(str(error))
            continue
        received = message.time
        clocks.add(message.topic, cloud.stamp, message.time)
        poses.put(cloud)
        taken += 1
        _check_poses(poses.ready(), checks)
    yield from (Finding("clouds", WRONG, text, "see the driver's settings") for text in sorted(set(bad))[:3])
    if not taken:
        yield Finding("clouds", WRONG, f"none of {choice.topic} can be read", "choose another with --topic")
        return
    _check_poses(poses.end(), checks)
    yield from checks.findings(choice)
    yield from clocks.findings(choice.topic)
    yield from imu_findings(choice, source, checks.newest)
    yield from gps_findings(gps, choice.gps_topic)
    yield from _drives(recording, choice, config, source)


def _check_poses(outcomes: Iterator[LocatedCloud | DroppedCloud], checks: CloudChecks) -> None:
    for found in outcomes:
        checks.add_cloud(found.cloud)
        if isinstance(found, LocatedCloud):
            checks.add_pose(found.cloud.stamp, found.pose)
            if found.cloud.times is not None and found.motion is None:
                checks.add_skewed()
        elif isinstance(found.error, TransformUnavailable):
            checks.add_missing(found.error)


def _drives(
    recording: Recording, choice: TopicSelection, config: Config, seen: PoseSource
) -> Iterator[Finding]:
    """Look at the poses of the whole recording, not only at those of its beginning.

    seen: the source of the poses so far: where none are recorded, it has made them from the clouds
    """
    if choice.pose_source not in ("tf", "odometry"):
        yield from drive_findings(seen.breaks, seen.outliers)
        return
    decoder, poses = Decoder(), recorded_source(choice, config.drive)
    poses_only = choice.topics - {choice.topic, choice.imu_topic, choice.gps_topic}
    for message in recording.messages(poses_only):
        with contextlib.suppress(BagError, ValueError):
            insert_message(poses, decoder(message), message.topic)
    yield from drive_findings(poses.breaks, poses.outliers)
