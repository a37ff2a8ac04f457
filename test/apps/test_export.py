"""Hillshade, slope and contours of a map, as other programs read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.apps.export import export_map
from gpgmap_ros.io.contours import contour_interval
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import write_map_npz
from gpgmap_ros.mapping import GPGMap

rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed: run `make setup-dev`")
SLOPE = 0.5


@pytest.fixture
def plane(tmp_path: Path) -> Path:
    """Ground that rises towards the east, with a hole."""
    grid = Grid((100.0, 200.0), (30, 40), 0.5)
    heights = np.tile(SLOPE * (grid.x - 100.0), (30, 1))
    heights[10:14, 20:24] = np.nan
    known = np.isfinite(heights)
    layers = {"elevation": heights, "gradient_x": np.where(known, SLOPE, np.nan)}
    layers["gradient_y"] = np.where(known, 0.0, np.nan)
    layers |= {
        name: np.full(grid.shape, 1e-4) for name in ("variance", "gradient_x_variance", "gradient_y_variance")
    }
    made = GPGMap(grid, {name: layer.astype(np.float32) for name, layer in layers.items()}, "survey")
    write_map_npz(tmp_path / "map.npz", made, Crs(32611))
    return tmp_path / "map.npz"


def test_contours_have_their_heights_and_leave_holes_open(plane: Path, tmp_path: Path) -> None:
    (path,) = export_map(str(plane), ["contours"], tmp_path / "out")
    content = json.loads(path.read_text())
    levels = [feature["properties"]["elevation"] for feature in content["features"]]
    assert sorted(set(levels)) == pytest.approx(np.arange(0.5, 10.0, 0.5))
    for feature in content["features"]:
        level, line = feature["properties"]["elevation"], np.array(feature["geometry"]["coordinates"])
        assert line[:, 0] == pytest.approx(100.0 + level / SLOPE, abs=2e-3), "along the ground of that height"
        assert feature["properties"]["index"] == (round(level / 0.5) % 5 == 0)
        inside = (line[:, 0] > 110.3) & (line[:, 0] < 111.7) & (line[:, 1] > 205.3) & (line[:, 1] < 206.7)
        assert not inside.any(), "nothing is drawn where nothing is known"


def test_slope_and_hillshade_are_rasters(plane: Path, tmp_path: Path) -> None:
    slope, shade = export_map(str(plane), ["slope", "hillshade"], tmp_path / "out")
    with rasterio.open(slope) as file:
        values = file.read(1)
        assert file.units == ("degree",)
    assert np.nanmedian(values) == pytest.approx(np.degrees(np.arctan(SLOPE)), abs=1e-3)
    assert np.isnan(values).sum() == 16
    with rasterio.open(shade) as file:
        light = file.read(1)
    assert np.isnan(light).sum() == 16
    assert 0.0 < np.nanmin(light) <= np.nanmax(light) <= 1.0


def test_intervals_are_round() -> None:
    assert contour_interval(np.array([0.0, 130.0], dtype=np.float32)) == 10.0
    assert contour_interval(np.array([250.0, 250.9], dtype=np.float32)) == 0.05
    assert contour_interval(np.array([1.0, 1.0], dtype=np.float32)) == 0.001
