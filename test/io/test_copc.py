"""COPC files: whole as any LAZ, or only the nodes of a window and a level."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("laspy", reason="laspy is not installed")
pytest.importorskip("lazrs", reason="lazrs is not installed")

from copc_file import write_copc

from gpgmap_ros.io.points import PointFileError, Window, open_points
from gpgmap_ros.io.points.decoder import decoder

SIDE = 64.0


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    rng = np.random.default_rng(2)
    xy = rng.uniform(0.0, SIDE, (6000, 2))
    return np.column_stack([xy + 1000.0, 0.1 * xy[:, 0] + 5.0]).round(3)


@pytest.fixture(scope="module")
def copc(points: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("copc") / "tile.copc.laz"
    return path, write_copc(path, points)


def read(path: Path, window: Window) -> np.ndarray:
    return np.concatenate(list(open_points(path, window=window).pieces()))


def same_points(one: np.ndarray, other: np.ndarray) -> None:
    assert len(one) == len(other)
    np.testing.assert_allclose(one[np.lexsort(one.T)], other[np.lexsort(other.T)], atol=2e-3)


def test_the_whole_file_is_read_as_any_other(copc: tuple[Path, dict], points: np.ndarray) -> None:
    same_points(read(copc[0], Window()), points)


def test_a_window_holds_its_points_and_only_its_nodes_are_decoded(
    copc: tuple[Path, dict], points: np.ndarray
) -> None:
    box = (1002.0, 1003.0, 1012.5, 1010.0)
    inside = ((points[:, :2] >= box[:2]) & (points[:, :2] <= box[2:])).all(axis=1)
    same_points(read(copc[0], Window(box)), points[inside])
    decoded = sum(len(piece) for piece in decoder.nodes(copc[0], None, box, None))
    assert inside.sum() <= decoded < 0.6 * len(points)


def test_a_level_holds_the_points_of_the_nodes_down_to_it(copc: tuple[Path, dict]) -> None:
    path, nodes = copc
    half = SIDE / 2.0 + 0.5
    for depth in range(3):
        spacing = 1.01 * 2.0 * half / 32.0 / 2**depth
        expected = np.concatenate([own for key, own in nodes.items() if key[0] <= depth])
        same_points(read(path, Window(None, spacing)), expected)


def test_a_window_of_other_files_is_cut_out(points: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "points.npz", xyz=points)
    box = (1010.0, 1010.0, 1020.0, 1030.0)
    inside = ((points[:, :2] >= box[:2]) & (points[:, :2] <= box[2:])).all(axis=1)
    same_points(read(tmp_path / "points.npz", Window(box)), points[inside])


def test_a_node_that_can_not_hold_its_points_is_refused(copc: tuple[Path, dict], tmp_path: Path) -> None:
    data = bytearray(copc[0].read_bytes())
    data[-4:] = (2_000_000_000).to_bytes(4, "little")  # points of the last node
    (tmp_path / "bad.copc.laz").write_bytes(data)
    with pytest.raises(
        PointFileError, match=r"bad\.copc\.laz: cannot be read: a node says 2,000,000,000 points"
    ):
        read(tmp_path / "bad.copc.laz", Window((1000.0, 1000.0, 1064.0, 1064.0)))


def test_a_large_file_is_read_in_parts_by_place(
    copc: tuple[Path, dict], points: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node is in one part; all but the few points of wide nodes are read with those around them."""
    monkeypatch.setattr("gpgmap_ros.io.points.decoder.GROUP_POINTS", 1300)
    source = open_points(copc[0])
    parts = [np.concatenate(list(source.pieces(group=group))) for group in range(source.groups)]
    same_points(np.concatenate(parts), points)
    assert max(len(part) for part in parts) <= 1300
    wide = [part for part in parts if np.ptp(part[:, :2], axis=0).max() > 0.6 * SIDE]
    assert sum(map(len, wide)) < 0.2 * len(points)
    assert len(parts) == len(wide) + 4


def test_parts_of_a_window_hold_its_points(
    copc: tuple[Path, dict], points: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpgmap_ros.io.points.decoder.GROUP_POINTS", 300)
    box = (1002.0, 1003.0, 1042.5, 1030.0)
    source = open_points(copc[0], window=Window(box))
    assert source.groups > 3
    inside = ((points[:, :2] >= box[:2]) & (points[:, :2] <= box[2:])).all(axis=1)
    same_points(
        np.concatenate([piece for group in range(source.groups) for piece in source.pieces(group=group)]),
        points[inside],
    )
    source.sample(500)
    assert source.seen == inside.sum()


def test_a_sample_has_the_coarse_levels_and_most_points_of_a_few_places(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    xy = rng.uniform(0.0, SIDE, (60_000, 2))
    points = np.column_stack([xy + 1000.0, 0.1 * xy[:, 0] + 5.0]).round(3)
    write_copc(tmp_path / "tile.copc.laz", points, levels=5)
    box = (1004.0, 1006.0, 1050.0, 1061.0)
    inside = ((points[:, :2] >= box[:2]) & (points[:, :2] <= box[2:])).all(axis=1)
    found = decoder.sample(tmp_path / "tile.copc.laz", None, box, None, 4000)
    coarse, dense = np.concatenate(found.coarse), np.concatenate(found.dense)
    assert len(coarse) + len(dense) < 0.5 * inside.sum(), "the rest is not decoded"
    source = open_points(tmp_path / "tile.copc.laz", window=Window(box))
    sample, places = source.sample_places(4000)
    for part in (sample, places):
        assert ((part[:, :2] >= box[:2]) & (part[:, :2] <= box[2:])).all()
    assert source.seen == pytest.approx(inside.sum(), rel=0.1)
    quarters = np.histogram2d(*places[:, :2].T, bins=2, range=[(1004.0, 1050.0), (1006.0, 1061.0)])[0]
    assert quarters.min() > 0.2 * len(places), "all over the box"
    everywhere = np.unique(np.floor(points[inside, :2]), axis=0, return_counts=True)[1]
    seen = np.unique(np.floor(sample[:, :2]), axis=0, return_counts=True)[1]
    assert len(places) < len(sample)
    assert np.sort(seen)[-40] >= 0.5 * np.median(everywhere), "some places are as dense as the file"


def test_a_sample_of_a_damaged_file_names_it(copc: tuple[Path, dict], tmp_path: Path) -> None:
    data = bytearray(copc[0].read_bytes())
    data[-4:] = (2_000_000_000).to_bytes(4, "little")  # points of the last node
    (tmp_path / "bad.copc.laz").write_bytes(data)
    with pytest.raises(PointFileError, match=r"bad\.copc\.laz: cannot be read: a node says 2,000,000,000"):
        open_points(tmp_path / "bad.copc.laz", window=Window((1000.0, 1000.0, 1064.0, 1064.0))).sample_places(
            50
        )


def test_a_box_without_coarse_points_is_sampled_whole(copc: tuple[Path, dict], points: np.ndarray) -> None:
    """Around a single point, of the finest level."""
    middle = next(own for key, own in copc[1].items() if key[0] == 2)[0, :2]
    box = (*(middle - 0.02), *(middle + 0.02))
    inside = ((points[:, :2] >= box[:2]) & (points[:, :2] <= box[2:])).all(axis=1)
    sample, places = open_points(copc[0], window=Window(box)).sample_places(0)
    same_points(sample, points[inside])
    assert len(places) >= 1
