"""One scan of a range sensor, decoded: what pose sources and the map work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.livox import FIELDS, is_livox, parse_livox, read_livox
from gpgmap_ros.sensing.messages import nanoseconds
from gpgmap_ros.sensing.point_times import MAX_SCAN, MIN_SCAN, TimesError, find_time_field, interpret_times
from gpgmap_ros.sensing.pointcloud2 import read_returns
from gpgmap_ros.sensing.transform_buffer import frame_name


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of one scan in the frame of the sensor.

    stamp: nanoseconds; frame_id: of the sensor; points: (N, 3) returns, metres
    times: (N,) seconds of each point after `stamp`, None where the sensor does not give them
    topic: where it came from; received: when, nanoseconds of the receiver's clock (the recording's, in replay)
    size: points of the message, those without a return included; fields: names of the message's fields
    times_error: why the time field of the message cannot be used, empty where it can or there is none
    """

    stamp: int
    frame_id: str
    points: Array = field(repr=False)
    times: Array | None = field(default=None, repr=False)
    topic: str = ""
    received: int = 0
    size: int = 0
    fields: tuple[str, ...] = ()
    times_error: str = ""


def decode_cloud(message: Any, topic: str = "", received: int = 0) -> Cloud:
    """The cloud in a sensor_msgs/PointCloud2 or a Livox CustomMsg, of rclpy or of a bag reader.

    message: bytes are those of a serialised CustomMsg. CloudError where it is malformed.
    """
    if isinstance(message, bytes):
        message = parse_livox(message)
    stamp = nanoseconds(message.header.stamp)
    if is_livox(message):
        return _decode_livox(message, stamp, topic, received)
    points, values = read_returns(message, find_time_field(message))
    times, times_error = None, ""
    if values is not None and len(values):
        try:
            times = interpret_times(values, stamp).seconds
        except TimesError as error:
            times_error = str(error)
    return Cloud(
        stamp=stamp,
        frame_id=frame_name(message.header.frame_id),
        points=points,
        times=times,
        topic=topic,
        received=received,
        size=cloud_size(message),
        fields=tuple(item.name for item in message.fields),
        times_error=times_error,
    )


def cloud_size(message: Any) -> int:
    """Points of a message, those without a return included."""
    return len(message.points) if is_livox(message) else int(message.width) * int(message.height)


def _decode_livox(message: Any, stamp: int, topic: str, received: int) -> Cloud:
    points, times = read_livox(message, stamp)
    usable = len(times) > 1 and MIN_SCAN <= float(times.max() - times.min()) <= MAX_SCAN
    error = ""
    if len(times) and not usable:
        error = f"offset_time spans {float(times.max() - times.min()):g} s, which is no scan"
    return Cloud(
        stamp,
        frame_name(message.header.frame_id),
        points,
        times if usable else None,
        topic,
        received,
        cloud_size(message),
        FIELDS,
        error,
    )
