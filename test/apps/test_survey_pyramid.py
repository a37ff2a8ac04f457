"""The quick look at a large survey: tiles beside the report, made level by level, and shown by a browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import told_by, told_from_disk
from limits import PATIENCE
from survey_case import map_files, write_tiles

from gp_core.grid import Grid
from gpgmap_ros.apps import survey_pyramid, survey_solve
from gpgmap_ros.apps.survey_runner import LocalRunner, Outcome, Task
from gpgmap_ros.report import content, map_tiles
from gpgmap_ros.report.content import shrunk
from gpgmap_ros.report.encoding import decoded
from gpgmap_ros.viz.rendering import DARKEST

PAGE_BYTES, EDGE = 20_000, 256
"""So small that the map of the tests is too large for the page, and has several tiles."""


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Tiles and pages that a small survey is large for."""
    patch.setattr(content, "MAP_BYTES", PAGE_BYTES)
    patch.setattr(survey_solve, "WINDOWS", (256,))
    for module in (map_tiles, survey_pyramid):
        patch.setattr(module, "EDGE", EDGE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    make_small(monkeypatch)
    return monkeypatch


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Files, and the folder of their map, with tiles: the ground has holes, and one end without points."""
    folder = tmp_path_factory.mktemp("survey")
    files = write_tiles(folder / "tiles")
    with np.load(files[1]) as file:
        xyz = file["xyz"]
    hole = (np.abs(xyz[:, :2] - [140.0, 30.0]) < 18.0).all(axis=1)
    np.savez(files[1], xyz=xyz[~hole], epsg=32611)
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        map_files(files, folder / "out")
    return files, folder / "out"


def page_map(out: Path) -> dict[str, Any]:
    text = (out / "report.html").read_text()
    data = text.split('id="data">', 1)[1].split("</script>", 1)[0]
    return json.loads(data)["map"]


def read_tile(out: Path, layer: str, level: int, row: int, column: int) -> dict[str, Any]:
    text = (out / "report_tiles" / layer / str(level) / f"{row}_{column}.js").read_text()
    head, body = text.split(",", 1)
    assert head == f'takeTile("{layer}/{level}/{row}_{column}"'
    return json.loads(body.removesuffix(");\n"))


def read_level(out: Path, layer: str, level: int, part: str = "") -> np.ndarray:
    """All tiles of a level as one image, north up; those that are not there unknown. part: of the tile's content"""
    described = page_map(out)["tiles"]["levels"][level]
    image = np.full((described["rows"] * EDGE, described["columns"] * EDGE), np.nan)
    for number, there in enumerate(described["there"]):
        row, column = divmod(number, described["columns"])
        path = out / "report_tiles" / layer / str(level) / f"{row}_{column}.js"
        assert path.exists() == (there == "1")
        if there == "1":
            tile = read_tile(out, layer, level, row, column)
            values = decoded(tile[part] if part else tile, (tile["rows"], tile["columns"]))[::-1]
            y, x = row * EDGE, column * EDGE
            image[y : y + len(values), x : x + values.shape[1]] = values
    return image


def files_of(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in (out / "report_tiles").rglob("*")
        if path.is_file()
    }


def same_image(image: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Up to the expected one's edges; unknown beyond."""
    rows, columns = expected.shape
    assert np.isnan(image[rows:]).all()
    assert np.isnan(image[:, columns:]).all()
    inside = image[:rows, :columns]
    assert np.array_equal(np.isnan(inside), np.isnan(expected))
    assert np.nanmax(np.abs(inside - expected)) <= tolerance


def test_the_finest_tiles_are_the_map(survey: tuple[list[Path], Path]) -> None:
    out = survey[1]
    with np.load(out / "map.npz") as file:
        elevation, variance = file["elevation"], file["variance"]
    assert np.isnan(elevation).any(), "the hole"
    same_image(read_level(out, "elevation", 0), elevation[::-1], 0.51 / map_tiles.STEPS_PER_CELL)
    std = np.where(np.isfinite(elevation), np.sqrt(variance), np.nan)
    same_image(read_level(out, "standard_deviation", 0), std[::-1], 1e-3 * np.nanmax(std))
    light = read_level(out, "elevation", 0, "light")
    assert np.array_equal(np.isnan(light), np.isnan(read_level(out, "elevation", 0)))
    assert DARKEST <= np.nanmin(light) < 0.95 < 1.05 < np.nanmax(light)


def test_each_level_shows_the_means_of_the_one_before(survey: tuple[list[Path], Path]) -> None:
    out = survey[1]
    levels = page_map(out)["tiles"]["levels"]
    assert len(levels) >= 2
    assert [level["resolution"] for level in levels] == [2.0**k for k in range(len(levels))]
    assert levels[-1]["resolution"] < page_map(out)["resolution"] <= 2 * levels[-1]["resolution"]
    for layer, tolerance in (("elevation", 0.03), ("standard_deviation", 2e-3)):
        for level in range(1, len(levels)):
            expected = shrunk(read_level(out, layer, level - 1).astype(np.float32), 2)
            image = read_level(out, layer, level)
            rows, columns = np.minimum(image.shape, expected.shape)
            same_image(image, expected[:rows, :columns], tolerance)


def test_a_map_that_fits_into_the_page_has_no_tiles(survey: tuple[list[Path], Path], tmp_path: Path) -> None:
    map_files(survey[0], tmp_path / "out")
    assert page_map(tmp_path / "out")["tiles"] is None
    assert not (tmp_path / "out" / "report_tiles").exists()


def test_a_huge_map_has_larger_cells_and_few_windows_in_memory(
    survey: tuple[list[Path], Path], tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    """The finest level is limited; a tile of it is made of many windows, which are not all in memory."""
    small.setattr(survey_pyramid, "MOST_CELLS", 15_000)
    small.setattr(survey_solve, "WINDOWS", (128,))
    alive: list[weakref.ref[Any]] = []
    most = 0
    load = survey_pyramid.load_window

    def watched(*arguments: Any) -> Any:
        nonlocal most
        part = load(*arguments)
        alive.append(weakref.ref(part))
        most = max(most, sum(item() is not None for item in alive))
        return part

    small.setattr(survey_pyramid, "load_window", watched)
    map_files(survey[0], tmp_path / "out")
    tiles = page_map(tmp_path / "out")["tiles"]
    assert tiles["levels"][0]["resolution"] == 2.0
    with np.load(tmp_path / "out" / "map.npz") as file:
        expected = shrunk(file["elevation"][::-1], 2)
    same_image(read_level(tmp_path / "out", "elevation", 0), expected, 0.02)
    assert len(alive) >= 2
    assert most <= 2, "the last one and the next"
    assert "The files have 1 m." in page_map(tmp_path / "out")["note"]


def test_levels_of_the_largest_map() -> None:
    """Tiles are few enough, and none shows what the page shows itself."""
    grid = Grid((0.0, 0.0), (200_000, 200_000), 0.7)
    levels = map_tiles.tile_levels(grid, 150.0, survey_pyramid.MOST_CELLS)
    assert levels[0].factor == 8
    assert levels[-1].factor * 0.7 < 150.0 <= 2 * levels[-1].factor * 0.7
    assert sum(np.prod(level.tiles) for level in levels) < 6000
    assert levels[0].tile_shape(48, 48) == (25_000 - 48 * 512, 25_000 - 48 * 512)
    assert survey_solve.WINDOWS[0] == map_tiles.EDGE, "a window lies in one tile"


class Stopping(LocalRunner):
    """Ctrl-C after so many tiles."""

    def __init__(self, after: int) -> None:
        self._left = after

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        for task in tasks:
            if task.function is survey_pyramid.make_tile:
                if not self._left:
                    raise KeyboardInterrupt
                self._left -= 1
            yield from super().run([task])


def test_a_stopped_run_makes_no_tile_twice(
    survey: tuple[list[Path], Path], tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    out, made = tmp_path / "out", []
    write = survey_pyramid.write_tile
    small.setattr(
        survey_pyramid,
        "write_tile",
        lambda folder, level, row, column, *more: (
            made.append((level.number, row, column)),
            write(folder, level, row, column, *more),
        ),
    )
    with pytest.raises(KeyboardInterrupt):
        map_files(survey[0], out, Stopping(1))
    assert made == [(0, 0, 0)]
    with pytest.raises(KeyboardInterrupt):
        map_files(survey[0], out, Stopping(3), resume=True)
    map_files(survey[0], out, resume=True)
    assert (
        len(made)
        == len(set(made))
        == sum(level["there"].count("1") for level in page_map(out)["tiles"]["levels"])
    )
    assert files_of(out) == files_of(survey[1])


def test_tiles_of_other_ground_are_made_again(
    survey: tuple[list[Path], Path], tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    """Between two attempts a file was replaced by one with as many points at the same places, two metres higher."""
    out, files = tmp_path / "out", []
    for file in survey[0]:
        files.append(tmp_path / file.name)
        shutil.copy(file, files[-1])
    with pytest.raises(KeyboardInterrupt):
        map_files(files, out, Stopping(2))
    with np.load(files[0]) as file:
        higher = file["xyz"] + [0.0, 0.0, 2.0]
    np.savez(files[0], xyz=higher, epsg=32611)
    map_files(files, out, resume=True)
    with np.load(out / "map.npz") as file:
        same_image(read_level(out, "elevation", 0), file["elevation"][::-1], 0.01)
    with np.load(survey[1] / "map.npz") as before, np.load(out / "map.npz") as after:
        rise = after["elevation"][30:60, 30:60] - before["elevation"][30:60, 30:60]
    assert np.median(rise) == pytest.approx(2.0, abs=0.1)


KILLED = """
import os, signal, sys
from pathlib import Path
import pytest
from survey_case import map_files
from test_survey_pyramid import make_small
from gpgmap_ros.report import map_tiles
patch, count, write = pytest.MonkeyPatch(), [], map_tiles.write_text
make_small(patch)
def deadly(path, text):
    count.append(path)
    if len(count) == 4:  # the second file of the second tile
        with open(path.with_name(f".{path.name}.0123456789abcdef.new"), "w") as file:
            file.write(text[:100])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    write(path, text)
patch.setattr(map_tiles, "write_text", deadly)
map_files([Path(name) for name in sys.argv[2:]], Path(sys.argv[1]))
"""


def test_a_killed_run_leaves_no_half_tile(
    survey: tuple[list[Path], Path], tmp_path: Path, small: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    here = Path(__file__).parent
    folders = os.pathsep.join([str(here), str(here.parent), *sys.path])
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(out), *map(str, survey[0])],
        env={**os.environ, "PYTHONPATH": folders}, timeout=PATIENCE, check=False, capture_output=True,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    complete = files_of(survey[1])
    whole = {name: data for name, data in files_of(out).items() if not Path(name).name.startswith(".")}
    assert len(whole) == 3
    assert all(complete[name] == data for name, data in whole.items())
    map_files(survey[0], out, resume=True)
    assert files_of(out) == complete, "and nothing is left of what was being written"


SETTLE = """const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const settle = async () => { for (let k = 0; k < 300 && (tiles.loading.size || k < 5); k++) { paint(); await wait(20); }
  paint(); };
const canvas = $("map"), box = canvas.getBoundingClientRect();
const pixel = (x, y) => { const [u, v] = screen(x, y), ratio = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(Math.floor(u * ratio), Math.floor(v * ratio), 1, 1).data]; };
const point = (x, y) => { const [u, v] = screen(x, y);
  canvas.dispatchEvent(new PointerEvent("pointermove",
    { bubbles: true, pointerId: 1, clientX: box.left + u, clientY: box.top + v })); };
const values = () => Object.fromEntries([...document.querySelectorAll("#values span")].map((node) =>
  [node.querySelector("i").textContent, node.querySelector("b").textContent]));
const wheel = (x, y, times) => { for (let k = 0; k < times; k++) { const [u, v] = screen(x, y);
  canvas.dispatchEvent(new WheelEvent("wheel",
    { bubbles: true, cancelable: true, deltaY: -400, clientX: box.left + u, clientY: box.top + v })); } };
"""


def places_of(out: Path) -> tuple[tuple[float, float, float, float], tuple[float, float]]:
    """x, y, height and standard deviation of a cell that is known, and of one in the hole that is not, although the
    page's own map has a height there."""
    with np.load(out / "map.npz") as file:
        elevation, variance, origin = file["elevation"], file["variance"], file["origin"]
    iy, ix = 61, 171
    known = (origin[0] + ix + 0.5, origin[1] + iy + 0.5, elevation[iy, ix], np.sqrt(variance[iy, ix]))
    factor = int(page_map(out)["resolution"])
    coarse = np.isfinite(shrunk(elevation, factor)).repeat(factor, axis=0).repeat(factor, axis=1)
    fringe = np.argwhere(np.isnan(elevation) & coarse[: elevation.shape[0], : elevation.shape[1]])
    middle = np.abs(fringe + 0.5 + origin[::-1] - [30.0, 140.0]).sum(axis=1).argmin()
    hole = tuple(float(value) for value in (fringe[middle] + 0.5 + origin[::-1])[::-1])
    return tuple(float(value) for value in known), hole


def test_a_browser_shows_the_cells_of_the_map_from_a_disk(
    chromium: str, survey: tuple[list[Path], Path], tmp_path: Path
) -> None:
    (x, y, height, std), hole = places_of(survey[1])
    script = (
        SETTLE
        + f"""
    const [x, y, hx, hy] = [{x}, {y}, {hole[0]}, {hole[1]}], seen = {{}};
    await settle(); seen.first = [tileLevel(canvas), tiles.loaded.size];
    wheel(x, y, 4); await settle();
    seen.level = tileLevel(canvas); seen.loaded = [...tiles.loaded.keys()];
    seen.errors = [...tiles.missing];
    point(x, y); seen.values = values(); seen.cells = cellsShown(canvas); pointAt(null); paint();
    seen.known = pixel(x, y);
    const toggle = document.querySelector("[data-overlay=shaded]"); toggle.click(); paint(); seen.flat = pixel(x, y);
    toggle.click();
    document.querySelectorAll("#layers button")[3].click(); paint(); seen.slope = cellsShown(canvas);
    document.querySelectorAll("#layers button")[1].click(); await settle(); seen.uncertain = pixel(x, y);
    view.x = hx; view.y = hy; await settle(); seen.hole = pixel(hx, hy);
    tell(seen);"""
    )
    seen = told_from_disk(chromium, survey[1] / "report.html", script, tmp_path)
    assert seen["errors"] == []
    assert seen["level"] == 0
    assert "elevation/0/0_0" in seen["loaded"]
    assert float(seen["values"]["Elevation"].split()[0]) == pytest.approx(height, abs=0.011)
    assert float(seen["values"]["Uncertainty (1 std)"].split()[0]) == pytest.approx(std, abs=1e-3)
    assert seen["cells"].endswith("cells of 1 m")
    assert f"cells of {page_map(survey[1])['resolution']:g} m" in seen["slope"], "the others are not tiled"
    assert seen["known"][3] == 255
    assert seen["known"][:3] != seen["flat"][:3] != seen["uncertain"][:3]
    assert seen["hole"][3] == 0, "unknown ground lets the page be seen"


def test_fingers_and_keys_move_and_zoom(
    chromium: str, survey: tuple[list[Path], Path], tmp_path: Path
) -> None:
    script = (
        SETTLE
        + """
    const finger = (kind, id, u, v) => canvas.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerId: id,
      pointerType: "touch", clientX: box.left + u, clientY: box.top + v }));
    canvas.setPointerCapture = () => {};
    const seen = {}, before = { ...view };
    finger("pointerdown", 1, 100, 150); finger("pointerdown", 2, 200, 150);
    const at = world(150, 150);
    for (let k = 1; k <= 20; k++)
      { finger("pointermove", 1, 100 - 4 * k, 150); finger("pointermove", 2, 200 + 4 * k, 150); }
    seen.pinch = view.scale / before.scale; seen.middle = world(150, 150).map((value, k) => value - at[k]);
    finger("pointerup", 1, 20, 150); finger("pointerup", 2, 280, 150);
    await settle(); seen.loaded = tiles.loaded.size;
    const x = view.x;
    finger("pointerdown", 3, 100, 100); finger("pointermove", 3, 140, 100); finger("pointerup", 3, 140, 100);
    seen.drag = (x - view.x) * view.scale;
    const key = (name) =>
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
    const scale = view.scale, y = view.y; key("+"); key("ArrowUp"); seen.keys = [view.scale / scale, view.y - y];
    for (let k = 0; k < 40; k++) key("+");
    seen.largest = view.scale * finestCell(); key("0"); seen.all = view.fitted;
    const root = document.documentElement; seen.width = [root.scrollWidth, root.clientWidth];
    tell(seen);"""
    )
    shutil.copytree(survey[1] / "report_tiles", tmp_path / "report_tiles")
    seen = told_by(chromium, (survey[1] / "report.html").read_text(), script, tmp_path, width=390)
    assert seen["pinch"] == pytest.approx(2.6, rel=0.02)
    assert np.abs(seen["middle"]).max() < 2.0
    assert seen["loaded"] >= 1
    assert seen["drag"] == pytest.approx(40.0, abs=0.1)
    assert seen["keys"][0] == pytest.approx(1.5)
    assert seen["keys"][1] > 0.0
    assert seen["largest"] == pytest.approx(60.0), "as many pixels for each of the finest cells"
    assert seen["all"] is True
    assert seen["width"][0] == seen["width"][1] <= 390


def test_few_tiles_are_kept_and_those_in_sight_always(
    chromium: str, survey: tuple[list[Path], Path], tmp_path: Path
) -> None:
    script = (
        SETTLE
        + """
    for (let k = 0; k < 100; k++) tiles.loaded.set(`elevation/0/9_${k}`, { rows: 1, columns: 1 });
    wheel(200, 50, 3); await settle();
    const inSight = tilesIn(canvas, 0).every(([row, column]) => tiles.loaded.has(`elevation/0/${row}_${column}`));
    tell({ kept: tiles.loaded.size, inSight });"""
    )
    shutil.copytree(survey[1] / "report_tiles", tmp_path / "report_tiles")
    seen = told_by(chromium, (survey[1] / "report.html").read_text(), script, tmp_path)
    assert seen == {"kept": 48, "inSight": True}


def test_a_page_without_its_tiles_says_so_and_works(
    chromium: str, survey: tuple[list[Path], Path], tmp_path: Path
) -> None:
    (x, y, height, _), _ = places_of(survey[1])
    script = (
        SETTLE
        + f"""wheel({x}, {y}, 4); await settle(); point({x}, {y});
    tell({{ values: values(), known: pixel({x}, {y}), caption: $("map-caption").textContent }});"""
    )
    seen = told_by(chromium, (survey[1] / "report.html").read_text(), script, tmp_path)
    assert "Parts of report_tiles/ are not beside this page" in seen["caption"]
    assert seen["caption"].count("Parts of") == 1
    assert seen["known"][3] == 255
    assert float(seen["values"]["Elevation"].split()[0]) == pytest.approx(height, abs=2.0)
