"""Our GeoTIFFs, read by GDAL."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.io import geotiff
from gpgmap_ros.io.geotiff import TILE, Crs, GeoTiffWriter, write_geotiff
from gpgmap_ros.io.vrt import Source, write_vrt

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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("big", [False, True])
def test_overviews_are_means_of_what_is_known(tmp_path: Path, monkeypatch, big: bool) -> None:
    if big:
        monkeypatch.setattr(geotiff, "BIG", 0)
    values = layer(700, 1001)
    write_geotiff(tmp_path / "a.tif", values, (0.0, 0.0), 1.0, Crs(32611))
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.overviews(1) == [2, 4]
        assert file.profile["tiled"]
        assert np.isnan(file.nodata)
    image = np.full((700, 1002), np.nan)
    image[:, :1001] = values[::-1]
    squares = image.reshape(350, 2, 501, 2)
    known = np.isfinite(squares)
    count = known.sum(axis=(1, 3))
    means = np.where(known, squares, 0.0).sum(axis=(1, 3)) / np.maximum(count, 1)
    with rasterio.open(tmp_path / "a.tif", overview_level=0) as half:
        read = half.read(1)
    np.testing.assert_array_equal(np.isfinite(read), count > 0)
    np.testing.assert_allclose(read[count > 0], means[count > 0], atol=1e-5)


def test_the_file_is_laid_out_for_reading_from_afar(tmp_path: Path) -> None:
    """Directories at the beginning, then overviews from the smallest, then the layer."""
    write_geotiff(tmp_path / "a.tif", layer(1100, 900), (0.0, 0.0), 1.0, Crs(32611))
    data = (tmp_path / "a.tif").read_bytes()
    at, tiles, ends = int.from_bytes(data[4:8], "little"), [], []
    assert at == 8
    while at:
        count = int.from_bytes(data[at : at + 2], "little")
        entries = {
            int.from_bytes(data[k : k + 2], "little"): int.from_bytes(data[k + 8 : k + 12], "little")
            for k in range(at + 2, at + 2 + 12 * count, 12)
        }
        where = entries[324]
        number = (-(-entries[256] // TILE)) * (-(-entries[257] // TILE))
        tiles.append(
            [where] if number == 1 else np.frombuffer(data[where : where + 4 * number], dtype="<u4").tolist()
        )
        ends.append(at)
        at = int.from_bytes(data[at + 2 + 12 * count :][:4], "little")
    assert [len(level) for level in tiles] == [20, 6, 2, 1]
    assert max(ends) < min(min(level) for level in tiles)
    for larger, smaller in itertools.pairwise(tiles):
        assert min(larger) > max(smaller)


@pytest.mark.filterwarnings("error")
def test_a_virtual_raster_shows_its_sheets_as_one(tmp_path: Path) -> None:
    values = layer(300, 500)
    (tmp_path / "parts").mkdir()
    sources = []
    for name, rows, columns in (("a", slice(100, 300), slice(0, 256)), ("b", slice(0, 100), slice(256, 500))):
        part = values[rows, columns]
        path = tmp_path / "parts" / f"{name} & co.tif"
        write_geotiff(path, part, (10.0 + columns.start, 20.0 + rows.start), 1.0, Crs(32611))
        sources.append(Source(path, 300 - rows.stop, columns.start, part.shape))
    write_vrt(
        tmp_path / "all.vrt", Grid((10.0, 20.0), (300, 500), 1.0), Crs(32611), sources, "elevation", "m"
    )
    expected = np.full(values.shape, np.nan, dtype=np.float32)
    expected[100:300, :256], expected[:100, 256:] = values[100:300, :256], values[:100, 256:]
    with rasterio.open(tmp_path / "all.vrt") as file:
        assert np.array_equal(file.read(1), expected[::-1], equal_nan=True)
        assert file.crs.to_epsg() == 32611
        assert file.bounds[:2] == (10.0, 20.0)
        assert (file.units, file.descriptions) == (("m",), ("elevation",))
