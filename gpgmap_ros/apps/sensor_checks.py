"""What may be wrong with IMU, GPS and the clocks of a recording: `gpgmap doctor` and `gpgmap replay` both ask here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gpgmap_ros.apps.topic_selection import TopicSelection
from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.sensing import PoseSource
from gpgmap_ros.sensing.gps import GpsTrack
from gpgmap_ros.sensing.imu import SILENT
from gpgmap_ros.sensing.messages import GpsFix
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

NOTICED_TILT = np.deg2rad(3.0)
"""A frame that is tilted by more against gravity is named."""
MAX_CLOCK_OFFSET = 0.3
"""Seconds between the delays of two topics beyond which their clocks differ: drivers take some tenths."""
MAX_DELAYS = 500
"""Messages of a topic whose delays are looked at."""
MAX_SPEED = 70.0
"""m/s from one fix to the next that no robot drives."""
MAX_GPS_GAP = 10.0
"""Seconds."""


class ClockChecks:
    """Delays from stamp to recording, by topic: those of one clock are alike."""

    def __init__(self) -> None:
        self._delays: dict[str, list[float]] = {}

    def add(self, topic: str, stamp: int, recorded: int) -> None:
        """stamp, recorded: nanoseconds; a stamp of 0 says nothing"""
        delays = self._delays.setdefault(topic, [])
        if stamp and len(delays) < MAX_DELAYS:
            delays.append((recorded - stamp) / NANOSECONDS)

    def findings(self, reference: str) -> Iterator[Finding]:
        """reference: the topic of the clouds"""
        if not self._delays.get(reference):
            return
        expected = float(np.median(self._delays[reference]))
        for topic, delays in self._delays.items():
            if topic == reference or topic.endswith("tf_static") or len(delays) < 3:
                continue
            offset = float(np.median(delays)) - expected
            if abs(offset) > MAX_CLOCK_OFFSET:
                yield Finding(
                    "clocks",
                    NOTE if abs(offset) < 1.0 else WRONG,
                    f"the stamps of {topic} are {abs(offset):.2f} s {'behind' if offset > 0.0 else 'ahead of'} those of"
                    f" {reference}, judged by when both were recorded: their clocks are not synchronised",
                    "synchronise by PTP, or let both drivers use the time of the host",
                )


def imu_findings(
    selection: TopicSelection, source: PoseSource, newest_cloud: int | None
) -> Iterator[Finding]:
    """What is to be known of the vertical and of the IMU. newest_cloud: stamp of the last cloud"""
    for text in source.notes():
        good = "that of the IMU" in text
        yield Finding(
            "vertical",
            GOOD if good else NOTE,
            text,
            "record an IMU, or begin on level ground; see docs/sensors.md",
        )
    if not selection.imu_topic:
        return
    imu = source.imu.imu
    if not imu.samples:
        yield Finding(
            "IMU", NOTE, f"no sample of {selection.imu_topic} can be used", "see the warnings; is it running?"
        )
        return
    yield Finding("IMU", GOOD, f"{imu.samples} samples in '{imu.frame_id}'")
    newest = imu.newest
    if newest is not None and newest_cloud is not None and newest_cloud - newest > SILENT * NANOSECONDS:
        text = f"the IMU is silent for the last {(newest_cloud - newest) / NANOSECONDS:.1f} s of the clouds"
        yield Finding("IMU", NOTE, text, "clouds are mapped without it; check its driver, and its clock")
    if imu.gaps:
        text = f"samples are missing in {imu.gaps} places"
        yield Finding("IMU", NOTE, text, "turns across a gap are not used; was the recorder too slow?")
    if imu.in_g:
        yield Finding(
            "IMU", NOTE, "accelerations are in g, not in m/s^2", "they are used; the driver breaks REP-145"
        )
    if not source.imu.is_mounted(selection.sensor_frame, newest_cloud or 0):
        frames = f"'{imu.frame_id}' to '{selection.sensor_frame}'"
        text = f"no transform leads from {frames}: the axes are taken to be the same"
        yield Finding("IMU", NOTE, text, "record /tf_static with the mounts of both")
    if source.imu.problem:
        yield Finding("IMU", WRONG, source.imu.problem, "until then its turns and its vertical are not used")
    yield from _tilt_findings(selection, source)


def _tilt_findings(selection: TopicSelection, source: PoseSource) -> Iterator[Finding]:
    if not source.tilt.known:
        return
    tilt, std = source.tilt.tilt, source.tilt.std
    text = (
        f"'{selection.map_frame}' is tilted by {np.degrees(tilt):.1f} deg against gravity, by the IMU"
        f" (known to {np.degrees(std):.1f} deg)"
    )
    if tilt > NOTICED_TILT + 2.0 * std:
        yield Finding("frame", NOTE, text, "choose a level frame with --map-frame, or replay with --lidar")
    else:
        yield Finding("frame", GOOD, text)


def gps_findings(track: GpsTrack, topic: str) -> Iterator[Finding]:
    """What is to be known of the fixes of a topic."""
    if not topic:
        return
    if not track.received:
        yield Finding("GPS", NOTE, f"no fix of {topic} could be read", "was the receiver running?")
        return
    yield Finding("GPS", GOOD, f"{len(track.fixes)} of {track.received} fixes can be used")
    for reason, count in track.refused.most_common():
        remedy = "they are not used; check the receiver and its antenna"
        yield Finding("GPS", NOTE, f"{count} of {track.received} fixes are {reason}", remedy)
    if track.without_covariance:
        text = f"{track.without_covariance} fixes do not state their covariance: 5 m are assumed"
        yield Finding("GPS", NOTE, text, "let the driver publish it (GST sentences of NMEA receivers)")
    if track.longest_gap > MAX_GPS_GAP:
        yield Finding(
            "GPS", NOTE, f"there is no fix for {track.longest_gap:.0f} s", "normal under trees and in tunnels"
        )
    jumps = sum(_speed(a, b) > MAX_SPEED for a, b in pairwise(track.fixes))
    if jumps:
        text = f"the position jumps {jumps} times faster than {MAX_SPEED:.0f} m/s"
        yield Finding("GPS", NOTE, text, "multipath, most likely; such fixes count as outliers")


def _speed(a: GpsFix, b: GpsFix) -> float:
    """m/s, on a sphere."""
    north, east = np.deg2rad([b.latitude - a.latitude, b.longitude - a.longitude]) * 6.371e6
    seconds = max((b.stamp - a.stamp) / NANOSECONDS, 1e-3)
    return float(np.hypot(north, east * np.cos(np.deg2rad(a.latitude)))) / seconds
