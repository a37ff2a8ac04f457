"""Everything the node makes of a map, received over DDS: GridMap, OccupancyGrid, surface, submaps, saved maps."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client import RosClient
from grid_map_msgs.msg import GridMap
from grid_map_msgs.srv import GetGridMap
from limits import PATIENCE
from nav_msgs.msg import MapMetaData, OccupancyGrid, Odometry
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from scene import CloudSource
from sensor_msgs.msg import Image, PointCloud2
from std_srvs.srv import Trigger

from gpgmap_ros.sensing.messages import nanoseconds
from gpgmap_ros.sensing.pointcloud2 import read_xyz

SMALL = ("-p", "mapping.size_x:=3.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")


def stamp_of(message: Any) -> Any:
    return message.map_load_time if isinstance(message, MapMetaData) else message.header.stamp


def test_every_output_shows_the_same_ground(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    kinds = {
        "elevation": Image, "gradient_visual": Image, "map_info": MapMetaData, "grid_map": GridMap,
        "traversability": OccupancyGrid, "obstacles": OccupancyGrid, "surface": PointCloud2,
    }  # fmt: skip
    heard = {topic: client.listen(kind, f"/mapping_node/{topic}") for topic, kind in kinds.items()}
    source = CloudSource(client)  # flat ground at z = 0, within a metre of the origin
    client.spin_until(lambda: source.publish() or all(heard.values()), "a message on every topic")
    last: dict[str, Any] = {}

    def of_one_map() -> bool:
        last.update({topic: messages[-1] for topic, messages in heard.items()})
        return len({nanoseconds(stamp_of(message)) for message in last.values()}) == 1

    client.spin_until(of_one_map, "the same map on every topic")

    image, info = last["elevation"], last["map_info"]
    assert (image.height, image.width) == (10, 15)
    assert (info.height, info.width) == (10, 15)
    assert info.resolution == pytest.approx(0.2)
    elevation = np.frombuffer(image.data, "<f4").reshape(10, 15)[::-1]
    x = info.origin.position.x + (np.arange(15) + 0.5) * 0.2
    y = info.origin.position.y + (np.arange(10) + 0.5) * 0.2
    seen = (np.abs(x)[None, :] < 0.9) & (np.abs(y)[:, None] < 0.9)
    np.testing.assert_allclose(elevation[seen], 0.0, atol=0.02)

    grid = last["grid_map"]
    assert grid.header.frame_id == "odom"
    assert grid.info.length_x == pytest.approx(3.0)
    assert grid.info.pose.position.x == pytest.approx(x.mean())
    layers = {name: np.array(layer.data) for name, layer in zip(grid.layers, grid.data, strict=True)}
    # from the +x, +y corner, column by column: the image read backwards
    np.testing.assert_array_equal(layers["elevation"], elevation[::-1, ::-1].ravel())
    flat = seen[::-1, ::-1].ravel()
    np.testing.assert_allclose(layers["normal_z"][flat], 1.0, atol=0.02)
    assert (layers["upper_bound"][flat] > layers["lower_bound"][flat]).all()
    assert (layers["slope"][flat] < 0.15).all()

    risk = np.array(last["traversability"].data).reshape(10, 15)
    known = np.isfinite(elevation)
    assert (risk[~known] == -1).all()
    assert (risk[seen] >= 0).all()
    # flat ground is safe where its surroundings are known too
    middle = (np.abs(x)[None, :] < 0.6) & (np.abs(y)[:, None] < 0.6)
    assert (risk[middle] <= 10).all()
    obstacles = np.array(last["obstacles"].data).reshape(10, 15)
    np.testing.assert_array_equal(obstacles, np.where(known, np.where(risk > 20, 100, 0), -1))

    surface = read_xyz(last["surface"])
    assert len(surface) <= known.sum()  # cells at exactly (0, 0, 0) would be no return
    assert last["gradient_visual"].encoding == "mono8"


def save(client: RosClient) -> Any:
    return client.call(Trigger, "/mapping_node/save_map", Trigger.Request())


def load(client: RosClient) -> Any:
    return client.call(Trigger, "/mapping_node/load_map", Trigger.Request())


def name_map(client: RosClient, name: str) -> None:
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=name)
    request = SetParameters.Request(parameters=[Parameter(name="map_name", value=value)])
    assert client.call(SetParameters, "/mapping_node/set_parameters", request).results[0].successful


def test_a_saved_map_comes_back(client: RosClient, start_node: Any, tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    start_node(*SMALL, "-p", f"map_folder:={folder}")
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    client.spin_until_quiet(images)
    answer = save(client)
    assert answer.success, answer.message
    assert str(folder) in answer.message
    files = list(folder.rglob("*.npz"))
    assert len(files) == 1

    assert client.call(Trigger, "/mapping_node/reset", Trigger.Request()).success
    before = {nanoseconds(image.header.stamp): image for image in images}
    images.clear()
    answer = load(client)
    assert answer.success, answer.message
    client.spin_until(lambda: images, "the loaded map")
    before_saving = before[nanoseconds(images[-1].header.stamp)]
    np.testing.assert_allclose(
        np.frombuffer(images[-1].data, "<f4"),
        np.frombuffer(before_saving.data, "<f4"),
        atol=1e-4,
        equal_nan=True,
    )

    files[0].write_bytes(files[0].read_bytes()[:-100])
    answer = load(client)
    assert not answer.success
    assert files[0].name in answer.message


def test_nothing_outside_the_folder_is_touched(client: RosClient, start_node: Any, tmp_path: Path) -> None:
    start_node(*SMALL, "-p", f"map_folder:={tmp_path / 'maps'}")
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    before = {path for path in tmp_path.rglob("*") if path.is_file() and "logs" not in path.parts}
    for name in ("../escape", "/tmp/escape", "a/../../escape", ""):
        name_map(client, name)
        assert not save(client).success, name
        assert not load(client).success, name
    assert {path for path in tmp_path.rglob("*") if path.is_file() and "logs" not in path.parts} == before


def test_without_a_folder_saving_says_so(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    answer = save(client)
    assert not answer.success
    assert "map_folder" in answer.message


def test_submaps_are_published_kept_and_handed_out(
    client: RosClient, start_node: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "maps"
    node = start_node(
        *SMALL, "-p", f"map_folder:={folder}", "-p", "submap.enabled:=true", "-p", "submap.size:=4.0",
        "-p", "submap.max_area:=1.0",
    )  # fmt: skip
    submaps = client.listen(GridMap, "/mapping_node/submap")
    poses = client.listen(
        Odometry,
        "/mapping_node/submap_pose",
        QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL),
    )
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or (submaps and poses), "a finished submap")
    assert submaps[0].header.frame_id == "submap_0"
    assert poses[0].child_frame_id == "submap_0"
    assert poses[0].header.frame_id == "odom"

    answer = client.call(GetGridMap, "/mapping_node/get_submap", GetGridMap.Request(frame_id="submap_0"))
    assert answer.map.header.frame_id == "submap_0"
    assert "elevation" in answer.map.layers
    one = client.call(
        GetGridMap, "/mapping_node/get_submap", GetGridMap.Request(frame_id="submap_0", layers=["variance"])
    )
    assert list(one.map.layers) == ["variance"]
    for frame in ("submap_999", "odom"):
        answer = client.call(GetGridMap, "/mapping_node/get_submap", GetGridMap.Request(frame_id=frame))
        assert not answer.map.layers
    assert "frame_id must be that of a submap, as in 'submap_3', got 'odom'" in node.tail(100)


def test_the_unfinished_submap_is_kept_at_the_end(client: RosClient, start_node: Any, tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    node = start_node(
        *SMALL, "-p", f"map_folder:={folder}", "-p", "submap.enabled:=true", "-p", "submap.size:=4.0",
    )  # fmt: skip
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    os.kill(node.pid, signal.SIGTERM)
    assert node.wait(PATIENCE) == 0, node.tail()
    assert len([path for path in (folder / "submaps").iterdir() if path.is_file()]) == 1
