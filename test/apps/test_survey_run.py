"""Surveys in this process: files that are not what they should be, and runs that were stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from survey_case import SETTINGS, assert_same_map, hills, map_files, write_tiles

from gpgmap_ros.apps import survey_files, survey_layers, survey_points, survey_run, survey_solve, survey_tasks
from gpgmap_ros.apps.coordinate_systems import MixedSystemsError
from gpgmap_ros.apps.export import export_map
from gpgmap_ros.apps.survey_files import SurveyRequest, prepare
from gpgmap_ros.apps.survey_layers import write_layer
from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.apps.survey_runner import LocalRunner, Outcome, Task
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.map_products import MapError
from gpgmap_ros.io.points import PointFileError
from gpgmap_ros.io.run_folder import RunError, RunFolder
from gpgmap_ros.mapping.survey import SurveyModel, trend_of
from gpgmap_ros.mapping.survey_window import window_bytes


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Four good files, and the folder of their map."""
    folder = tmp_path_factory.mktemp("plain")
    files = write_tiles(folder / "tiles")
    summary = map_files(files, folder / "out")
    assert summary["points"]["used"] == 16_000
    assert not (folder / "out" / ".survey").exists(), "scratch goes with success"
    return files, folder / "out"


def test_a_damaged_file_is_refused_or_left_out(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    files, _ = plain
    bad = tmp_path / "bad.npz"
    bad.write_bytes(files[0].read_bytes()[:1000])
    with pytest.raises(PointFileError, match=r"bad\.npz: cannot be read"):
        map_files([*files, bad], tmp_path / "refused")
    summary = map_files([*files, bad], tmp_path / "out", leave_out=True)
    assert [text.split(":")[0] for text in summary["missing"]] == [str(bad)]
    assert_same_map(plain[1], tmp_path / "out")


def test_points_that_turn_out_damaged_later_leave_the_whole_file_out(
    plain: tuple[list[Path], Path], tmp_path: Path
) -> None:
    files, _ = plain
    text = tmp_path / "late.xyz"
    np.savetxt(text, hills(4000, (0.0, 100.0), 9), fmt="%.3f")
    with text.open("a") as file:
        file.write("no number here\n")
    request = {"leave_out": True}
    (tmp_path / "out").mkdir()
    with pytest.raises(PointFileError, match=r"late\.xyz: cannot be read"):
        map_files([*files, text], tmp_path / "out2")
    summary = map_files([*files, text], tmp_path / "out", **request)
    assert "late.xyz" in summary["missing"][0]
    assert_same_map(plain[1], tmp_path / "out")


def test_the_same_points_twice_are_named(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    files, _ = plain
    with np.load(files[1]) as file:
        np.savez_compressed(tmp_path / "copy.npz", **file)
    with pytest.raises(
        PointFileError, match=r"copy\.npz: has the same points as .*tile_1\.npz: name it once"
    ):
        map_files([*files, tmp_path / "copy.npz"], tmp_path / "refused")
    summary = map_files([*files, tmp_path / "copy.npz"], tmp_path / "out", leave_out=True)
    assert "copy.npz" in summary["missing"][0]
    assert_same_map(plain[1], tmp_path / "out")


def test_files_that_overlap_are_used_with_all_of_their_points(tmp_path: Path) -> None:
    """Two flight lines see the same ground: that is no mistake, and the map is that of one file with all points."""
    lines = [hills(3000, (0.0, 0.0), 1), hills(3000, (10.0, 0.0), 2)]
    for number, points in enumerate((*lines, np.concatenate(lines))):
        np.savez(tmp_path / f"line_{number}.npz", xyz=points, epsg=32611)
    summary = map_files([tmp_path / "line_0.npz", tmp_path / "line_1.npz"], tmp_path / "two")
    assert summary["points"]["used"] == 6000
    assert summary["missing"] == summary["warnings"] == []
    map_files([tmp_path / "line_2.npz"], tmp_path / "one")
    assert_same_map(tmp_path / "one", tmp_path / "two")


def test_empty_tiles_are_named_and_cost_nothing(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    files, _ = plain
    np.savez(tmp_path / "empty.npz", xyz=np.empty((0, 3)), epsg=32611)
    summary = map_files([*files, tmp_path / "empty.npz"], tmp_path / "out")
    assert any("empty.npz: the file has no points" in text for text in summary["warnings"])
    assert_same_map(plain[1], tmp_path / "out")


def test_a_flier_at_five_thousand_kilometres_is_named(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    files, _ = plain
    with np.load(files[2]) as file:
        far = np.vstack([file["xyz"], [[5e6, -5e6, 250.0]]])
    np.savez(tmp_path / "far.npz", xyz=far, epsg=32611)
    summary = map_files([*files[:2], tmp_path / "far.npz", files[3]], tmp_path / "out")
    assert any("1 point lies far from all others (x 5000000.0" in text for text in summary["warnings"])
    assert_same_map(plain[1], tmp_path / "out")


def test_mixed_coordinate_systems_are_refused_with_names(tmp_path: Path) -> None:
    for name, epsg in (("a", 32611), ("b", 32612)):
        np.savez(tmp_path / f"{name}.npz", xyz=hills(500, (0.0, 0.0), epsg), epsg=epsg)
    with pytest.raises(MixedSystemsError, match=r"a\.npz in EPSG:32611, .*b\.npz in EPSG:32612"):
        map_files([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "out", leave_out=True)


def test_a_wrong_scale_in_a_header_is_named(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    files, _ = plain
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.offsets, header.scales = [0.0, 0.0, 0.0], [0.001] * 3
    las = laspy.LasData(header)
    las.x, las.y, las.z = hills(4000, (0.0, 100.0), 7).T
    las.write(tmp_path / "scale.las")
    data = bytearray((tmp_path / "scale.las").read_bytes())
    data[131:139] = np.array([0.01]).tobytes()  # of x, behind the coordinates of the header
    (tmp_path / "scale.las").write_bytes(data)
    with pytest.raises(PointFileError, match=r"scale\.las: its header says x from .* scale or offset"):
        map_files([*files, tmp_path / "scale.las"], tmp_path / "refused")
    summary = map_files([*files, tmp_path / "scale.las"], tmp_path / "out", leave_out=True)
    assert "scale.las" in summary["missing"][0]
    assert_same_map(plain[1], tmp_path / "out")


def test_a_file_in_other_units_lies_far_from_the_others(
    plain: tuple[list[Path], Path], tmp_path: Path
) -> None:
    files, _ = plain
    np.savez(tmp_path / "feet.npz", xyz=hills(4000, (4e5, 0.0), 8), epsg=32611)
    with pytest.raises(PointFileError, match=r"feet\.npz: lies far from all other files"):
        map_files([*files, tmp_path / "feet.npz"], tmp_path / "refused")


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    files = write_tiles(tmp_path / "tiles", 2, 500)

    class Changing(LocalRunner):
        """Something else writes into the first file after it was scanned."""

        def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
            for task in tasks:
                if task.function is survey_tasks.sum_points:
                    os.utime(files[0], ns=(1, 1))
                yield from super().run([task])

    with pytest.raises(PointFileError, match=r"tile_0\.npz: changed while it was read"):
        map_files(files, tmp_path / "refused", Changing())
    summary = map_files(files, tmp_path / "out", Changing(), leave_out=True)
    assert summary["points"]["used"] == 1000, "the stamp of the second scan is the file's own"


class Stopping(LocalRunner):
    """Ctrl-C after so many tasks of a kind."""

    def __init__(self, function: Any, after: int) -> None:
        self._function, self._left = function, after

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        for task in tasks:
            if task.function is self._function:
                if not self._left:
                    raise KeyboardInterrupt
                self._left -= 1
            yield from super().run([task])


def test_a_stopped_run_goes_on_and_computes_nothing_twice(
    plain: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = plain[0], tmp_path / "out"
    computed: list[str] = []
    for name in ("write_part", "solve_divided"):
        real = getattr(survey_tasks, name)
        monkeypatch.setattr(
            survey_tasks,
            name,
            lambda *a, _real=real, _name=name, **k: (computed.append(_name), _real(*a, **k))[1],
        )
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(survey_tasks.sum_points, 3))
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(survey_tasks.solve_survey_window, 1), resume=True)
    written: list[Path] = []
    writer = survey_layers.GeoTiffWriter
    monkeypatch.setattr(
        survey_layers, "GeoTiffWriter", lambda path, *more: (written.append(path), writer(path, *more))[1]
    )
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(write_layer, 3), resume=True)
    assert len(written) == 3
    summary = map_files(files, out, resume=True)
    assert summary["status"] == "complete"
    assert sorted(written) == sorted(set(written)), "no file of the map is written twice"
    assert len(written) == len(list((out / "layers").glob("*.tif")))
    assert computed.count("write_part") == len(files)
    assert computed.count("solve_divided") == 2
    assert_same_map(plain[1], out)


def test_a_run_goes_on_only_with_what_it_was_asked_for(tmp_path: Path) -> None:
    files, out = write_tiles(tmp_path / "tiles", 2, 500), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(survey_tasks.sum_points, 1))
    with pytest.raises(SurveyError, match="the unfinished run had other files, keep_outliers"):
        map_files(files[:1], out, resume=True, keep_outliers=True)
    with pytest.raises(SurveyError, match="there is no unfinished run"):
        map_files(files, tmp_path / "nothing", resume=True)


def test_a_file_that_was_repaired_meanwhile_is_read_again(tmp_path: Path) -> None:
    files, out = write_tiles(tmp_path / "tiles", 2, 500), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(survey_tasks.solve_survey_window, 0))
    np.savez(files[1], xyz=hills(700, (100.0, 0.0), 5), epsg=32611)
    summary = map_files(files, out, resume=True)
    assert summary["points"]["used"] == 1200


@pytest.mark.parametrize(("fan_in", "ground_width"), [(16, 0.0), (2, 0.0), (16, 20.0)])
def test_what_was_made_of_a_file_that_was_replaced_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fan_in: int, ground_width: float
) -> None:
    """As many points at the same places, two metres higher; with merged sums, and with ground that was found."""
    monkeypatch.setattr(survey_points, "FAN_IN", fan_in)
    parts = np.array_split(np.random.default_rng(0).permutation(hills(4000, (0.0, 0.0), 0)), 10)
    files = [tmp_path / f"part_{number}.npz" for number in range(len(parts))]
    for rise in (0.0, 2.0):
        for file, part in zip(files, parts, strict=True):
            np.savez(file, xyz=part + np.array([0.0, 0.0, rise]), epsg=32611)
        if not rise:
            map_files(files, tmp_path / "before", ground_width=ground_width)
            with pytest.raises(KeyboardInterrupt):
                map_files(files, tmp_path / "out", Stopping(write_layer, 1), ground_width=ground_width)
    map_files(files, tmp_path / "out", resume=True, ground_width=ground_width)
    with np.load(tmp_path / "before" / "map.npz") as a, np.load(tmp_path / "out" / "map.npz") as b:
        assert np.nanmedian(b["elevation"] - a["elevation"]) == pytest.approx(2.0, abs=0.02)


def test_a_large_map_is_written_in_sheets_with_a_virtual_raster(
    plain: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rasterio = pytest.importorskip("rasterio")
    monkeypatch.setattr(survey_layers, "NPZ_CELLS", 10_000)
    monkeypatch.setattr(survey_run, "NPZ_CELLS", 10_000)
    monkeypatch.setattr(survey_layers, "SHEET", 256)
    map_files(plain[0], tmp_path / "out")
    layers = tmp_path / "out" / "layers"
    assert sorted(path.name for path in (layers / "elevation").iterdir()) == [
        "elevation_000_000.tif", "elevation_000_001.tif",
    ]  # fmt: skip
    assert not (tmp_path / "out" / "map.npz").exists()
    for name in ("elevation", "slope"):
        with (
            rasterio.open(layers / f"{name}.vrt") as sheets,
            rasterio.open(plain[1] / f"layers/{name}.tif") as one,
        ):
            assert sheets.bounds == one.bounds
            np.testing.assert_allclose(sheets.read(1), one.read(1), rtol=1e-5)
    check_export_of_sheets(tmp_path / "out", plain[1], rasterio)


@pytest.mark.parametrize("sheeted", [False, True])
def test_gdal_opens_every_file_of_the_item_without_a_warning(
    plain: tuple[list[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sheeted: bool,
) -> None:
    """GDAL, which QGIS reads rasters with, reports what it dislikes of a file to the log of rasterio."""
    rasterio = pytest.importorskip("rasterio")
    out = plain[1]
    if sheeted:
        out = tmp_path / "out"
        monkeypatch.setattr(survey_layers, "NPZ_CELLS", 10_000)
        monkeypatch.setattr(survey_run, "NPZ_CELLS", 10_000)
        monkeypatch.setattr(survey_layers, "SHEET", 256)
        map_files(plain[0], out)
    item = json.loads((out / "item.json").read_text())
    listed = {(out / asset["href"]).resolve() for asset in item["assets"].values()}
    rasters = [path for path in (out / "layers").rglob("*") if path.suffix in (".tif", ".vrt")]
    assert listed == {path.resolve() for path in rasters}, "the item names all of them and no others"
    with caplog.at_level("WARNING"), rasterio.Env(GTIFF_REPORT_COMPD_CS=True):
        for asset in item["assets"].values():
            path = out / asset["href"]
            with rasterio.open(path) as file:
                assert list(file.shape) == asset["proj:shape"]
                assert list(file.transform)[:6] == asset["proj:transform"]
                assert np.isfinite(file.read(1)).any()
                levels = file.overviews(1)
            for level in range(len(levels)):
                with rasterio.open(path, overview_level=level) as file:
                    file.read(1)
    assert [record.getMessage() for record in caplog.records] == []


def check_export_of_sheets(sheeted: Path, whole: Path, rasterio: Any) -> None:
    """Hillshade, slope and contours of a map in sheets are those of the same map in one piece."""
    formats = ("hillshade", "slope", "contours")
    made = export_map(str(sheeted), formats, None)
    alone = export_map(str(whole), formats, whole.parent / "exports" / "whole")
    for sheets, one in zip(made[:2], alone[:2], strict=True):
        with rasterio.open(sheets) as a, rasterio.open(one) as b:
            assert (a.bounds, a.crs) == (b.bounds, b.crs)
            np.testing.assert_allclose(a.read(1), b.read(1), atol=1e-4)
    drawn, expected = contour_length(made[2:]), contour_length(alone[2:])
    assert drawn.keys() == expected.keys()
    for level, length in expected.items():
        assert drawn[level] == pytest.approx(length, abs=0.05 + 1e-3 * length)
    with pytest.raises(MapError, match="too large for ply"):
        export_map(str(sheeted), ["hillshade", "ply"], None)
    with pytest.raises(RunError, match="sheets"):
        RunFolder(sheeted).read_map()


def contour_length(paths: Sequence[Path]) -> dict[float, float]:
    """Metres of line at each level."""
    found: dict[float, float] = {}
    for path in paths:
        for feature in json.loads(path.read_text())["features"]:
            line = np.array(feature["geometry"]["coordinates"])
            level = feature["properties"]["elevation"]
            found[level] = found.get(level, 0.0) + float(np.linalg.norm(np.diff(line, axis=0), axis=1).sum())
    return found


def test_points_in_any_order_go_through_a_tree_of_sums(
    plain: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part reaches into every tile: they are added up level by level before windows are solved."""
    monkeypatch.setattr(survey_points, "FAN_IN", 2)
    xyz = np.concatenate([np.load(path)["xyz"] for path in plain[0]])
    parts = np.array_split(np.random.default_rng(0).permutation(xyz), 10)
    files = [tmp_path / f"part_{k}.npz" for k in range(len(parts))]
    for file, part in zip(files, parts, strict=True):
        np.savez(file, xyz=part, epsg=32611)
    merged: list[str] = []

    class Counting(LocalRunner):
        def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
            for task in tasks:
                merged.extend([task.name] if task.function is survey_tasks.merge_sums else [])
                yield from super().run([task])

    summary = map_files(files, tmp_path / "out", Counting())
    assert merged == [f"merge-0-{k}" for k in range(5)]
    assert summary["points"]["used"] == len(xyz)
    with np.load(plain[1] / "map.npz") as one, np.load(tmp_path / "out" / "map.npz") as other:
        error = np.abs(one["elevation"] - other["elevation"])
    assert np.nanmax(error) < 0.02, "the trend and the noise are those of another sample"


def test_a_sample_of_places_gives_the_density_of_the_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large LAZ files only the beginnings of chunks are decoded, where points follow each other closely."""
    laspy = pytest.importorskip("laspy")
    rng = np.random.default_rng(3)
    files = []
    for number in range(3):  # 90,000 points on 300 x 100 m each, flown in lines: 3 for each square metre
        along = np.sort(rng.uniform(0.0, 300.0, 90_000))
        xyz = np.column_stack([along, rng.uniform(0.0, 100.0, 90_000) + 100.0 * number, 0.01 * along])
        header = laspy.LasHeader(point_format=6, version="1.4")
        header.offsets, header.scales = [0.0, 0.0, 0.0], [0.001] * 3
        las = laspy.LasData(header)
        las.x, las.y, las.z = xyz.T
        las.write(tmp_path / f"line_{number}.laz")
        files.append(tmp_path / f"line_{number}.laz")
    request = SurveyRequest(tuple(files), Config())
    exact = prepare(request, LocalRunner()).plan
    monkeypatch.setattr(survey_files, "WHOLE_BYTES", 0)
    monkeypatch.setattr(survey_files, "SAMPLE", 60_000)
    few = prepare(request, LocalRunner()).plan
    assert exact.density == pytest.approx(3.0, rel=0.1)
    assert few.density == pytest.approx(3.0, rel=0.3)
    assert few.config.mapping.resolution == exact.config.mapping.resolution == 1.0


@pytest.mark.parametrize(
    ("kernel", "largest"), [("rbf", survey_solve.WINDOWS[0]), ("matern32", survey_solve.ROUGH_WINDOW)]
)
def test_windows_are_as_large_as_the_memory_allows(kernel: str, largest: int) -> None:
    trend = trend_of(hills(100, (0.0, 0.0), 1), 50.0)
    model = SurveyModel(with_settings(Config(), {**SETTINGS, "mapping.kernel": kernel}), trend)
    edges = [survey_solve.window_edge(model, megabytes << 20) for megabytes in (600, 1024, 8000)]
    assert edges == sorted(edges)
    assert edges[-1] == largest
    for edge, megabytes in zip(edges, (600, 1024, 8000), strict=True):
        needed = window_bytes(model.config, edge) + survey_solve.PROGRAM_BYTES
        assert needed <= megabytes << 20 or edge == survey_solve.WINDOWS[-1]


def test_a_window_solved_in_squares_is_the_same(plain: tuple[list[Path], Path], tmp_path: Path) -> None:
    """Kernels that need much memory are solved in squares smaller than a tile of the GeoTIFFs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_solve, "WINDOWS", (64,))
        map_files(plain[0][:2], tmp_path / "squares")
    map_files(plain[0][:2], tmp_path / "whole")
    with np.load(tmp_path / "squares" / "map.npz") as a, np.load(tmp_path / "whole" / "map.npz") as b:
        assert np.nanmax(np.abs(a["elevation"] - b["elevation"])) < 5e-3
        assert np.array_equal(np.isfinite(a["elevation"]), np.isfinite(b["elevation"]))
