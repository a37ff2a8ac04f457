"""The report: self-contained, and working in a real browser."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import tracemalloc
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from browser import told_by
from fast_mapping import fast_config
from limits import PATIENCE

from gp_core.grid import Grid
from gpgmap_ros.apps.results import closures_text
from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import Trajectory
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.layers import BASE, reported_layers
from gpgmap_ros.report import content as content_module
from gpgmap_ros.report.content import Content, closure_views, encoded_layers, layers_of, shrunk, track_of
from gpgmap_ros.report.encoding import decoded, encoded
from gpgmap_ros.report.page import page_of
from gpgmap_ros.viz import rendering as rendering_module
from gpgmap_ros.viz.rendering import certainty, picture, relief_shade, shade_pixels

READER = Path(__file__).with_name("reader.js")


def read_in(chromium: str, page: Path, folder: Path, x: float, y: float) -> dict:
    script = READER.read_text().replace("AT_X", str(x)).replace("AT_Y", str(y))
    text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
    copy = folder / "read.html"
    copy.write_text(text)
    result = subprocess.run(
        [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1400",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom", copy.as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    found = re.search(r'data-seen="([^"]*)"', result.stdout)
    assert found, result.stderr[-2000:]
    return json.loads(unescape(found[1]))


def test_a_browser_shows_what_the_map_says(chromium: str, run_folder: Path, tmp_path: Path) -> None:
    gpgmap, _ = RunFolder(run_folder).read_map()
    iy, ix = np.argwhere(gpgmap.known)[gpgmap.known.sum() // 2]
    x, y = float(gpgmap.grid.x[ix]), float(gpgmap.grid.y[iy])
    seen = read_in(chromium, run_folder / "report.html", tmp_path, x, y)
    uncertainty = ["Uncertainty (1 std)", "Uncertainty with poses"]
    assert seen["tabs"] == ["Elevation", *uncertainty, "Gradient", "Slope", "Traversability"]
    number = float(seen["values"]["Elevation"].split()[0].replace("\u2212", "-"))
    assert number == pytest.approx(float(gpgmap["elevation"][iy, ix]), abs=0.01)
    std = float(seen["values"]["Uncertainty (1 std)"].split()[0])
    assert std == pytest.approx(float(np.sqrt(gpgmap["variance"][iy, ix])), abs=0.005)
    std = float(seen["values"]["Uncertainty with poses"].split()[0])
    total = float(gpgmap["variance"][iy, ix] + gpgmap["pose_variance"][iy, ix])
    assert std == pytest.approx(np.sqrt(total), rel=0.03, abs=0.005)
    slope = float(seen["values"]["Slope"].split()[0])
    assert slope == pytest.approx(float(np.degrees(gpgmap["slope"][iy, ix])), abs=0.2)
    assert len(set(seen["pictures"])) == 6, "every layer looks different"
    assert seen["legend"].startswith("Traversability")
    assert seen["zoom"] > 1.5
    assert max(seen["still"]) < 1.0, "what is under the cursor stays there"
    assert seen["back"] < 1e-6
    assert seen["rows"] > 50


def test_nothing_leads_out_of_the_page(run_folder: Path) -> None:
    text = (run_folder / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert not re.findall(r"@import|fetch\(|XMLHttpRequest", text)
    assert len(text) < 5_000_000
    # xml namespaces are names, not places
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    "title",
    [
        "</script><script>alert(1)</script> & 'quotes'",
        "<!--<script>",
        "{{data}} {{script}}",
        "\u2028 \\u003c <",
    ],
)
def test_names_can_not_break_the_page(chromium: str, tmp_path: Path, title: str) -> None:
    """A bag or topic may be called anything."""
    content = Content(title, "sub", "No map.", warnings=["<b>bold</b>", title])
    script = """const of = (id) => document.getElementById(id).textContent;
    const warnings = [...document.querySelectorAll(".warning")].map((node) => node.textContent);
    tell({ title: of("title"), tab: document.title, warnings, message: of("map-message") });"""
    seen = told_by(chromium, page_of(content), script, tmp_path)
    assert seen["title"] == title
    assert seen["tab"].split() == f"{title}: GPGMap report".split()
    assert seen["warnings"][:2] == ["<b>bold</b>", title]
    assert seen["message"].startswith("There is no map")


@functools.cache
def a_page_with_everything() -> str:
    """A hill, a loop around it with odometry that drifts, the truth, and closures of both kinds."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(-6.0, 6.0, (20_000, 2))
    z = 2.0 * np.exp(-(xy**2).sum(axis=1) / 8.0)
    gpgmap = gpgmap_from_points(np.column_stack([xy, z]), 0.2, fast_config())
    angle = np.linspace(0.0, 2.0 * np.pi, 41)
    truth = np.tile(np.eye(4), (41, 1, 1))
    truth[:, :3, 3] = np.column_stack([4.0 * np.cos(angle), 4.0 * np.sin(angle), np.full(41, 1.0)])
    corrected, odometry = truth.copy(), truth.copy()
    odometry[:, 0, 3] += np.linspace(0.0, 2.0, 41)
    corrected[:, 1, 3] += 0.1
    stamps = np.arange(41, dtype=np.int64) * 10**9
    closures = [
        LoopClosure(0, 4, np.eye(4), 0.01 * np.eye(6), 0.99, 0.5, True, "it fits"),
        LoopClosure(1, 3, np.eye(4), np.full((6, 6), np.inf), 0.01, 0.2, False, "it does not fit"),
        LoopClosure(2, 4, np.eye(4), np.full((6, 6), np.inf), 0.02, 0.2, False, "nor does this"),
    ]
    poses = {number: truth[10 * number] for number in range(5)}
    content = Content(
        "everything", "test", "A page.",
        map=layers_of(gpgmap),
        tracks=[
            track_of(kind, kind, Trajectory(stamps, poses_of))
            for kind, poses_of in (("odometry", odometry), ("corrected", corrected), ("truth", truth))
        ],
        closures=closure_views(closures, poses, lambda number: gpgmap),
    )  # fmt: skip
    return page_of(content)


