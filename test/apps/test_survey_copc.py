"""Surveys in COPC files: each task reads the nodes of one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("laspy", reason="laspy is not installed")
pytest.importorskip("lazrs", reason="lazrs is not installed")

from copc_file import write_copc
from survey_case import hills, map_files, request_of

from gpgmap_ros.apps.survey_files import prepare
from gpgmap_ros.apps.survey_runner import LocalRunner
from gpgmap_ros.io.points import Window


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


def test_the_density_of_a_window_is_that_of_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many points there are only reading tells; the sample keeps few of them."""
    monkeypatch.setattr("gpgmap_ros.apps.survey_files.SAMPLE", 2000)
    np.savez(tmp_path / "tile.npz", xyz=hills(40_000, (0.0, 0.0), 2))
    request = request_of([tmp_path / "tile.npz"], window=Window((0.0, 0.0, 100.0, 50.0)))
    assert prepare(request, LocalRunner()).plan.density == pytest.approx(4.0, rel=0.15)
