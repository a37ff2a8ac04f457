"""The real node as its own process, against a real publisher and a real subscriber over DDS, field checks on."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bags import POINTS, Scene, record_odometry, record_tf
from child_text import wait_for_text
from limits import PATIENCE
from robot import reliable

from gpgmap_ros.processes import Child

SMALL = tuple(
    part
    for name, value in {
        "resolution": 0.2,
        "size_x": 4.0,
        "size_y": 3.0,
        "length_scale": 0.3,
        "known_variance_ratio": 0.1,
        "rolling": "false",
    }.items()
    for part in ("-p", f"mapping.{name}:={value}")
)


class Session:
    """A node and a recorder, and what was heard of them."""

    def __init__(self, node: Child, recorder: Child, out: Path) -> None:
        self.node, self.recorder, self.out = node, recorder, out
        self.stamps: dict[str, list[int]] = {"elevation": [], "variance": [], "gradient": []}
        self.diagnostics: dict[str, str] = {}
        recorder.next_event(PATIENCE)

    def listen_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.node.check()
            assert time.monotonic() < deadline, f"heard {self.stamps}, {self.diagnostics}\n{self.node.tail()}"
            event = self.recorder.next_event(PATIENCE)
            if "image" in event:
                self.stamps[event["image"]].append(event["stamp"])
            self.diagnostics = event.get("diagnostics", self.diagnostics)

    def count(self, name: str) -> int:
        return int(self.diagnostics.get(name, 0))

    def last_map(self) -> dict[str, Any]:
        assert self.recorder.stop(PATIENCE) == 0, self.recorder.tail()
        return dict(np.load(self.out))


@pytest.fixture
def session(start_node: Any, start_module: Any, tmp_path: Path) -> Callable[..., Session]:
    """Clouds are received reliably, so that each one of a bag is used on any machine. start: of the node"""

    def open_session(*ros_arguments: str, start: Any = start_node) -> Session:
        out = tmp_path / "map.npz"
        node = start(*reliable(), *ros_arguments)
        return Session(node, start_module("map_recorder", "/mapping_node", "--out", str(out)), out)

    return open_session


def test_clouds_with_tf_become_maps(
    session: Any, start_default_node: Any, start_module: Any, tmp_path: Path
) -> None:
    """With the installed command and the default kernel."""
    scene = Scene()
    bag = record_tf(scene, tmp_path / "bag")
    heard = session(*SMALL, start=start_default_node)
    player = start_module("bag_player", str(bag), "--wait", str(PATIENCE))
    last = scene.stamp(scene.clouds - 1)
    heard.listen_until(lambda: all(last in stamps for stamps in heard.stamps.values()))
    heard.listen_until(lambda: heard.count("clouds used") == scene.clouds)
    assert player.wait(PATIENCE) == 0

    # every map carries the stamp of a cloud, and stamps never go back
    known = {scene.stamp(index) for index in range(scene.clouds)}
    for stamps in heard.stamps.values():
        assert set(stamps) <= known
        assert stamps == sorted(stamps)

    arrays = heard.last_map()
    assert str(arrays["frame_id"]) == "odom"
    assert int(arrays["stamp"]) == last
    assert arrays["elevation"].shape == (15, 20)  # 3 m and 4 m in cells of 0.2 m; y first
    x, y = cell_centres(arrays)
    # where the robot was first is in the middle of the map, to within a cell
    np.testing.assert_allclose([x.mean(), y.mean()], scene.base_pose(0)[:2, 3], atol=0.2)
    inside = (np.abs(x) < 1.1) & (np.abs(y) < 1.1)
    truth = scene.height(x, y)
    np.testing.assert_allclose(arrays["elevation"][inside], truth[inside], atol=0.02)
    np.testing.assert_allclose(arrays["gradient"][inside], np.hypot(0.2, 0.1), atol=0.03)
    assert np.nanmax(arrays["variance"][inside]) < 0.02**2
    # beyond the points the heights are unknown and the variance says so
    beyond = x > scene.half + 0.6
    assert beyond.any()
    assert np.isnan(arrays["elevation"][beyond]).all()
    assert arrays["variance"][beyond].min() > 10.0 * arrays["variance"][inside].max()
    assert np.isfinite(arrays["variance"]).all()


def cell_centres(arrays: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = arrays["elevation"].shape
    resolution, corner = float(arrays["resolution"]), arrays["corner"]
    x = corner[0] + (np.arange(columns) + 0.5) * resolution
    y = corner[1] + (np.arange(rows) + 0.5) * resolution
    return np.meshgrid(x, y)


def test_poses_from_odometry_are_interpolated(session: Any, start_module: Any, tmp_path: Path) -> None:
    scene = Scene()
    bag = record_odometry(scene, tmp_path / "bag")
    heard = session(*SMALL, "-p", "pose_source:=odometry")
    start_module("bag_player", str(bag), "--wait", str(PATIENCE))
    heard.listen_until(lambda: heard.count("clouds used") == scene.clouds)
    heard.listen_until(lambda: scene.stamp(scene.clouds - 1) in heard.stamps["gradient"])
    arrays = heard.last_map()
    x, y = cell_centres(arrays)
    inside = (np.abs(x) < 1.1) & (np.abs(y) < 1.1)
    # the turning sensor's poses lie on the line between two odometry poses to second order only
    np.testing.assert_allclose(arrays["elevation"][inside], scene.height(x, y)[inside], atol=0.03)


def test_a_cloud_without_a_pose_is_dropped_counted_and_explained(
    session: Any, start_module: Any, tmp_path: Path
) -> None:
    scene = Scene(clouds=2)
    bag = record_tf(scene, tmp_path / "bag", frame="nowhere")
    heard = session(*SMALL, "-p", "transform_timeout:=0.1")
    start_module("bag_player", str(bag), "--wait", str(PATIENCE))
    heard.listen_until(lambda: heard.count("clouds dropped: unknown_frame") == scene.clouds)
    assert heard.count("clouds used") == 0
    assert not heard.stamps["elevation"]
    assert re.search(
        r"cloud dropped \(unknown_frame\): .*frame 'nowhere'; known frames: 'base_link'", heard.node.tail()
    )


def test_topics_are_remapped_and_nodes_namespaced(start_node: Any, start_module: Any, tmp_path: Path) -> None:
    scene = Scene(clouds=2)
    bag = record_tf(scene, tmp_path / "bag")
    out = tmp_path / "map.npz"
    node = start_node(*SMALL, *reliable(), "-r", f"points:={POINTS}", "-r", "__ns:=/rover")
    heard = Session(node, start_module("map_recorder", "/rover/mapping_node", "--out", str(out)), out)
    start_module("bag_player", str(bag), "--wait", str(PATIENCE))
    heard.listen_until(lambda: scene.stamp(1) in heard.stamps["gradient"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_code_0_when_asked_to(start_node: Any, number: signal.Signals) -> None:
    node = start_node(*SMALL)
    wait_for_text(node, "mapping '/points' into 'odom'")
    os.kill(node.pid, number)
    assert node.wait(PATIENCE) == 0, node.tail()
    assert "Traceback" not in node.tail(100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("-p", "mapping.resoluton:=0.1"),
            "unknown setting 'mapping.resoluton': did you mean 'mapping.resolution'?",
        ),
        (("-p", "mapping.resolution:=-1.0"), "mapping.resolution: -1.0 is outside [0.001, 100.0] m"),
        (("-p", "pose_source:=gps"), "pose_source: 'gps' is not one of 'tf', 'odometry', 'lidar'"),
        (
            ("-p", "lidar.publish_tf:=true"),
            "lidar.publish_tf needs pose_source 'lidar' or 'lidar_inertial', and it is 'tf'",
        ),
        (("-p", "publish_rate:=fast"), "publish_rate: expected float, got 'fast' (str)"),
    ],
)
def test_a_wrong_parameter_ends_it_with_a_reason(
    start_node: Any, arguments: tuple[str, ...], message: str
) -> None:
    node = start_node(*arguments)
    assert node.wait(PATIENCE) == 2
    assert f"mapping_node: {message}" in node.tail()
    assert "Traceback" not in node.tail(100)


def test_a_whole_number_does_for_a_float_and_yaml_is_read(start_node: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("/**:\n  ros__parameters:\n    map_frame: world\n    mapping:\n      size_x: 4\n")
    node = start_node("--params-file", str(path))
    wait_for_text(node, "into 'world'")