TERRAIN_PIXELS = """
const pixels = () => {
  renderTerrain(terrain.gl);
  const canvas = $("terrain"), copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, copy.width, copy.height).data;
};
const share_where = (data, colour) => {
  let count = 0;
  for (let k = 0; k < data.length; k += 4)
    if ([0, 1, 2].reduce((sum, c) => sum + Math.abs(data[k + c] - colour(k, c)), 0) > 12) count++;
  return count / (data.length / 4);
};
const drawn = (data) => share_where(data, (_, c) => [209, 209, 206][c]);
const differ = (a, b) => share_where(a, (k, c) => b[k + c]);
"""


def test_the_terrain_is_drawn_in_3d(chromium: str, tmp_path: Path) -> None:
    script = (
        TERRAIN_PIXELS
        + """if (!terrain.gl) { tell({ without: true }); return; }
    const first = pixels(); turnTerrain(1.0, 0.2); const turned = pixels();
    document.querySelectorAll("#layers button")[1].click(); const uncertain = pixels();
    const choice = $("exaggeration"); choice.value = "10"; choice.onchange(); const steep = pixels();
    view.odometry = view.corrected = false; const bare = pixels();
    tell({ drawn: drawn(first), turned: differ(first, turned), layer: differ(turned, uncertain),
      steep: differ(uncertain, steep), tracks: differ(steep, bare) });"""
    )
    seen = told_by(chromium, a_page_with_everything(), script, tmp_path)
    if seen.get("without"):
        pytest.skip("this Chromium has no WebGL")
    assert seen["drawn"] > 0.15
    assert seen["turned"] > 0.05
    assert seen["layer"] > 0.05
    assert seen["steep"] > 0.02
    assert 0.0005 < seen["tracks"] < 0.2


def test_a_spike_at_the_edge_does_not_flatten_the_terrain(chromium: str, tmp_path: Path) -> None:
    script = """const mesh = (spike) => { const z = shown.values[0].slice(); z[z.findIndex(Number.isFinite)] = spike;
      return terrainMesh(data.map, z, data.map.layers[0].limits, null); };
    const span = (mesh) => Math.max(...mesh.positions.filter((_, k) => k % 3 === 2));
    tell({ plain: span(mesh(1.0)), spike: span(mesh(5000.0)), triangles: mesh(1.0).triangles.length / 3 });"""
    seen = told_by(chromium, a_page_with_everything(), script, tmp_path)
    assert seen["spike"] < 2.5 * seen["plain"]
    assert seen["triangles"] > 5000


def test_without_webgl_the_page_says_so_and_works(chromium: str, tmp_path: Path) -> None:
    script = """const count = (selector) => document.querySelectorAll(selector).length, message = $("terrain-message");
    tell({ message: getComputedStyle(message).display, text: message.textContent,
      tabs: count("#layers button"), charts: count("#charts svg") });"""
    seen = told_by(chromium, a_page_with_everything(), script, tmp_path, graphics="--disable-3d-apis")
    assert seen["message"] == "flex"
    assert seen["text"].startswith("This browser has no WebGL")
    assert seen["tabs"] == 5
    assert seen["charts"] == 2


