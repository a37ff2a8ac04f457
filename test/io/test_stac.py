"""The STAC item of a map: what the standard asks of one, and where it says the map lies."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.stac import Asset, write_item

GRID = Grid((500_000.0, 5_400_000.0), (300, 200), 0.5)
REQUIRED = ("type", "stac_version", "id", "geometry", "properties", "links", "assets")


def item_of(folder: Path, crs: Crs, grid: Grid = GRID) -> dict[str, Any]:
    assets = {
        "slope": Asset(folder / "layers" / "slope.tif", grid, "angle", "rad"),
        "elevation": Asset(folder / "layers" / "elevation.vrt", grid, "height", "m"),
    }
    write_item(folder / "item.json", "survey", grid, crs, assets, 86_400.0)
    return dict(json.loads((folder / "item.json").read_text()))


def test_an_item_has_what_the_standard_asks_for(tmp_path: Path) -> None:
    item = item_of(tmp_path, Crs(32632))
    assert not [name for name in REQUIRED if name not in item]
    assert (item["type"], item["stac_version"], item["id"]) == ("Feature", "1.0.0", "survey")
    assert item["properties"]["datetime"] == "1970-01-02T00:00:00Z"
    assert item["properties"]["proj:epsg"] == 32632
    assert item["properties"]["proj:shape"] == [300, 200]
    assert item["properties"]["proj:transform"] == [0.5, 0.0, 500_000.0, 0.0, -0.5, 5_400_150.0]
    assert item["assets"]["slope"]["href"] == "./layers/slope.tif"
    assert "profile=cloud-optimized" in item["assets"]["slope"]["type"]
    assert item["assets"]["slope"]["raster:bands"][0]["unit"] == "rad"
    assert "vrt" in item["assets"]["elevation"]["type"]


def test_it_lies_where_the_coordinate_system_says(tmp_path: Path) -> None:
    pytest.importorskip("pyproj")
    item = item_of(tmp_path, Crs(32632))
    west, south, east, north = item["bbox"]
    assert west == pytest.approx(9.0, abs=1e-6), "the middle of zone 32"
    # a degree of latitude is 111.2 km there, one of longitude 73.2 km
    assert (east - west) * 73_240.0 == pytest.approx(100.0, rel=0.01)
    assert (north - south) * 111_200.0 == pytest.approx(150.0, rel=0.01)
    ring = np.array(item["geometry"]["coordinates"][0])
    assert (ring[0] == ring[-1]).all()
    x, y = ring.T
    assert np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) > 0.0, "counter-clockwise, as GeoJSON asks"
    assert [west, south] == pytest.approx(ring.min(axis=0))


def test_well_known_text_places_a_map_without_a_code(tmp_path: Path) -> None:
    pyproj = pytest.importorskip("pyproj")
    item = item_of(tmp_path, Crs(wkt=pyproj.CRS.from_epsg(32632).to_wkt()))
    assert item["bbox"][0] == pytest.approx(9.0, abs=1e-6)
    assert item["properties"]["proj:epsg"] is None


@pytest.mark.parametrize(
    ("crs", "east"),
    [
        pytest.param(Crs(name="local frame 'odom'"), 0.0, id="no system"),
        pytest.param(Crs(wkt="no text that is well known"), 0.0, id="a text that is none"),
        pytest.param(Crs(32601), 166_000.0, id="across the date line"),
    ],
)
def test_a_map_that_has_no_place_in_degrees_says_so(tmp_path: Path, crs: Crs, east: float) -> None:
    item = item_of(tmp_path, crs, Grid((east - 50_000.0, 0.0), (1000, 1000), 100.0))
    assert item["geometry"] is None
    assert "bbox" not in item


def test_without_pyproj_there_is_an_item_without_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyproj"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert item_of(tmp_path, Crs(32632))["geometry"] is None
