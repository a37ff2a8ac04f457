"""Times of the points of a cloud, through the decoding of the message: layouts, byte orders and bad descriptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cloud_messages import cloud_of

from gpgmap_ros.sensing import decode_cloud

STAMP = 1_700_000_000_250_000_000
PADDED = {"names": ["x", "y", "z", "t"], "formats": ["<f4", "<f4", "<f4", "<u4"],
          "offsets": [0, 4, 8, 20], "itemsize": 48}  # fmt: skip
LAYOUTS: dict[str, tuple[np.dtype[Any], float]] = {
    "padded, nanoseconds": (np.dtype(PADDED), 1e9),  # type: ignore[call-overload]
    "float seconds": (np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("time", "<f4")]), 1.0),
    "big-endian microseconds": (
        np.dtype([("x", ">f4"), ("y", ">f4"), ("z", ">f4"), ("time_offset", ">u4")]),
        1e6,
    ),
    "before the coordinates": (
        np.dtype([("offset_time", "<u4"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4")]),
        1e9,
    ),
}
COUNT = 12
SECONDS = np.linspace(0.0, 0.099, COUNT)


def message(dtype: np.dtype[Any], values: np.ndarray, height: int = 1, row_padding: int = 0) -> Any:
    (name,) = set(dtype.names or ()) - set("xyz")
    array = np.zeros(COUNT, dtype)
    array["x"], array[name] = np.arange(1, COUNT + 1), values
    made = cloud_of(array, height, row_padding)
    stamp = SimpleNamespace(sec=STAMP // 10**9, nanosec=STAMP % 10**9)
    made.header = SimpleNamespace(stamp=stamp, frame_id="lidar")
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("height", "row_padding"), [(1, 0), (3, 0), (3, 5)])
def test_every_point_keeps_its_time(layout: str, height: int, row_padding: int) -> None:
    dtype, per_second = LAYOUTS[layout]
    cloud = decode_cloud(message(dtype, SECONDS * per_second, height, row_padding))
    assert cloud.times is not None, cloud.times_error
    np.testing.assert_allclose(cloud.times, SECONDS, atol=2e-6)
    np.testing.assert_array_equal(cloud.points[:, 0], np.arange(1, COUNT + 1))


def test_points_without_a_return_take_their_times_with_them() -> None:
    dtype, per_second = LAYOUTS["padded, nanoseconds"]
    made = message(dtype, SECONDS * per_second)
    data = np.frombuffer(bytearray(made.data), dtype)
    data["x"][[2, 5]] = 0.0, np.nan
    made.data = data.tobytes()
    cloud = decode_cloud(made)
    assert cloud.times is not None
    np.testing.assert_allclose(cloud.times, np.delete(SECONDS, [2, 5]), atol=1e-8)
    assert len(cloud.points) == COUNT - 2
    assert cloud.size == COUNT


@pytest.mark.parametrize("offset", [46, 4_000_000, -4])
def test_a_time_field_outside_the_point_is_not_read(offset: int) -> None:
    dtype, per_second = LAYOUTS["padded, nanoseconds"]
    made = message(dtype, SECONDS * per_second)
    made.fields[-1].offset = offset
    cloud = decode_cloud(made)
    assert cloud.times is None
    assert len(cloud.points) == COUNT


@pytest.mark.parametrize(
    ("values", "reason"),
    [(np.zeros(COUNT), "all points have the same time"), (SECONDS * 1e12, "which is no scan")],
)
def test_times_that_make_no_sense_are_named_and_the_points_stay(values: np.ndarray, reason: str) -> None:
    dtype = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("timestamp", "<f8")])
    cloud = decode_cloud(message(dtype, values))
    assert cloud.times is None
    assert reason in cloud.times_error
    assert len(cloud.points) == COUNT