def test_maps_and_charts_point_at_the_same_place(chromium: str, tmp_path: Path) -> None:
    script = """const move = (node, clientX, clientY) =>
      node.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, pointerId: 1, clientX, clientY }));
    const rules = () => [...document.querySelectorAll("#charts .rule")].map((node) => node.getAttribute("visibility"));
    const canvas = $("map"), box = canvas.getBoundingClientRect(), [u, v] = screen(0.0, 4.1);
    const before = rules();
    move(canvas, box.left + u, box.top + v);
    const label = document.querySelector("#charts text.value");
    const near = { index: linked.index, rules: rules(), text: label.textContent };
    const [far_u, far_v] = screen(0.0, 0.0);
    move(canvas, box.left + far_u, box.top + far_v);
    const far = { index: linked.index, rules: rules() };
    const chart = document.querySelector("#charts svg"), frame = chart.getBoundingClientRect();
    move(chart, frame.left + frame.width * 0.999, frame.top + 20);
    const end = { index: linked.index, at: linkedPosition() };
    const companion = $("companion"), other = companion.getBoundingClientRect();
    const [cu, cv] = screen(-4.0, 0.1, companion);
    move(companion, other.left + cu, other.top + cv);
    tell({ before, near, far, end, companion: linked.index, cursor: view.cursor });"""
    seen = told_by(chromium, a_page_with_everything(), script, tmp_path)
    assert seen["before"] == ["hidden", "hidden"]
    assert seen["near"]["index"] == 10, (
        "a quarter around the loop, where the corrected trajectory has y = 4.1"
    )
    assert seen["near"]["rules"] == ["visible", "visible"]
    assert "corrected 1.00" in seen["near"]["text"]
    assert seen["far"] == {"index": None, "rules": ["hidden", "hidden"]}
    assert seen["end"]["index"] == 40
    assert seen["end"]["at"] == pytest.approx([4.0, 0.1], abs=0.01)
    assert seen["companion"] == 20
    assert seen["cursor"] == pytest.approx([-4.0, 0.1], abs=0.05)


def test_before_and_after_and_what_was_rejected(chromium: str, tmp_path: Path) -> None:
    script = """const plans = [...document.querySelectorAll("#before-after .plan")].map((node) => node.textContent);
    const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)];
    const folded = rows("rejected-closures").map((row) => row.checkVisibility());
    $("rejected-closures").open = true; rows("rejected-closures")[0].click();
    const words = (selector) => document.querySelector(selector).textContent;
    tell({ plans, accepted: rows("accepted-closures").length, folded, summary: words("#rejected-closures summary"),
      caption: words("#closure-view figcaption"), companion: words("#companion-title") });"""
    seen = told_by(chromium, a_page_with_everything(), script, tmp_path)
    assert len(seen["plans"]) == 2
    assert "2.00 m from the truth at the end" in seen["plans"][0]
    assert "0.10 m from the truth at the end" in seen["plans"][1]
    assert "loop closure" in seen["plans"][1]
    assert seen["accepted"] == 1
    assert seen["folded"] == [False, False]
    assert seen["summary"] == "2 rejected comparisons"
    assert seen["caption"].startswith("Rejected: it does not fit") or seen["caption"].startswith(
        "Rejected: nor"
    )
    assert seen["companion"] == "Uncertainty (1 std) [m]"


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_is_as_wide_as_the_screen(
    chromium: str, run_folder: Path, tmp_path: Path, width: int
) -> None:
    script = """document.querySelectorAll("details").forEach((node) => { node.open = true; });
    tell({ screen: document.documentElement.clientWidth, page: document.documentElement.scrollWidth });"""
    seen = told_by(chromium, (run_folder / "report.html").read_text(), script, tmp_path, width)
    assert seen["page"] == seen["screen"] <= width


