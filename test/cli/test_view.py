"""`gpgmap view`, and point files that only Open3D reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_mapping import FAST, fast_config, options
from optional import require_open3d
from PIL import Image

from gpgmap_ros.apps.point_clouds import fit_resolution
from gpgmap_ros.cli.main import main
from gpgmap_ros.io.points import PointFileError, open_points
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import gpgmap_from_points
from gpgmap_ros.viz.oblique import oblique_view


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    rng = np.random.default_rng(3)
    xy = rng.uniform(0.0, 10.0, (5000, 2))
    return np.column_stack([xy, np.sin(xy[:, 0]) + 0.2 * xy[:, 1]])


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)


def write_point_files(folder: Path, points: np.ndarray) -> dict[str, Path]:
    """The same points in the four formats, as other programs write them."""
    paths = {kind: folder / f"ground.{kind}" for kind in ("off", "pts", "xyzn", "xyzrgb")}
    rows = [" ".join(f"{value:.6f}" for value in point) for point in points]
    paths["off"].write_text("\n".join(["OFF", f"{len(rows)} 1 0", *rows, "3 0 1 2"]) + "\n")
    paths["pts"].write_text("\n".join([str(len(rows)), *(f"{row} 12 90 80 70" for row in rows)]) + "\n")
    paths["xyzn"].write_text("\n".join(f"{row} 0 0 1" for row in rows) + "\n")
    paths["xyzrgb"].write_text("\n".join(f"{row} 0.5 0.5 0.5" for row in rows) + "\n")
    return paths


@pytest.mark.parametrize("kind", ["off", "pts", "xyzn", "xyzrgb"])
def test_files_that_only_open3d_reads(tmp_path: Path, points: np.ndarray, kind: str) -> None:
    require_open3d()
    path = write_point_files(tmp_path, points)[kind]
    source = open_points(path)
    assert source.count == len(points)
    read = np.concatenate(list(source.pieces()))
    np.testing.assert_allclose(read, points, atol=1e-5)
    assert (
        main(
            ["map", str(path), "--out", str(tmp_path / "run"), *options({**FAST, "mapping.resolution": 0.5})]
        )
        == 0
    )
    gpgmap, _ = RunFolder(tmp_path / "run").read_map()
    iy, ix = np.argwhere(gpgmap.known)[gpgmap.known.sum() // 2]
    x, y = gpgmap.grid.x[ix], gpgmap.grid.y[iy]
    assert gpgmap["elevation"][iy, ix] == pytest.approx(np.sin(x) + 0.2 * y, abs=0.15)


def test_a_damaged_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_open3d()
    path = tmp_path / "bad.off"
    path.write_text("no mesh at all\n")
    with pytest.raises(PointFileError, match="Open3D found no points in it"):
        open_points(path)
    assert main(["map", str(path), "--out", str(tmp_path / "run")]) != 0
    assert "Traceback" not in capsys.readouterr().err


def test_without_open3d_its_files_name_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: np.ndarray
) -> None:
    path = write_point_files(tmp_path, points)["pts"]
    monkeypatch.setitem(sys.modules, "open3d", None)
    with pytest.raises(
        PointFileError, match=r"\.pts files are read by Open3D\. Open3D is not installed: pip"
    ):
        open_points(path)


def view(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["view", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def colourful(path: Path) -> float:
    """Share of the pixels that are neither grey nor white."""
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    return float(np.mean(np.ptp(pixels, axis=2) > 25))


def test_a_run_is_rendered_where_there_is_no_screen(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.png"
    said = view(capsys, run_folder, "--png", path, "--width", 320)
    assert said["png"] == str(path)
    assert said["renderer"] == "Open3D" or said["renderer"].startswith("gpgmap's own renderer (")
    assert colourful(path) > 0.1


def test_the_picture_of_a_submap_has_a_name_for_every_system(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colon is none on Windows, and a host for scp and rsync."""
    monkeypatch.chdir(tmp_path)
    assert view(capsys, f"{run_folder}:0", "--width", 64)["png"] == f"{run_folder.name}_0_view.png"


def test_point_clouds_are_mapped_together_and_drawn_without_open3d(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, points: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    for number, part in enumerate((points[points[:, 0] < 5], points[points[:, 0] >= 5])):
        np.save(tmp_path / f"part{number}.npy", part)
    path = tmp_path / "both.png"
    both = [tmp_path / "part0.npy", tmp_path / "part1.npy"]
    said = view(capsys, *both, "--resolution", 0.25, "--png", path, "--colour", "uncertainty")
    assert said["renderer"] == "gpgmap's own renderer (Open3D is not installed: pip install open3d-cpu)"
    assert said["cells"] == [41, 41]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_wrong_calls_say_what_to_do(
    run_folder: Path, tmp_path: Path, points: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", points)
    assert main(["view", str(tmp_path / "a.npy"), str(run_folder)]) == 2
    assert "only point clouds can be shown together" in capsys.readouterr().err
    assert main(["view", str(run_folder), "--width", "3"]) == 2
    assert "between 16 and 16384" in capsys.readouterr().err
    assert main(["view", str(tmp_path / "none")]) != 0
    assert "no such file or run" in capsys.readouterr().err


def test_near_ground_hides_what_is_behind_it() -> None:
    """A wall across the middle: the view from the south shows its face, and not the strip behind it."""
    x, y = np.meshgrid(np.arange(0.0, 8.0, 0.1), np.arange(0.0, 8.0, 0.1))
    z = np.where((y > 3.5) & (y < 4.5), 2.0, 0.0)
    gpgmap = gpgmap_from_points(np.column_stack([x.ravel(), y.ravel(), z.ravel()]), 0.2, fast_config())
    flat = gpgmap_from_points(
        np.column_stack([x.ravel(), y.ravel(), 0.0 * x.ravel() + 1e-3 * y.ravel()]), 0.2, fast_config()
    )
    with_wall, without = (oblique_view(item, "height", 160) for item in (gpgmap, flat))
    assert with_wall.shape[1] == without.shape[1]
    assert with_wall.shape[2] == 3
    drawn = [(picture != 255).any(axis=2).sum(axis=0) for picture in (with_wall, without)]
    # the strip behind is hidden by as much as the top stands out: less is drawn than ground and face together
    middle = with_wall.shape[1] // 2
    assert drawn[0][middle] >= drawn[1][middle] - 2
    assert len(np.unique(with_wall.reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize(
    ("count", "extent", "expected"), [(20_000, 10.0, 0.1), (2_000_000, 100.0, 0.1), (50, 1000.0, 200.0)]
)
def test_cells_fit_the_density(count: int, extent: float, expected: float) -> None:
    points = np.random.default_rng(0).uniform(0.0, extent, (count, 3))
    assert fit_resolution(points) == pytest.approx(expected, rel=0.01)
