"""A recording whose LiDAR odometry loses track: `doctor` and `replay` say so, the drive is split, none of it mapped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")
pytest.importorskip("small_gicp", reason="small_gicp is not installed: there is no LiDAR odometry")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "sensing"))

from fast_mapping import FAST, options
from rooms import corridor, plane, pose, room, scan
from rosbags.typesys import get_typestore

from gpgmap_ros.cli import main
from gpgmap_ros.demo.recording import POINTS_TOPIC, START, cloud_message
from gpgmap_ros.io.bags import STORE, Stamped, write_bag

TENTH = 100_000_000
SETTINGS = options({**FAST, "closure.enabled": False})
ROOMS = 12
"""Clouds in the room, before and after the place that does not fix the motion."""
ELSEWHERE = 8
"""Clouds there: enough for another drive."""


def wall(rng: np.random.Generator) -> np.ndarray:
    """One wall without edges, and nothing else."""
    return plane([4.0, -60.0, -60.0], [0.0, 120.0, 0.0], [0.0, 0.0, 120.0], 60_000, rng)


def sky(rng: np.random.Generator) -> np.ndarray:
    """Some drops of rain."""
    return rng.uniform(-12.0, 12.0, (400, 3)) * [1.0, 1.0, 0.3]


def messages(place: Any) -> list[Stamped]:
    rng = np.random.default_rng(4)
    hall, types = room(rng), get_typestore(STORE).types
    scans = [scan(hall, pose(-3.0 + 0.1 * k, 0.5, 0.0), rng) for k in range(ROOMS)]
    scans += [scan(place(rng), pose(0.3 * k, 0.0, 0.0), rng) for k in range(ELSEWHERE)]
    scans += [scan(hall, pose(2.0 - 0.1 * k, -1.0, 90.0), rng) for k in range(ROOMS)]
    stamps = [START + k * TENTH for k in range(len(scans))]
    return [
        Stamped(POINTS_TOPIC, stamp, cloud_message(types, stamp, points.astype(np.float32)))
        for stamp, points in zip(stamps, scans, strict=True)
    ]


@pytest.mark.parametrize("place", [corridor, wall, sky])
def test_a_place_that_does_not_fix_the_motion_is_named_and_not_mapped(
    place: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, out = tmp_path / "bag", tmp_path / "run"
    write_bag(bag, messages(place))
    assert main(["replay", str(bag), "--out", str(out), "--json", *SETTINGS]) == 0
    summary = json.loads(capsys.readouterr().out)
    # After five clouds another drive begins there, which loses track with its second cloud, and five later a third one.
    assert summary["clouds"]["dropped"] == {"no pose (lost track)": 10}
    assert [item["clouds"] for item in summary["drives"]] == [ROOMS, 1, ROOMS - 3]
    reason = "LiDAR odometry lost track for 5 clouds"
    assert [item["because"] for item in summary["drives"]] == ["", reason, reason]
    assert [item["in_map"] for item in summary["drives"]] == [True, False, False]
    main(["doctor", str(bag), "--json"])
    found = {item["text"] for item in json.loads(capsys.readouterr().out) if item["status"] != "ok"}
    said = {item["text"] for item in summary["findings"]}
    assert f"another drive begins: {reason}" in said
    assert any("10 clouds have none: LiDAR odometry has lost track" in text for text in said)
    assert said <= found