def test_closures_are_dark_in_the_dark(chromium: str, hills: np.ndarray, tmp_path: Path) -> None:
    """Ground that neither submap knows has the colour of the page's own unknown ground."""
    points = hills - [500_000.0, 4_000_000.0, 250.0]
    maps = [
        gpgmap_from_points(points[np.hypot(points[:, 0] - x, points[:, 1] - 20) < 9], 0.5, fast_config())
        for x in (17, 22)
    ]
    closure = LoopClosure(0, 1, np.eye(4), 0.01 * np.eye(6), 0.99, 0.5, True, "it fits")
    views = closure_views([closure], {0: np.eye(4), 1: np.eye(4)}, lambda number: maps[number])
    script = """const images = [...document.querySelectorAll(".trio img")];
    await Promise.all(images.map((image) => image.decode()));
    const counts = (image) => { const canvas = document.createElement("canvas"); canvas.width = image.naturalWidth;
      canvas.height = image.naturalHeight; const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
      const all = context.getImageData(0, 0, canvas.width, canvas.height).data; let clear = 0, solid = 0;
      for (let k = 3; k < all.length; k += 4) if (all[k] === 0) clear++; else if (all[k] === 255) solid++;
      return [clear, solid, all.length / 4]; };
    const style = (selector) => getComputedStyle(document.querySelector(selector));
    tell({ pixels: images.map(counts), behind: style(".trio .picture").backgroundColor,
      filter: style(".trio .difference img").filter });"""
    page = page_of(Content("t", "s", "a", closures=views))
    dark = told_by(chromium, page, script, tmp_path, dark=True)
    light = told_by(chromium, page, script, tmp_path)
    assert len(dark["pixels"]) == 3
    for clear, solid, count in dark["pixels"]:
        assert clear > 0
        assert clear + solid == count
    assert dark["behind"] == "rgb(58, 60, 64)"
    assert light["behind"] == "rgb(209, 209, 206)"
    assert light["filter"] == "none"
    assert "invert" in dark["filter"]


def test_relief_has_no_rim_at_the_edge_of_the_data(chromium: str, tmp_path: Path) -> None:
    """On an even slope the light is the same everywhere, up to the last known cell; it fades where little is known."""
    script = """const n = 20, z = new Float32Array(n * n).fill(NaN);
    for (let y = 0; y < n; y++) for (let x = 0; x < n; x++)
      if ((x - 9) ** 2 + (y - 9) ** 2 < 70) z[y * n + x] = 0.3 * x - 0.2 * y;
    const known = [...z.keys()].filter((k) => !Number.isNaN(z[k]));
    const light = relief(z, n, n, 1.0, null), faded = relief(z, n, n, 1.0, new Float32Array(n * n));
    tell({ count: known.length, light: known.map((k) => light[k]), faded: known.map((k) => faded[k]) });"""
    seen = told_by(chromium, page_of(Content("t", "s", "a")), script, tmp_path)
    assert seen["count"] > 200
    assert max(seen["light"]) - min(seen["light"]) < 1e-3
    assert abs(seen["light"][0] - 1.0) > 0.1
    assert seen["faded"] == [1.0] * seen["count"]


def test_pictures_have_no_rim_either() -> None:
    """A plane, seen in a disc: between its own shade and none, nowhere beyond."""
    rng = np.random.default_rng(1)
    xy = rng.uniform(-5.0, 5.0, (40_000, 2))
    xy = xy[np.hypot(*xy.T) < 4.0]
    points = np.column_stack([xy, 10.0 + 0.4 * xy[:, 0] - 0.4 * xy[:, 1] + 0.01 * rng.normal(size=len(xy))])
    gpgmap = gpgmap_from_points(points, 0.1, fast_config())  # the smooth kernel bends back there
    white = np.full((*gpgmap.grid.shape, 3), 200, dtype=np.uint8)
    light = relief_shade(gpgmap["gradient_x"], gpgmap["gradient_y"])
    pixels = shade_pixels(white, light, certain=certainty(gpgmap))[..., 0]
    x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    inside = float(np.median(pixels[np.hypot(x, y) < 3.0]))
    assert inside > 215.0, "the slope faces the light"
    edge = pixels[gpgmap.known & (np.hypot(x, y) > 3.8)]
    assert len(edge) > 200
    assert edge.min() > 180.0
    assert edge.max() < inside + 12.0
    assert shade_pixels(white, light)[..., 0][gpgmap.known].min() < 100.0, "without it there is a rim"


def test_nothing_is_said_of_corrections_where_nothing_was_compared() -> None:
    none = {"compared": 0, "accepted": 0, "largest_correction_m": 0.0, "correction_at_the_end_m": 0.0}
    assert closures_text(none) == "No submaps were compared"
    assert "trajectory" not in closures_text({**none, "compared": 3})
    one = closures_text({**none, "compared": 38, "accepted": 1, "largest_correction_m": 4.57})
    assert (
        one
        == "38 pairs of submaps were compared, 1 accepted as a loop closure; it moves the trajectory by up to 4.57 m"
    )


