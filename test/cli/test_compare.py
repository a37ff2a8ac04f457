"""gpgmap compare, as a user calls it."""

from __future__ import annotations

import fcntl
import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_maps import SHAPE, make_errors, make_ground, make_map, mound
from terminal import on_terminal

from gpgmap_ros.apps.compare import CompareError, compare
from gpgmap_ros.cli.main import main
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import write_map_npz
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.storage.atomic import write_json


def write_map(path: Path, gpgmap: GPGMap, epsg: int = 0) -> Path:
    write_map_npz(path, gpgmap, Crs(epsg))
    return path


Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Calls the command in this process, and gives the last line of its refusal."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> str:
        assert main(["compare", *map(str, arguments)]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    return call


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two surveys; half a cubic metre was filled in between."""
    folder, rng = tmp_path_factory.mktemp("maps"), np.random.default_rng(1)
    ground = make_ground(rng)
    before = make_map(ground + make_errors(rng))
    after = make_map(ground + make_errors(rng) + mound(0.5, 8.0, 9.0, 1.5))
    return write_map(folder / "before.npz", before), write_map(folder / "after.npz", after)


def test_compare_writes_layers_numbers_and_a_page(gpgmap, tmp_path: Path, maps: tuple[Path, Path]) -> None:
    shown = gpgmap("compare", *maps, "--draws", 40, "--out", "what_changed")
    assert "1 at a false discovery rate of 0.05" in shown.stdout
    assert "comparing" in shown.stderr  # progress
    folder = tmp_path / "what_changed"
    summary = json.loads((folder / "run.json").read_text())
    (patch,) = summary["patches"]
    assert patch["kind"] == "fill"
    assert patch["interval"][0] < 0.5 < patch["interval"][1]
    page = (folder / "report.html").read_text()
    assert "{{" not in page
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is loaded
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(folder / "layers" / "change.tif") as file:
        change = file.read(1)
    assert change.shape == SHAPE
    assert change[SHAPE[0] - 1 - int(9.0 / 0.2), int(8.0 / 0.2)] == 1.0


def test_an_earlier_result_is_replaced_only_when_asked(
    refuse: Refuse, tmp_path: Path, maps: tuple[Path, Path]
) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    write_json(folder / "run.json", {"kind": "comparison"})
    assert "use --overwrite" in refuse(*maps, "--out", "old")
    assert json.loads((folder / "run.json").read_text()) == {"kind": "comparison"}
    # a call that fails leaves it as well
    refuse(maps[0], "nothing.npz", "--out", "old", "--overwrite")
    assert json.loads((folder / "run.json").read_text()) == {"kind": "comparison"}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    assert "contains other files" in refuse(*maps, "--out", "foreign", "--overwrite")


def write_run(folder: Path, gpgmap: GPGMap) -> Path:
    folder.mkdir()
    write_json(folder / "run.json", {"kind": "replay", "status": "complete"})
    write_map(folder / "map.npz", gpgmap)
    return folder


def test_two_runs_with_frames_of_their_own_are_registered(tmp_path: Path) -> None:
    """Both frames are named alike, and their boxes meet: each begins where its robot was switched on."""
    rng = np.random.default_rng(5)
    ground = make_ground(rng)
    monday = write_run(tmp_path / "monday", make_map(ground + make_errors(rng)))
    friday_ground = ground + make_errors(rng) + mound(0.5, 8.0, 9.0, 1.5)
    turned = make_map(friday_ground[::-1, ::-1], origin=(-5.0, -4.0))  # half a turn: x -> 17 - x, y -> 14 - y
    friday = write_run(tmp_path / "friday", turned)
    found = compare(monday, friday, draws=50)
    assert found.T_before_after is not None
    assert np.allclose(found.T_before_after[:2, 3], (17.0, 14.0), atol=0.1)
    (patch,) = found.comparison.patches
    assert (patch.kind, round(patch.x), round(patch.y)) == ("fill", 8, 9)
    same = write_run(tmp_path / "same", make_map(friday_ground))
    kept = compare(monday, same, draws=50)
    assert kept.T_before_after is None
    assert kept.pose.startswith("one frame: registered, and off by at most 0.")
    other = write_run(tmp_path / "other", make_map(make_ground(rng)))
    with pytest.raises(CompareError, match=r"could not be registered: .*--keep-frames"):
        compare(monday, other)


def bad_inputs(tmp_path: Path, maps: tuple[Path, Path]) -> dict[str, tuple[Path, str]]:
    """Name of the case -> the second survey, and what the message must say."""
    rng = np.random.default_rng(2)
    z = make_ground(rng)
    coarse = write_map(tmp_path / "coarse.npz", make_map(z, resolution=0.5))
    abroad = write_map(tmp_path / "abroad.npz", make_map(z), epsg=25833)
    text = tmp_path / "notes.txt.npz"
    text.write_text("no map")
    empty = tmp_path / "empty_run"
    empty.mkdir()
    write_json(empty / "run.json", {"kind": "replay", "status": "interrupted"})
    folder = tmp_path / "photos"
    folder.mkdir()
    flat = np.zeros(SHAPE)
    other = write_map(tmp_path / "other.npz", make_map(flat, origin=(900.0, 900.0)))
    return {
        "resolution": (coarse, "0.2 m and 0.5 m"),
        "crs": (abroad, "EPSG:25833"),
        "no map": (text, "cannot be read"),
        "run without a map": (empty, "has no map (its status is 'interrupted')"),
        "no run": (folder, "not a gpgmap run"),
        "elsewhere": (other, "could not be registered"),
        "missing": (tmp_path / "nothing.laz", "no such file"),
    }


@pytest.mark.parametrize(
    "case", ["resolution", "crs", "no map", "run without a map", "no run", "elsewhere", "missing"]
)
def test_bad_input_is_named_in_one_sentence(
    refuse: Refuse, tmp_path: Path, maps: tuple[Path, Path], case: str
) -> None:
    path, expected = bad_inputs(tmp_path, maps)[case]
    before = maps[0]
    if case == "crs":
        before = write_map(tmp_path / "home.npz", make_map(make_ground(np.random.default_rng(3))), epsg=25832)
    before_files = sorted(tmp_path.rglob("*"))
    message = refuse(before, path, "--out", "result")
    assert message.startswith("gpgmap compare: ")
    assert expected in message
    assert sorted(tmp_path.rglob("*")) == before_files


def test_a_run_that_is_being_written_is_refused(
    refuse: Refuse, tmp_path: Path, maps: tuple[Path, Path]
) -> None:
    run = tmp_path / "running"
    run.mkdir()
    write_json(run / "run.json", {"kind": "replay", "status": "running"})
    (run / "map.npz").write_bytes(maps[1].read_bytes())
    with open(run / ".gpgmap.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is being written" in refuse(maps[0], run)


def test_kill_leaves_nothing_half_written(executables: Path, tmp_path: Path, maps: tuple[Path, Path]) -> None:
    """Killed at any moment, the folder is not there, or complete."""
    old = tmp_path / "result"
    old.mkdir()
    write_json(old / "run.json", {"kind": "comparison"})
    command = [
        str(executables / "gpgmap"),
        "compare",
        *map(str, maps),
        "--draws",
        "100000",
        "--out",
        "result",
        "--overwrite",
    ]
    with on_terminal(command, tmp_path) as running:
        running.wait_for("comparing")
    assert running.process.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["result"]
    assert json.loads((old / "run.json").read_text()) == {"kind": "comparison"}
