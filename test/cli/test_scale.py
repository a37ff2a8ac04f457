"""Cells that fit the clouds of a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drives import write_ros2
from rosbags.typesys import Stores, get_typestore

from gpgmap_ros.apps.cell_size import fit_cell_size, round_number
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.recording import POINTS_TOPIC, START, cloud_message
from gpgmap_ros.io.bags import Stamped
from gpgmap_ros.io.recordings import Recording


def recorded(path: Path, spacing: float) -> Path:
    """Three clouds of points that far apart on rolling ground."""
    types, rng = get_typestore(Stores.ROS2_JAZZY).types, np.random.default_rng(0)
    messages = []
    for k in range(3):
        x, y = (a.ravel() for a in np.meshgrid(*[np.arange(-12.0, 12.0, spacing)] * 2))
        x, y = (a + rng.uniform(0.0, 0.05 * spacing, a.size) for a in (x, y))
        cloud = np.column_stack([x, y, 0.3 * np.sin(x) - 1.5])
        messages.append(Stamped(POINTS_TOPIC, START + k * 10**9, cloud_message(types, START, cloud)))
    write_ros2(path, messages)
    return path


def test_sparse_clouds_get_coarser_cells_and_larger_submaps(tmp_path):
    with Recording([recorded(tmp_path / "sparse", 0.5)]) as recording:
        found = fit_cell_size(Config(), recording, POINTS_TOPIC, set())
        assert found.config.mapping.resolution == 0.5
        assert found.config.mapping.length_scale >= 3.0 * 0.5
        assert found.config.submap.size == pytest.approx(100.0)
        assert found.config.submap.resolution == found.config.mapping.resolution
        assert found.config.submap.length_scale == found.config.mapping.length_scale
        assert "0.5 m" in found.reason
        assert fit_cell_size(Config(), recording, POINTS_TOPIC, {"mapping.resolution"}).config == Config()
        kept = with_settings(Config(), {"submap.size": 44.0})
        assert fit_cell_size(kept, recording, POINTS_TOPIC, {"submap.size"}).config.submap.size == 44.0


def test_clouds_between_the_cells_of_the_map_and_of_submaps_change_the_map_alone(tmp_path):
    with Recording([recorded(tmp_path / "medium", 0.2)]) as recording:
        found = fit_cell_size(Config(), recording, POINTS_TOPIC, set()).config
    assert found.mapping.resolution == 0.2
    assert found.submap == Config().submap


def test_dense_clouds_leave_everything_as_it_is(tmp_path):
    with Recording([recorded(tmp_path / "dense", 0.12)]) as recording:
        found = fit_cell_size(Config(), recording, POINTS_TOPIC, set())
    assert found.config == Config()
    assert found.reason == ""


def test_round_numbers():
    assert [round_number(v) for v in (0.29, 0.12, 0.09, 4.4, 8.0)] == [0.3, 0.1, 0.1, 5.0, 7.0]
