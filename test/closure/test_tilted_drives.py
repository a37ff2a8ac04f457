"""Drives whose verticals are uncertain: how far two submaps may be tilted against each other, kept and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_nodes import SubmapNode, node
from session_writer import CONFIG, hills, submap_of

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase, LoopCloser
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore

GROUND_STD = np.deg2rad(5.0)
"""Of a vertical that the ground gives."""


def tilted(id: int, drive: int, tilt_std: float) -> SubmapNode:
    return replace(node(id, drive), tilt_std=tilt_std)


def test_verticals_of_two_drives_differ_and_one_drive_has_one() -> None:
    closer = LoopCloser(ClosureConfig())
    nodes = [tilted(0, 1, GROUND_STD), tilted(1, 1, GROUND_STD), tilted(2, 2, np.deg2rad(0.6))]
    for item in nodes:
        closer._graph.insert_node(item)
    asked: dict[int, float] = {}
    closer.database.closures = lambda *_, tilts, **__: asked.update(tilts) or []  # type: ignore[method-assign]
    closer._register(nodes[1], hills(), {0: None, 2: None})
    assert set(asked) == {2}
    assert asked[2] == pytest.approx(np.hypot(GROUND_STD, np.deg2rad(0.6)))


def test_a_pair_is_registered_with_the_tilt_that_its_verticals_allow() -> None:
    database = ClosureDatabase(ClosureConfig(tilt_std=2.0))
    assert database._config_for(0.0).tilt_std == 2.0
    assert database._config_for(np.deg2rad(1.0)).tilt_std == 2.0, "never less than the settings say"
    assert database._config_for(np.deg2rad(7.0)).tilt_std == pytest.approx(7.0)
    assert database._config_for(1.0).tilt_std == 10.0


def test_the_uncertainty_of_the_vertical_is_kept_with_submap_and_session(tmp_path: Path) -> None:
    submap = replace(submap_of(0, hills()), tilt_std=GROUND_STD)
    SubmapStore(tmp_path / "submaps", Config()).add(submap)
    assert SubmapStore(tmp_path / "submaps", Config()).load(0).tilt_std == GROUND_STD
    closer = LoopCloser(CONFIG)
    closer.add(submap)
    closer.keep(tmp_path / "closures.npz")
    again = LoopCloser.load(tmp_path / "closures.npz", CONFIG, lambda _: submap.gpgmap)
    assert [item.tilt_std for item in again.nodes] == [GROUND_STD]