def test_layers_survive_their_encoding() -> None:
    rng = np.random.default_rng(0)
    layer = rng.normal(size=(37, 53)).astype(np.float32) * 40.0
    layer[rng.random(layer.shape) < 0.3] = np.nan
    back = decoded(encoded(layer), layer.shape)
    assert np.array_equal(np.isnan(back), np.isnan(layer))
    step = (np.nanmax(layer) - np.nanmin(layer)) / 65534
    assert np.nanmax(np.abs(back - layer)) <= 0.51 * step
    assert np.isnan(decoded(encoded(np.full((3, 4), np.nan)), (3, 4))).all()
    assert decoded(encoded(np.full((3, 4), 7.0)), (3, 4)) == pytest.approx(7.0)


def test_shrinking_keeps_the_mean_of_what_is_known() -> None:
    layer = np.array([[1.0, 3.0, np.nan], [np.nan, 5.0, np.nan], [7.0, 9.0, 2.0]], dtype=np.float32)
    assert np.array_equal(shrunk(layer, 2), np.array([[3.0, np.nan], [8.0, 2.0]]), equal_nan=True)


def test_a_page_and_pictures_take_little_memory_beside_the_map() -> None:
    """One layer at a time: a map of millions of cells is drawn in the memory of a few of its layers."""
    grid = Grid((0.0, 0.0), (1700, 1600), 0.1)
    ramp = np.linspace(0.01, 0.02, grid.shape[0] * grid.shape[1], dtype=np.float32).reshape(grid.shape)
    gpgmap = GPGMap(grid, dict.fromkeys(BASE, ramp))
    for name in reported_layers(gpgmap.layers):
        gpgmap[name]
    one = ramp.nbytes
    tracemalloc.start()
    layers_of(gpgmap)
    page = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    picture(gpgmap, "elevation")
    drawn = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page < 8 * one
    assert drawn < 6 * one


def test_a_picture_is_drawn_in_bands_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    grid = Grid((0.0, 0.0), (50, 40), 0.1)
    layers = {name: rng.uniform(0.01, 0.3, grid.shape).astype(np.float32) for name in BASE}
    layers["elevation"][10:20] = np.nan
    gpgmap = GPGMap(grid, layers)
    for name in ("elevation", "standard_deviation", "slope"):
        whole, mean = picture(gpgmap, name), shrunk(gpgmap[name], 3)
        monkeypatch.setattr(rendering_module, "BAND_CELLS", 120)
        np.testing.assert_array_equal(picture(gpgmap, name), whole)
        np.testing.assert_allclose(shrunk(gpgmap[name], 3), mean, rtol=1e-6)
        monkeypatch.undo()


def test_the_map_of_a_page_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rough ground, which packs badly, in more cells than the page may hold: coarser ones, and the page says so."""
    rng = np.random.default_rng(0)
    layers = {name: rng.normal(size=(300, 400)).astype(np.float32) for name in ("elevation", "slope")}
    grid = Grid((0.0, 0.0), (300, 400), 0.1)
    whole = encoded_layers(layers, grid, "map")
    assert (whole["rows"], whole["note"]) == (300, "")
    monkeypatch.setattr(content_module, "MAP_BYTES", 100_000)
    page = encoded_layers(layers, grid, "map")
    assert 30_000 < sum(len(layer["data"]) for layer in page["layers"]) <= 100_000
    shrink = round(page["resolution"] / 0.1)
    assert page["note"] == f"Shown with cells of {0.1 * shrink:g} m; the files have 0.1 m."
    elevation = next(layer for layer in page["layers"] if layer["name"] == "elevation")
    back = decoded(elevation, (page["rows"], page["columns"]))
    np.testing.assert_allclose(back, shrunk(layers["elevation"], shrink), atol=1e-3)


def test_many_closures_make_no_large_page(hills: np.ndarray) -> None:
    """A long drive compares thousands of pairs: those that were accepted are shown, in smaller pictures."""
    gpgmap = gpgmap_from_points(hills, 0.25)  # the default kernel: what packs well depends on it
    poses = {k: np.eye(4) for k in range(3000)}

    def closure(k: int) -> LoopClosure:
        accepted = k >= 1000
        return LoopClosure(
            k, k + 1000, np.eye(4), 1e-4 * np.eye(6), 0.9, 0.5, accepted, "too little evidence", 1.0, accepted
        )

    few = closure_views([closure(1000)], poses, lambda id: gpgmap)
    many = closure_views([closure(k) for k in range(1500)], poses, lambda id: gpgmap)
    assert len(many) == content_module.MOST_CLOSURES
    assert sum(item["accepted"] for item in many) == 500
    pictured = [item for item in many if "pictures" in item]
    assert len(pictured) == content_module.MOST_VIEWS
    assert max(pictured[0]["size"]) <= content_module.PICTURE_CELLS[0] <= max(few[0]["size"])
    assert len(json.dumps(many)) < 2_000_000
