"""Files of points that `view`, `compare` and `tune` read pass the checks of `map`, and are refused in its words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.apps.compare import CompareError, Source, check_same_units, compare, open_source
from gpgmap_ros.apps.point_clouds import read_point_cloud
from gpgmap_ros.apps.survey_plan import plan
from gpgmap_ros.apps.tuning import points_of_files
from gpgmap_ros.cli.main import main
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import open_points

Command = Callable[[str], list[object]]

COMMANDS: dict[str, Command] = {
    "map": lambda file: ["map", file, "--out", "mapped"],
    "view": lambda file: ["view", file, "--png", "view.png"],
    "compare": lambda file: ["compare", file, "ground.npz"],
    "register": lambda file: ["register", "ground.npz", file, "--resolution", "0.2", "--no-figure"],
    "tune": lambda file: ["tune", file],
}


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.chdir(tmp_path)
    xy = np.random.default_rng(3).uniform(0.0, 20.0, (6000, 2))
    points = np.column_stack([xy, np.sin(xy[:, 0] / 2.0) + 0.2 * xy[:, 1] + 300.0])
    np.savez(tmp_path / "ground.npz", xyz=points)
    return points


@pytest.mark.parametrize("command", COMMANDS)
def test_degrees_are_refused(command: str, ground: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("degrees.npz", xyz=ground * [1e-5, 1e-5, 1.0] + [-117.0, 37.0, 0.0], epsg=4326)
    assert main([str(word) for word in COMMANDS[command]("degrees.npz")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"gpgmap {command}: the coordinates are longitude and latitude (EPSG:4326), in degrees"
    )


@pytest.mark.parametrize("command", ["map", "view", "compare", "tune"])
def test_degrees_that_no_file_names_are_doubted(
    command: str, ground: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("degrees.npz", xyz=ground * [1e-5, 1e-5, 1.0] + [-117.0, 37.0, 0.0])
    assert main([str(word) for word in COMMANDS[command]("degrees.npz")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"gpgmap {command}: degrees.npz: all points lie within")
    assert "are the coordinates degrees (longitude and latitude)?" in said


@pytest.mark.parametrize("command", ["view", "compare"])
def test_feet_are_named(command: str, ground: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyproj", reason="pyproj is not installed")
    np.savez("feet.npz", xyz=ground / 0.3048, epsg=2229)
    np.savez("ground.npz", xyz=(ground + np.random.default_rng(5).normal(0.0, 0.01, ground.shape)) / 0.3048)
    assert main([str(word) for word in COMMANDS[command]("feet.npz")]) == 0
    assert (
        "the coordinates are in feet (EPSG:2229): so is all that is called m here" in capsys.readouterr().out
    )


def test_files_of_two_systems_are_not_one_map(ground: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("a.npz", xyz=ground, epsg=32611)
    np.savez("b.npz", xyz=ground, epsg=32612)
    assert main(["view", "a.npz", "b.npz", "--png", "view.png"]) == 1
    assert "different coordinate systems: a.npz in EPSG:32611, b.npz in" in capsys.readouterr().err


def test_surveys_in_different_units_are_not_compared() -> None:
    feet = Crs(wkt='PROJCS["own",GEOGCS["NAD83"],UNIT["US survey foot",0.3048006096012192]]')
    metres = Crs(wkt='PROJCS["own",GEOGCS["NAD83"],UNIT["metre",1]]')
    a, b = Source("a.laz", None, None, feet, ""), Source("b.laz", None, None, metres, "")
    with pytest.raises(
        CompareError, match=r"a\.laz is in feet and b\.laz in metres: convert one of them first"
    ):
        check_same_units(a, b)
    check_same_units(a, a)
    check_same_units(a, Source("c.laz", None, None, Crs(), ""))


@pytest.mark.parametrize("mark", [-9999.0, -32768.0])
def test_marks_of_no_data_are_no_ground(mark: float, ground: np.ndarray) -> None:
    marked = ground.copy()
    marked[::7, 2] = mark
    np.savez("marked.npz", xyz=marked)
    kept = ground[np.arange(len(ground)) % 7 > 0]
    np.testing.assert_array_equal(read_point_cloud([Path("marked.npz")]).points, kept)
    np.testing.assert_array_equal(open_source("marked.npz", Config()).points, kept)
    sources = [open_points(Path("marked.npz"))]
    assert points_of_files(sources, plan(sources, Config(), set()))[0][:, 2].min() > 200.0


def test_nothing_has_changed_where_no_data_is_marked(ground: np.ndarray) -> None:
    """As a hole of ten thousand metres, marks would be the largest excavation there ever was."""
    noise = 0.01 * np.random.default_rng(5).normal(size=(2, len(ground)))
    before, after = (ground + np.outer(row, [0.0, 0.0, 1.0]) for row in noise)
    after[::9, 2] = -9999.0
    np.savez("before.npz", xyz=before)
    np.savez("after.npz", xyz=after)
    found = compare("before.npz", "after.npz", draws=20).comparison
    assert np.nanmax(np.abs(found.difference)) < 0.3
    assert abs(found.net[0]) < 10.0


def test_points_in_an_npz_are_viewed_without_a_resolution(
    ground: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "ground.npz", "--png", "view.png", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0] > 20
