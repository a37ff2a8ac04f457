"""Our GeoTIFFs, read by GDAL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io import geotiff
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter, write_geotiff

rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed: run `make setup-dev`")


def layer(rows: int, columns: int) -> np.ndarray:
    values = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
    values[: rows // 3, : columns // 2] = np.nan
    return values


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (256, 256), (257, 513), (600, 40)])
@pytest.mark.parametrize("big", [False, True])
def test_every_cell_is_where_it_belongs(tmp_path: Path, monkeypatch, shape, big) -> None:
    if big:
        monkeypatch.setattr(geotiff, "BIG", 0)
    values = layer(*shape)
    write_geotiff(tmp_path / "a.tif", values, (100.0, -20.0), 0.25, Crs(32611), "elevation", "m")
    assert (tmp_path / "a.tif").read_bytes()[2] == (43 if big else 42)
    with rasterio.open(tmp_path / "a.tif") as file:
        assert np.array_equal(file.read(1), values[::-1], equal_nan=True), "row 0 is the north"
        assert file.crs.to_epsg() == 32611
        assert file.bounds.left == 100.0
        assert file.bounds.bottom == pytest.approx(-20.0)
        assert file.xy(shape[0] - 1, 0) == pytest.approx((100.125, -19.875)), "the centre of cell (0, 0)"
        assert file.units == ("m",)


def test_a_local_frame_has_its_name_and_metres(tmp_path: Path) -> None:
    write_geotiff(tmp_path / "a.tif", layer(5, 5), (0.0, 0.0), 0.1, Crs(name="local frame 'odom'"))
    with rasterio.open(tmp_path / "a.tif") as file:
        text = file.crs.to_wkt()
    assert "local frame 'odom'" in text
    assert 'UNIT["metre",1' in text


def test_keys_of_another_file_are_copied(tmp_path: Path) -> None:
    # a transverse Mercator of one's own on NAD83, as survey files have it
    text = "own projection|"
    keys = (1, 1, 0, 4, 1024, 0, 1, 1, 1026, 34737, len(text), 0, 3072, 0, 1, 26911, 3076, 0, 1, 9001)
    write_geotiff(tmp_path / "a.tif", layer(5, 5), (5e5, 4e6), 1.0, Crs(keys=(keys, (), text)))
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.crs.to_epsg() == 26911
        assert file.tags()["AREA_OR_POINT"] == "Area"


def test_tiles_may_come_in_any_order_and_some_not_at_all(tmp_path: Path) -> None:
    values = layer(2 * TILE, 3 * TILE)
    image = values[::-1]
    with GeoTiffWriter(tmp_path / "a.tif", values.shape, (0.0, 2 * TILE), 1.0) as writer:
        for row, column in ((1, 2), (0, 0), (1, 0)):
            y, x = row * TILE, column * TILE
            writer.write_tile(row, column, image[y : y + TILE, x : x + TILE])
    with rasterio.open(tmp_path / "a.tif") as file:
        read = file.read(1)
    assert np.array_equal(read[TILE:, 2 * TILE :], image[TILE:, 2 * TILE :], equal_nan=True)
    assert np.isnan(read[:TILE, TILE : 2 * TILE]).all()


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_text("the old one")
    with pytest.raises(RuntimeError, match="disk"), GeoTiffWriter(tmp_path / "a.tif", (9, 9), (0, 0), 1.0):
        raise RuntimeError("disk full")
    assert (tmp_path / "a.tif").read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]
