"""One scan of a range sensor, decoded: what pose sources and the map work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.messages import nanoseconds
from gpgmap_ros.sensing.point_times import TimesError, find_time_field, interpret_times
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
    """The cloud in a sensor_msgs/PointCloud2, of rclpy or of a bag reader; CloudError where it is malformed."""
    stamp = nanoseconds(message.header.stamp)
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
        size=int(message.width) * int(message.height),
        fields=tuple(item.name for item in message.fields),
        times_error=times_error,
    )
