"""Our own GeoTIFFs, read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io import geotiff
from gpgmap_ros.io.geotiff import Crs, write_geotiff
from gpgmap_ros.io.geotiff_reader import GeoTiffReader
from gpgmap_ros.io.map_products import MapError


def write(path: Path, crs: Crs) -> np.ndarray:
    layer = np.random.default_rng(0).normal(size=(300, 520)).astype(np.float32)
    layer[:50, :260] = np.nan
    write_geotiff(path, layer, (100.0, 200.0), 0.5, crs, "elevation", "m")
    return layer


@pytest.mark.parametrize("big", [False, True])
def test_a_layer_comes_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, big: bool) -> None:
    if big:
        monkeypatch.setattr(geotiff, "BIG", 0)
    layer = write(tmp_path / "a.tif", Crs(32611))
    with GeoTiffReader(tmp_path / "a.tif") as reader:
        assert (reader.shape, reader.corner, reader.resolution) == ((300, 520), (100.0, 350.0), 0.5)
        assert reader.crs.epsg == 32611
        np.testing.assert_array_equal(reader.read(), layer[::-1])
        assert reader.read_tile(1, 2).shape == (44, 8)


def test_files_without_a_predictor_are_read_as_well(tmp_path: Path) -> None:
    """Maps of earlier versions have none."""
    rasterio = pytest.importorskip("rasterio")
    write(tmp_path / "a.tif", Crs(32611))
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.tags(ns="IMAGE_STRUCTURE")["PREDICTOR"] == "3"
        profile, image = {**file.profile, "predictor": 1}, file.read(1)
    with rasterio.open(tmp_path / "plain.tif", "w", **profile) as file:
        file.write(image, 1)
    with GeoTiffReader(tmp_path / "plain.tif") as reader:
        np.testing.assert_array_equal(reader.read(), image)


def test_a_local_frame_has_no_code(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", Crs(name="local frame 'odom'"))
    with GeoTiffReader(tmp_path / "a.tif") as reader:
        assert reader.crs.epsg == 0


@pytest.mark.parametrize("kept", [0, 3, 12, 200])
def test_what_is_not_such_a_file_is_named(tmp_path: Path, kept: int) -> None:
    write(tmp_path / "a.tif", Crs(32611))
    (tmp_path / "cut.tif").write_bytes((tmp_path / "a.tif").read_bytes()[:kept])
    with pytest.raises(MapError, match=r"cut\.tif: not a GeoTIFF of a map"):
        GeoTiffReader(tmp_path / "cut.tif")


def test_a_damaged_tile_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", Crs(32611))
    content = bytearray((tmp_path / "a.tif").read_bytes())
    (tmp_path / "a.tif").write_bytes(content[: len(content) - 1000])
    with GeoTiffReader(tmp_path / "a.tif") as reader, pytest.raises(MapError, match="damaged in tile"):
        reader.read()
