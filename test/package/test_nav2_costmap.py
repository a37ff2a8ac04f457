"""What Nav2's static layer makes of the traversability, with its defaults and with the shipped settings."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gp_core.grid import Grid
from gpgmap_ros.config import Config, TraversabilityConfig
from gpgmap_ros.io.nav2_map import write_nav2_map
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import UNKNOWN, obstacles_from_layer, occupancy_from_layer

FREE_SPACE, INSCRIBED, LETHAL_OBSTACLE, NO_INFORMATION = 0, 253, 254, 255


@dataclass(frozen=True)
class StaticLayer:
    """How nav2_costmap_2d's StaticLayer reads an OccupancyGrid; the defaults are those of its costmap."""

    track_unknown_space: bool = False
    trinary_costmap: bool = True
    lethal_cost_threshold: int = 100
    unknown_cost_value: int = 255

    def cost(self, value: int) -> int:
        value %= 256  # int8 read as unsigned: -1 is 255
        if value == self.unknown_cost_value:
            return NO_INFORMATION if self.track_unknown_space else FREE_SPACE
        threshold = min(max(self.lethal_cost_threshold, 0), 100)
        if value >= threshold:
            return LETHAL_OBSTACLE
        return FREE_SPACE if self.trinary_costmap else int(value / threshold * LETHAL_OBSTACLE)


PROBABILITY = np.array([1.0, 0.99, 0.9, 0.8, 0.79, 0.5, 0.2, 0.01, 0.0, np.nan])


def costs(layer: StaticLayer, cells: np.ndarray) -> list[int]:
    return [layer.cost(int(value)) for value in cells]


def test_with_the_defaults_of_nav2_the_graded_risk_would_be_free_up_to_99_percent() -> None:
    assert {StaticLayer().cost(risk) for risk in range(100)} == {FREE_SPACE}


def test_obstacles_are_safe_with_the_defaults_of_nav2() -> None:
    cells = obstacles_from_layer(PROBABILITY, Config().traversability.max_risk)
    assert set(cells.tolist()) == {0, 100, UNKNOWN}
    assert costs(StaticLayer(), cells)[:-1] == [0, 0, 0, 0, 254, 254, 254, 254, 254]
    assert costs(StaticLayer(track_unknown_space=True), cells)[-1] == NO_INFORMATION
    # and with grades in use, as they are the extremes
    assert costs(StaticLayer(trinary_costmap=False), cells)[:-1] == costs(StaticLayer(), cells)[:-1]


@pytest.mark.parametrize(("max_risk", "obstacles"), [(0.0, 8), (0.5, 3), (0.99, 1)])
def test_the_threshold_is_a_setting(max_risk: float, obstacles: int) -> None:
    cells = obstacles_from_layer(PROBABILITY, max_risk)
    assert (cells == 100).sum() == obstacles
    assert cells[-1] == UNKNOWN


@pytest.mark.parametrize("max_risk", [0.2, 0.6])
def test_the_exported_map_is_read_as_the_same_obstacles(tmp_path: Path, max_risk: float) -> None:
    """As nav2_map_server reads the mode trinary."""
    probability = PROBABILITY.reshape(2, 5).astype(np.float32)
    config = Config(traversability=TraversabilityConfig(max_risk=max_risk))
    gpgmap = GPGMap(Grid((0.0, 0.0), (2, 5), 0.1), {"traversability": probability}, config=config)
    meta = yaml.safe_load(write_nav2_map(tmp_path / "yard.yaml", gpgmap).read_text())
    pixels = np.frombuffer((tmp_path / meta["image"]).read_bytes()[-10:], np.uint8).reshape(2, 5)[::-1]
    occupancy = (255.0 - pixels) / 255.0
    read = np.full((2, 5), UNKNOWN)
    read[occupancy <= meta["free_thresh"]], read[occupancy >= meta["occupied_thresh"]] = 0, 100
    np.testing.assert_array_equal(read.ravel(), obstacles_from_layer(probability, max_risk))


@pytest.fixture(params=["local_costmap", "global_costmap"])
def shipped(request: pytest.FixtureRequest, root: Path) -> dict[str, Any]:
    file = yaml.safe_load((root / "config" / "nav2_costmap.yaml").read_text())
    assert set(file) == {"local_costmap", "global_costmap"}
    return dict(file[request.param][request.param]["ros__parameters"])


def test_the_shipped_settings_use_the_grades(shipped: dict[str, Any]) -> None:
    names = ("track_unknown_space", "trinary_costmap", "lethal_cost_threshold")
    layer = StaticLayer(**{name: shipped[name] for name in names})
    by_risk = [layer.cost(risk) for risk in range(101)]
    graded = by_risk[: layer.lethal_cost_threshold]
    assert graded[0] == FREE_SPACE
    assert all(low < high for low, high in itertools.pairwise(graded))
    assert graded[-1] < INSCRIBED  # a risk is no collision
    assert set(by_risk[layer.lethal_cost_threshold :]) == {LETHAL_OBSTACLE}
    assert layer.cost(UNKNOWN) == NO_INFORMATION
    # what is an obstacle for the defaults costs something here
    risk = 1.0 - PROBABILITY
    risky = occupancy_from_layer(PROBABILITY[risk > Config().traversability.max_risk])
    assert all(layer.cost(int(risk)) > 0.3 * LETHAL_OBSTACLE for risk in risky)


def test_the_shipped_settings_fit_the_node(shipped: dict[str, Any]) -> None:
    pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")
    from nav_msgs.msg import OccupancyGrid
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    from gpgmap_ros.nodes.outputs import MAP_QOS, OUTPUTS

    terrain = shipped["terrain_layer"]
    assert shipped["plugins"][0] == "terrain_layer"
    assert all(name in shipped for name in shipped["plugins"])
    assert OUTPUTS[terrain["map_topic"].removeprefix("/mapping_node/")].message_class is OccupancyGrid
    assert terrain["map_subscribe_transient_local"]
    assert MAP_QOS.durability == DurabilityPolicy.TRANSIENT_LOCAL
    assert MAP_QOS.reliability == ReliabilityPolicy.RELIABLE
    config = Config()
    assert (shipped["global_frame"], shipped["robot_base_frame"]) == (config.map_frame, config.base_frame)
    assert shipped["rolling_window"]
    assert max(shipped["width"], shipped["height"]) <= config.mapping.size_x
    # Nav2 declares these as integers, and refuses others
    assert all(type(shipped[name]) is int for name in ("width", "height", "lethal_cost_threshold"))
    assert type(shipped["resolution"]) is float
