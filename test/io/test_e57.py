"""E57 files: all scans, each in its pose; without pye57 the message names the extra."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.io.points import PointFileError, open_points


def test_without_pye57_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scan.e57").write_bytes(b"ASTM-E57")
    monkeypatch.setitem(sys.modules, "pye57", None)
    with pytest.raises(PointFileError, match=r"scan\.e57: .*pip install 'gpgmap_ros\[e57\]'"):
        open_points(tmp_path / "scan.e57")


def test_scans_are_put_together_by_their_poses(tmp_path: Path) -> None:
    pye57 = pytest.importorskip("pye57", reason="pye57 is not installed: pip install '.[e57]'")
    rng = np.random.default_rng(0)
    points = rng.uniform(-5.0, 5.0, (2, 500, 3))
    turn = np.array([np.cos(0.3), 0.0, 0.0, np.sin(0.3)])  # about z by 0.6
    shift = np.array([10.0, -3.0, 2.0])
    file = pye57.E57(str(tmp_path / "two.e57"), mode="w")
    for own in points:
        data = {f"cartesian{axis}": own[:, k] for k, axis in enumerate("XYZ")}
        file.write_scan_raw(data, rotation=turn, translation=shift)
    file.close()
    source = open_points(tmp_path / "two.e57")
    assert source.count == 1000
    c, s = np.cos(0.6), np.sin(0.6)
    expected = points.reshape(-1, 3) @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]) + shift
    np.testing.assert_allclose(np.concatenate(list(source.pieces())), expected, atol=1e-6)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pye57", reason="pye57 is not installed: pip install '.[e57]'")
    (tmp_path / "bad.e57").write_bytes(b"ASTM-E57" + bytes(100))
    with pytest.raises(PointFileError, match=r"bad\.e57: cannot be read: it is no E57 file, or damaged"):
        open_points(tmp_path / "bad.e57")
