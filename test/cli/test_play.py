"""gpgmap play: a recording on real topics, mapped by the real node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import drives
import pytest
from child_text import wait_for_text
from limits import PATIENCE

from gpgmap_ros.processes import Child, isolated_ros_environment

pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")


@pytest.mark.parametrize("kind", ["mcap", "ros1"])
def test_the_node_maps_what_is_played(
    executables: Path, drive_bags: drives.Bags, tmp_path: Path, kind: str
) -> None:
    environment = isolated_ros_environment(tmp_path / "logs")
    children: list[Child] = []

    def start(name: str, *command: str) -> Child:
        children.append(Child(name, list(command), environment, tmp_path / f"{name}.log"))
        return children[-1]

    try:
        every_cloud = f"qos_overrides.{drives.POINTS_TOPIC}.subscription.reliability:=reliable"
        node = start(
            "node", str(executables / "mapping_node"), "--ros-args", "-p", "use_sim_time:=true", "-p", every_cloud,
            "-r", f"points:={drives.POINTS_TOPIC}", "-p", "mapping.size_x:=10.0", "-p", "mapping.size_y:=10.0",
            "-p", "mapping.kernel:=rbf", "-p", "mapping.learn_noise:=false",
        )  # fmt: skip
        recorder = start(
            "recorder", sys.executable, "-m", "gpgmap_ros.nodes.map_recorder", "/mapping_node",
            "--out", str(tmp_path / "map.npz"),
        )  # fmt: skip
        recorder.next_event(PATIENCE)
        wait_for_text(node, f"mapping '{drives.POINTS_TOPIC}'")
        result = subprocess.run(
            [str(executables / "gpgmap"), "play", str(getattr(drive_bags, kind)), "--rate", "4", "--json"],
            capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        sent = json.loads(result.stdout)["sent"]
        assert sent == {drives.POINTS_TOPIC: drives.CLOUDS, "/tf": drives.CLOUDS, "/tf_static": 1}
        stamps = set()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not (stamps and max(stamps) >= drives.START + 4_000_000_000):
            if "image" in (event := recorder.next_event(PATIENCE)):
                stamps.add(event["stamp"])
        assert max(stamps) >= drives.START + 4_000_000_000, "maps carry the recording's stamps"
    finally:
        for child in children:
            child.stop()


def test_nobody_listens(executables: Path, drive_bags: drives.Bags, tmp_path: Path) -> None:
    result = subprocess.run(
        [str(executables / "gpgmap"), "play", str(drive_bags.sqlite), "--wait", "1"],
        capture_output=True, text=True, env=isolated_ros_environment(tmp_path / "logs"), timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "nobody subscribes to" in result.stderr
    assert "start mapping_node first" in result.stderr


def test_wrong_calls(gpgmap, drive_bags: drives.Bags) -> None:
    assert (
        "not in the recording: /nothing"
        in gpgmap("play", drive_bags.sqlite, "--topics", "/nothing", code=2).stderr
    )
    assert "must be positive" in gpgmap("play", drive_bags.sqlite, "--rate", "0", code=2).stderr


def test_doctor_sees_a_running_system(executables: Path, drive_bags: drives.Bags, tmp_path: Path) -> None:
    """With the player running: the clouds, their rate and frame are seen; the node is missed."""
    environment = isolated_ros_environment(tmp_path / "logs")
    command = [
        str(executables / "gpgmap"),
        "play",
        str(drive_bags.sqlite),
        "--wait",
        "0",
        "--rate",
        "0.1",  # a minute: the doctor may take a while to start
        "--no-clock",
    ]
    player = Child("player", command, environment, tmp_path / "player.log")
    try:
        wait_for_text(player, "playing ")
        for seconds in ("6", "25"):  # as long as discovery may take on a busy machine
            result = subprocess.run(
                [str(executables / "gpgmap"), "doctor", "--live", "--seconds", seconds, "--json"],
                capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False,
            )  # fmt: skip
            if "frame 'lidar'" in result.stdout:
                break
    finally:
        player.stop()
    assert "Traceback" not in result.stderr
    texts = [item["text"] for item in json.loads(result.stdout)]
    assert any(drives.POINTS_TOPIC in text and "reliable" in text for text in texts), texts
    assert any("frame 'lidar'" in text for text in texts), texts
    assert any("stamps are" in text for text in texts), "the recording is years old"
    assert any("odom <- base_link <- lidar" in text for text in texts), texts
