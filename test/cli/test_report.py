"""The report: self-contained, and working in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from limits import PATIENCE

from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.report.content import Content, shrunk
from gpgmap_ros.report.encoding import decoded, encoded
from gpgmap_ros.report.page import page_of


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))),
        None,
    )
    if found is None:
        pytest.skip("no Chromium: sudo apt install chromium")
    return found


READER = Path(__file__).with_name("reader.js")


def read_in(chromium: str, page: Path, folder: Path, x: float, y: float) -> dict:
    script = READER.read_text().replace("AT_X", str(x)).replace("AT_Y", str(y))
    text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
    copy = folder / "read.html"
    copy.write_text(text)
    result = subprocess.run(
        [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1400",
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
    assert seen["tabs"] == ["Elevation", "Uncertainty (1 std)", "Gradient", "Slope", "Traversability"]
    number = float(seen["values"]["Elevation"].split()[0].replace("\u2212", "-"))
    assert number == pytest.approx(float(gpgmap["elevation"][iy, ix]), abs=0.01)
    std = float(seen["values"]["Uncertainty (1 std)"].split()[0])
    assert std == pytest.approx(float(np.sqrt(gpgmap["variance"][iy, ix])), abs=0.005)
    slope = float(seen["values"]["Slope"].split()[0])
    assert slope == pytest.approx(float(np.degrees(gpgmap["slope"][iy, ix])), abs=0.2)
    assert len(set(seen["pictures"])) == 5, "every layer looks different"
    assert seen["legend"].startswith("Traversability")
    assert seen["zoom"] > 1.5
    assert max(seen["still"]) < 1.0, "what is under the cursor stays there"
    assert seen["back"] < 1e-6
    assert seen["rows"] > 50


def test_nothing_leads_out_of_the_page(run_folder: Path) -> None:
    text = (run_folder / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert not re.findall(r"@import|fetch\(|XMLHttpRequest", text)
    # xml namespaces are names, not places
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_names_can_not_break_the_page(chromium: str, tmp_path: Path) -> None:
    """A bag or topic may be called anything."""
    title = "</script><script>alert(1)</script> & 'quotes'"
    content = Content(title, "sub", "No map.", warnings=["<b>bold</b>"])
    page = tmp_path / "page.html"
    page.write_text(page_of(content))
    script = """const of = (id) => document.getElementById(id).textContent;
    const warnings = [...document.querySelectorAll(".warning")].map((node) => node.textContent);
    const seen = { title: of("title"), warnings, message: of("map-message") };
    document.documentElement.setAttribute("data-seen", JSON.stringify(seen));"""
    text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
    page.write_text(text)
    result = subprocess.run(
        [
            chromium, "--headless=new", "--no-sandbox", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    found = re.search(r'data-seen="([^"]*)"', result.stdout)
    assert found
    seen = json.loads(unescape(found[1]))
    assert seen["title"] == title
    assert "<b>bold</b>" in seen["warnings"]
    assert seen["message"].startswith("There is no map")


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
