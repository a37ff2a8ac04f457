"""Surveys in COPC files: each task reads the nodes of one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("laspy", reason="laspy is not installed")
pytest.importorskip("lazrs", reason="lazrs is not installed")

from copc_file import write_copc
from survey_case import hills, map_files, request_of

from gpgmap_ros.apps.survey_files import SurveyRequest, prepare
from gpgmap_ros.apps.survey_runner import LocalRunner
from gpgmap_ros.config import Config
from gpgmap_ros.io.points import Window, open_points


def test_the_map_is_that_of_the_same_points_in_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpgmap_ros.io.points.decoder.GROUP_POINTS", 1200)
    xyz = hills(4000, (0.0, 0.0), 2).round(3)
    write_copc(tmp_path / "tile.copc.laz", xyz)
    np.savez(tmp_path / "tile.npz", xyz=xyz)
    (file,) = prepare(request_of([tmp_path / "tile.copc.laz"]), LocalRunner()).files
    parts = file.parts(None)
    assert [part.group for part in parts] == list(range(len(parts)))
    assert len(parts) > 3
    window = Window((5.0, 0.0, 80.0, 90.0))
    for options in ({}, {"window": window}):
        copc, array = tmp_path / f"copc{len(options)}", tmp_path / f"array{len(options)}"
        one = map_files([tmp_path / "tile.copc.laz"], copc, **options)
        other = map_files([tmp_path / "tile.npz"], array, **options)
        assert one["points"]["used"] == other["points"]["used"]
        with np.load(copc / "map.npz") as a, np.load(array / "map.npz") as b:
            assert np.array_equal(np.isfinite(a["elevation"]), np.isfinite(b["elevation"]))
            assert np.nanmax(np.abs(a["elevation"] - b["elevation"])) < 5e-3


def test_the_plan_of_a_window_hardly_depends_on_how_much_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large files the sample has coarse levels and a few places: the same cells, and the same noise."""
    monkeypatch.setattr("gpgmap_ros.apps.survey_files.SAMPLE", 10_000)
    write_copc(tmp_path / "tile.copc.laz", hills(100_000, (0.0, 0.0), 2).round(3), 5)
    files, window = (tmp_path / "tile.copc.laz",), Window((10.0, 5.0, 90.0, 95.0))
    request = SurveyRequest(files, Config(), window=window)
    exact = prepare(request, LocalRunner()).plan
    monkeypatch.setattr("gpgmap_ros.apps.survey_files.WHOLE_BYTES", 0)
    few = prepare(request, LocalRunner()).plan
    assert exact.density == pytest.approx(10.0, rel=0.1)
    assert few.density == pytest.approx(10.0, rel=0.2)
    assert few.config.mapping.resolution == exact.config.mapping.resolution == 0.5
    assert few.config.noise.height_std == pytest.approx(exact.config.noise.height_std, rel=0.4)
    assert few.points == pytest.approx(72_000, rel=0.1)


def test_files_of_unknown_length_are_sampled_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In many pieces, of which each lies elsewhere: the last ones count no more than the first."""
    monkeypatch.setattr("gpgmap_ros.io.points.source.PIECE", 1000)
    xyz = hills(40_000, (0.0, 0.0), 2)
    np.savez(tmp_path / "tile.npz", xyz=xyz[xyz[:, 0].argsort()])
    sample = open_points(tmp_path / "tile.npz", window=Window((0.0, 0.0, 100.0, 100.0))).sample(2000)
    shares = np.histogram(sample[:, 0], bins=5, range=(0.0, 100.0))[0] / len(sample)
    assert 2000 <= len(sample) <= 4000
    np.testing.assert_allclose(shares, 0.2, atol=0.05)


def test_the_density_of_a_window_is_that_of_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many points there are only reading tells; the sample keeps few of them."""
    monkeypatch.setattr("gpgmap_ros.apps.survey_files.SAMPLE", 2000)
    np.savez(tmp_path / "tile.npz", xyz=hills(40_000, (0.0, 0.0), 2))
    request = request_of([tmp_path / "tile.npz"], window=Window((0.0, 0.0, 100.0, 50.0)))
    assert prepare(request, LocalRunner()).plan.density == pytest.approx(4.0, rel=0.15)
