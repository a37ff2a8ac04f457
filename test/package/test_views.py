"""The views for RViz and Foxglove show topics that the node has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml


def topics_of_the_node() -> set[str]:
    pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")
    import gpgmap_ros.nodes.loop_closing as loop_closing
    from gpgmap_ros.nodes.outputs import OUTPUTS

    closing = (
        Path(loop_closing.__file__).read_text()
        + Path(loop_closing.__file__).with_name("outputs.py").read_text()
    )
    return {*OUTPUTS, *re.findall(r'"~/(\w+)"', closing)}


def test_rviz_shows_topics_that_exist(root: Path) -> None:
    view = yaml.safe_load((root / "rviz" / "gpgmap.rviz").read_text())
    shown = [d["Topic"]["Value"] for d in view["Visualization Manager"]["Displays"] if "Topic" in d]
    own = {name.removeprefix("mapping_node/") for name in shown if name.startswith("mapping_node/")}
    assert {"grid_map", "path", "closure_markers"} <= own
    assert own <= topics_of_the_node()


def test_foxglove_shows_topics_and_services_that_exist(root: Path) -> None:
    layout = json.loads((root / "rviz" / "gpgmap_foxglove.json").read_text())
    panels = layout["configById"]

    def leaves(node: object) -> set[str]:
        if isinstance(node, str):
            return {node}
        assert isinstance(node, dict)
        assert node["direction"] in ("row", "column")
        return leaves(node["first"]) | leaves(node["second"])

    assert leaves(layout["layout"]) == set(panels)
    shown = set(panels["3D!gpgmap"]["topics"])
    shown |= {p["imageMode"]["imageTopic"] for name, p in panels.items() if name.startswith("Image!")}
    own = {name.removeprefix("/mapping_node/") for name in shown if name.startswith("/mapping_node/")}
    assert {"surface", "path", "closure_markers", "elevation"} <= own
    assert own <= topics_of_the_node()
    services = {p["serviceName"] for name, p in panels.items() if name.startswith("CallService!")}
    assert services == {"/mapping_node/reject_closure", "/mapping_node/save_map"}
