"""Reading point clouds in every layout that drivers produce, by both decoders, and refusing what contradicts itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cloud_messages import Cloud, Field, cloud_of

from gpgmap_ros.sensing import pointcloud2
from gpgmap_ros.sensing.pointcloud2 import CloudError, read_xyz


def points(dtype: np.dtype, count: int = 12) -> np.ndarray:
    rng = np.random.default_rng(3)
    array = np.zeros(count, dtype)
    for name in array.dtype.names:
        array[name] = rng.integers(1, 100, count) / 4.0  # exact in float32
    return array


LAYOUTS = {
    "float32 packed": np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4")]),
    "with intensity and ring": np.dtype(
        [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("i", "<f4"), ("ring", "<u2")]
    ),
    "padded to 48 bytes": np.dtype(
        {
            "names": ["x", "y", "z", "t"],
            "formats": ["<f4", "<f4", "<f4", "<u4"],
            "offsets": [0, 4, 8, 20],
            "itemsize": 48,
        }
    ),
    "float64": np.dtype([("x", "<f8"), ("y", "<f8"), ("z", "<f8")]),
    "big-endian": np.dtype([("x", ">f4"), ("y", ">f4"), ("z", ">f4")]),
    "unordered": np.dtype([("z", "<f4"), ("rgb", "<u4"), ("x", "<f4"), ("y", "<f4")]),
    "mixed types": np.dtype([("x", "<f8"), ("y", "<f4"), ("z", "<i2")]),
}


@pytest.fixture(params=["own", "sensor_msgs_py"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both decoders keep one contract; ROS's own is tried where it is installed."""
    if request.param == "own":
        monkeypatch.setattr(pointcloud2, "_ros", None)
    elif pointcloud2._ros is None:
        pytest.skip("sensor_msgs_py is not installed (it is not on PyPI; a robot has it)")
    return str(request.param)


def as_message(cloud: Cloud, decoder: str) -> Any:
    """sensor_msgs_py insists on the real message class."""
    if decoder == "own":
        return cloud
    from sensor_msgs.msg import PointCloud2, PointField

    return PointCloud2(
        height=cloud.height,
        width=cloud.width,
        fields=[
            PointField(name=f.name, offset=f.offset, datatype=f.datatype, count=f.count) for f in cloud.fields
        ],
        is_bigendian=cloud.is_bigendian,
        point_step=cloud.point_step,
        row_step=cloud.row_step,
        data=cloud.data,
        is_dense=cloud.is_dense,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout: str, decoder: str) -> None:
    array = points(LAYOUTS[layout])
    expected = np.column_stack([array[name].astype(float) for name in "xyz"])
    np.testing.assert_array_equal(read_xyz(as_message(cloud_of(array), decoder)), expected)


def test_organised(decoder: str) -> None:
    array = points(LAYOUTS["padded to 48 bytes"])
    expected = np.column_stack([array[name].astype(float) for name in "xyz"])
    np.testing.assert_array_equal(read_xyz(as_message(cloud_of(array, height=3), decoder)), expected)


def test_organised_with_padding_at_the_end_of_each_row(decoder: str) -> None:
    array = points(LAYOUTS["float32 packed"])
    expected = np.column_stack([array[name].astype(float) for name in "xyz"])
    np.testing.assert_array_equal(
        read_xyz(as_message(cloud_of(array, height=3, row_padding=5), decoder)), expected
    )


def test_points_without_a_return_are_left_out(decoder: str) -> None:
    array = points(LAYOUTS["float32 packed"], 6)
    array["x"][0] = np.nan
    array["z"][1] = np.inf
    array[2] = (0.0, 0.0, 0.0)
    array[3] = (0.0, 0.0, 1.0)  # straight above the sensor is a return
    assert len(read_xyz(as_message(cloud_of(array), decoder))) == 3


def test_empty(decoder: str) -> None:
    assert read_xyz(as_message(cloud_of(points(LAYOUTS["float32 packed"], 0)), decoder)).shape == (0, 3)


def broken(**changes: Any) -> Cloud:
    cloud = cloud_of(points(LAYOUTS["float32 packed"]))
    for name, value in changes.items():
        setattr(cloud, name, value)
    return cloud


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        (broken(fields=[Field("x", 0), Field("intensity", 4)]), "no field 'y', 'z'; it has 'x', 'intensity'"),
        (broken(fields=[]), "it has none"),
        (broken(fields=[Field("x", 0), Field("y", 4), Field("z", 8, 99)]), "'z' has the unknown datatype 99"),
        (
            broken(fields=[Field("x", 0), Field("y", 4), Field("z", 9)]),
            "'z' at byte 9 reaches beyond point_step 12",
        ),
        (broken(fields=[Field("x", -4), Field("y", 4), Field("z", 8)]), "'x' at byte -4"),
        (broken(fields=[Field("x", 0, count=3), Field("y", 4), Field("z", 8)]), "'x' has 3 elements"),
        (broken(width=10**9), "144 bytes of data, but 1000000000 x 1 points need 12000000000"),
        (broken(data=b"123"), "3 bytes of data"),
        (broken(height=4, width=3, row_step=12), "row_step 12 is less than width 3"),
    ],
)
def test_a_cloud_that_contradicts_itself_is_refused_with_the_contradiction(
    cloud: Cloud, message: str
) -> None:
    with pytest.raises(CloudError, match=message):
        read_xyz(cloud)


def test_a_real_ouster_cloud(data_folder: Any) -> None:
    """Organised 64 x 2048, 48-byte points, zero returns: as the driver recorded it."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: the recording can't be read")
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_FOXY)
    with Reader(data_folder / "bag_os1_2scans") as reader:
        wanted = [c for c in reader.connections if c.topic == "/os1_cloud_node/points"]
        clouds = [store.deserialize_cdr(data, c.msgtype) for c, _, data in reader.messages(wanted)]
    assert len(clouds) == 2
    for cloud in clouds:
        assert (cloud.height, cloud.width, cloud.point_step) == (64, 2048, 48)
        xyz = read_xyz(cloud)
        assert 10_000 < len(xyz) < 64 * 2048
        assert np.linalg.norm(xyz, axis=1).max() < 200.0
