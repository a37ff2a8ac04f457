"""Submaps: where they end, which frame they stand in, and what is on the disk."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.config import Config, ConfigError, FilterConfig, MappingConfig, SubmapConfig
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import ArchiveError, SubmapStore
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.submaps import (
    SubmapBuilder,
    align_with_gravity,
    crop_to_disc,
    crop_to_known,
    submap_mapping,
    yaw_of,
)
from gpgmap_ros.slam.mapping_pipeline import EndedSubmap, MappingPipeline

CONFIG = Config(
    mapping=MappingConfig(resolution=0.2, size_x=4.0, size_y=4.0, length_scale=0.8, relief_std=0.5),
    filter=FilterConfig(min_range=0.2, max_range=20.0),
    submap=SubmapConfig(enabled=True, size=6.0, resolution=0.2, length_scale=0.8, max_distance=1.0),
)
VARIANCE = 0.02**2


def test_submaps_are_coarser_than_the_map_and_never_finer() -> None:
    own = submap_mapping(Config())
    assert (own.size_x, own.size_y) == (60.0, 60.0)
    assert (own.resolution, own.length_scale) == (0.3, 1.0)
    assert Config().mapping.resolution == 0.1  # that of the map around the robot is its own
    assert submap_mapping(Config(mapping=MappingConfig(kernel="matern32"))) == own  # loop closures rely on it
    coarse = Config(mapping=MappingConfig(resolution=0.5, length_scale=2.0))
    assert (submap_mapping(coarse).resolution, submap_mapping(coarse).length_scale) == (0.5, 2.0)
    builder = SubmapBuilder(Config(), np.eye(4), 0, 0)
    xy = np.random.default_rng(0).uniform(-3.0, 3.0, (2000, 2))
    builder.add(np.column_stack([xy, ground(*xy.T)]), np.full(2000, VARIANCE), np.eye(4), 1)
    submap = builder.finish(0, "request")
    assert submap is not None
    assert submap.gpgmap.grid.resolution == 0.3


def test_a_submap_smaller_than_its_cells_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"submap\.size \(0\.2 m\) is smaller than one of its cells \(0\.3 m\)"
    ):
        Config(submap=SubmapConfig(size=0.2))
    Config(submap=SubmapConfig(enabled=False, size=0.2))


def pose(x: float, y: float, yaw: float, z: float = 1.0, pitch: float = 0.0) -> np.ndarray:
    T = np.eye(4)
    c, s = math.cos(yaw), math.sin(yaw)
    T[:3, :3] = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array(
        [[math.cos(pitch), 0, math.sin(pitch)], [0, 1, 0], [-math.sin(pitch), 0, math.cos(pitch)]]
    )
    T[:3, 3] = [x, y, z]
    return T


def ground(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.2 * np.sin(0.9 * x) + 0.1 * y


def ground_points(T_map_robot: np.ndarray, seed: int, count: int = 1500) -> np.ndarray:
    xy = np.random.default_rng(seed).uniform(-2.0, 2.0, (count, 2)) + T_map_robot[:2, 3]
    return np.column_stack([xy, ground(*xy.T)])


def test_the_anchor_keeps_place_and_heading_and_stands_upright() -> None:
    T = pose(3.0, -2.0, 2.5, z=7.0, pitch=0.4)
    np.testing.assert_allclose(align_with_gravity(T), pose(3.0, -2.0, 2.5, z=7.0), atol=1e-12)
    assert np.linalg.det(align_with_gravity(T)[:3, :3]) == pytest.approx(1.0)
    assert yaw_of(pose(0.0, 0.0, -3.1)) == pytest.approx(-3.1)
    upright = pose(0.0, 0.0, 0.7, pitch=-math.pi / 2)  # x looks up, y still says where left is
    assert yaw_of(upright) == pytest.approx(0.7)


def test_a_submap_is_the_terrain_in_its_own_frame() -> None:
    start = pose(50.0, 20.0, 2.0, z=5.0, pitch=0.2)
    builder = SubmapBuilder(CONFIG, start, stamp=10, session=4)
    for k in range(2):
        here = pose(50.0 + 0.2 * k, 20.0, 2.0, z=5.0)
        points = ground_points(here, k, 4000)
        builder.add(points, np.full(len(points), VARIANCE), here, stamp=10 + k)
    submap = builder.finish(3, "request")
    assert submap is not None
    assert (submap.id, submap.session, submap.first_stamp, submap.last_stamp) == (3, 4, 10, 11)
    assert submap.distance == pytest.approx(0.2)
    assert submap.gpgmap.frame_id == "submap_3"
    x, y = np.meshgrid(submap.gpgmap.grid.x, submap.gpgmap.grid.y)
    elevation = submap.gpgmap["elevation"]
    known = np.isfinite(elevation)
    cells = np.column_stack([x[known], y[known], elevation[known]])
    in_map = apply(submap.T_map_submap, cells)
    inner = (np.abs(in_map[:, :2] - [50.0, 20.0]) < 1.8).all(axis=1)
    assert inner.sum() > 200
    np.testing.assert_allclose(in_map[inner, 2], ground(*in_map[inner, :2].T), atol=0.03)


@pytest.mark.parametrize(
    ("limits", "poses", "expected"),
    [
        ({"max_distance": 1.0}, [(0, 0, 0), (0.6, 0, 0), (0.6, 0.3, 0)], [None, None, None]),
        ({"max_distance": 1.0}, [(0, 0, 0), (0.6, 0, 0), (0.1, 0, 0)], [None, None, "distance"]),
        ({"max_distance": 0.0, "max_angle": 1.0}, [(0, 0, 3.0), (0, 0, -2.8)], [None, None]),
        (
            {"max_distance": 0.0, "max_angle": 1.0},
            [(0, 0, 0), (0, 0, 0.6), (0, 0, 0.1)],
            [None, None, "angle"],
        ),
        (
            {"max_distance": 0.0},
            [(0, 0, 0), (2.9, 0, 3), (0, 2.9, 0), (0, 3.1, 0)],
            [None, None, None, "extent"],
        ),
        ({"max_distance": 0.0, "max_area": 18.0}, [(0, 0, 0), (1, 0, 0)], [None, "area"]),
    ],
)
def test_the_first_limit_reached_ends_it(
    limits: dict[str, float], poses: list[tuple[float, float, float]], expected: list[str | None]
) -> None:
    config = dataclasses.replace(
        CONFIG, submap=SubmapConfig(size=6.0, resolution=0.2, length_scale=0.8, **limits)
    )
    builder = SubmapBuilder(config, pose(*poses[0]), 0, 0)
    found = []
    for k, (x, y, yaw) in enumerate(poses):
        points = ground_points(pose(x, y, yaw), k)
        builder.add(points, np.full(len(points), VARIANCE), pose(x, y, yaw), k)
        found.append(builder.ended_by())
    assert found == expected


def test_the_area_is_that_of_the_cells_seen() -> None:
    config = dataclasses.replace(CONFIG, submap=dataclasses.replace(CONFIG.submap, max_area=1.0))
    builder = SubmapBuilder(config, pose(0, 0, 0), 0, 0)
    points = np.array([[0.1, 0.1, 0.0], [0.15, 0.1, 0.0], [0.3, 0.1, 0.0], [99.0, 0.0, 0.0]])
    builder.add(points, np.full(4, VARIANCE), pose(0, 0, 0), 0)
    assert builder.area == pytest.approx(2 * 0.2**2)


def test_a_submap_in_which_nothing_is_known_is_none() -> None:
    assert SubmapBuilder(CONFIG, pose(0, 0, 0), 0, 0).finish(0, "request") is None


def test_cropping_keeps_every_known_cell_where_it_is() -> None:
    builder = SubmapBuilder(CONFIG, pose(0, 0, 0), 0, 0)
    points = ground_points(pose(0.6, -0.4, 0), 0)
    builder.add(points, np.full(len(points), VARIANCE), pose(0, 0, 0), 0)
    whole = builder._map.gpgmap()
    part = crop_to_known(whole)
    assert part is not None
    assert part.known.sum() == whole.known.sum()
    assert part.grid.shape < whole.grid.shape
    iy, ix = (
        int(np.argmin(np.abs(axis - value))) for axis, value in ((whole.grid.y, -0.3), (whole.grid.x, 0.5))
    )
    jy, jx = (
        int(np.argmin(np.abs(axis - value))) for axis, value in ((part.grid.y, -0.3), (part.grid.x, 0.5))
    )
    np.testing.assert_allclose([part.grid.x[jx], part.grid.y[jy]], [whole.grid.x[ix], whole.grid.y[iy]])
    assert part["elevation"][jy, jx] == whole["elevation"][iy, ix]


def test_a_disc_of_a_submap_has_its_cells_and_its_way() -> None:
    builder = SubmapBuilder(CONFIG, pose(0, 0, 0), 0, 0)
    for stamp, x in enumerate((0.0, 0.5, 1.0)):
        points = ground_points(pose(x, 0, 0), stamp)
        builder.add(points, np.full(len(points), VARIANCE), pose(x, 0, 0), stamp)
    submap = builder.finish(0, "request")
    assert submap is not None
    whole = submap.gpgmap
    part = crop_to_disc(whole, 1.0, 0.0, 0.6)
    assert part is not None
    inside = np.hypot(whole.grid.x[None, :] - 1.0, whole.grid.y[:, None]) <= 0.6
    assert part.known.sum() == (whole.known & inside).sum() > 0
    assert np.nansum(part["elevation"]) == pytest.approx(np.nansum(whole["elevation"][inside]), rel=1e-5)
    np.testing.assert_allclose(part.way[:, 0], [0.5, 1.0])
    assert crop_to_disc(whole, 100.0, 0.0, 1.0) is None


# ------------------------------------------------ the store


def driven(config: Config, steps: int, first_stamp: int = 100) -> tuple[MappingPipeline, list[int]]:
    """Half a metre per cloud; the numbers of the submaps that were finished on the way."""
    pipeline, finished = MappingPipeline(config), []
    for k in range(steps):
        here = pose(0.5 * k, 0.0, 0.0)
        cloud = apply(inverse(here), ground_points(here, k))
        report = pipeline.add_cloud(cloud, here, first_stamp + k)
        if report.submap is not None:
            finished.append(report.submap.id)
        assert report.submap_error == ""
    return pipeline, finished


def in_folder(tmp_path: Path) -> Config:
    return dataclasses.replace(CONFIG, map_folder=str(tmp_path / "maps"))


def test_finished_submaps_are_on_the_disk_and_come_back_as_they_were(tmp_path: Path) -> None:
    pipeline, finished = driven(in_folder(tmp_path), 6)
    assert finished == [0, 1]
    store = pipeline.submaps
    assert store is not None
    assert [info.id for info in store.infos()] == [0, 1]
    assert sorted(path.name for path in store.folder.iterdir()) == ["submap_000000.npz", "submap_000001.npz"]
    first, second = store.load(0), store.load(1)
    np.testing.assert_allclose(first.T_map_submap, pose(0.0, 0.0, 0.0))
    np.testing.assert_allclose(second.T_map_submap, pose(1.5, 0.0, 0.0))
    assert (first.first_stamp, first.last_stamp, first.session, first.ended_by) == (100, 102, 100, "distance")
    assert second.gpgmap.frame_id == "submap_1"
    assert second.gpgmap.stamp == 105
    assert second.gpgmap["traversability"].shape == second.gpgmap.grid.shape
    # the unfinished one is saved on request, once
    assert pipeline.finish_submap("shutdown") is None
    here = pose(3.0, 0.0, 0.0)
    pipeline.add_cloud(apply(inverse(here), ground_points(here, 9)), here, 200)
    last = pipeline.finish_submap("shutdown")
    assert last is not None
    loaded = store.load(2)
    assert loaded.ended_by == "shutdown"
    for name in BASE:
        np.testing.assert_array_equal(loaded.gpgmap[name], last.gpgmap[name])
    assert loaded.gpgmap.grid == last.gpgmap.grid


def test_a_new_run_counts_on_and_names_its_session(tmp_path: Path) -> None:
    driven(in_folder(tmp_path), 3)
    pipeline, finished = driven(in_folder(tmp_path), 3, first_stamp=900)
    assert finished == [1]
    assert pipeline.submaps is not None
    assert [(info.id, info.session) for info in pipeline.submaps.infos()] == [(0, 100), (1, 900)]


def test_the_store_remembers_no_layers(tmp_path: Path) -> None:
    pipeline, _ = driven(in_folder(tmp_path), 3)
    assert pipeline.submaps is not None
    for info in pipeline.submaps.infos():
        arrays = [value for value in vars(info).values() if isinstance(value, np.ndarray)]
        assert sum(array.size for array in arrays) == 16


def test_damaged_submaps_are_named_left_alone_and_never_loaded(tmp_path: Path) -> None:
    pipeline, _ = driven(in_folder(tmp_path), 6)
    assert pipeline.submaps is not None
    folder = pipeline.submaps.folder
    whole = (folder / "submap_000001.npz").read_bytes()
    (folder / "submap_000001.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ArchiveError, match="submap_000001"):
        pipeline.submaps.load(1)
    with pytest.raises(ArchiveError, match="no submap 7: there are 0 to 1"):
        pipeline.submaps.load(7)
    store = SubmapStore(folder, CONFIG)
    assert [info.id for info in store.infos()] == [0]
    assert list(store.damaged) == ["submap_000001.npz"]
    assert store.next_id == 2


def test_without_a_folder_submaps_are_only_handed_out() -> None:
    pipeline, finished = driven(CONFIG, 3)
    assert pipeline.submaps is None
    assert finished == [0]


def test_a_full_disk_does_not_end_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = MappingPipeline(in_folder(tmp_path))

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipeline.submaps, "add", full)
    for k in range(3):
        here = pose(0.5 * k, 0.0, 0.0)
        report = pipeline.add_cloud(apply(inverse(here), ground_points(here, k)), here, k)
    assert report.submap is not None
    assert "No space left on device" in report.submap_error
    assert report.used > 0


def test_ended_submaps_can_be_completed_elsewhere(tmp_path: Path) -> None:
    taken: list[EndedSubmap] = []
    pipeline = MappingPipeline(in_folder(tmp_path), taken.append)
    for k in range(7):
        here = pose(0.5 * k, 0.0, 0.0)
        report = pipeline.add_cloud(apply(inverse(here), ground_points(here, k)), here, 100 + k)
        assert report.submap is None
    assert pipeline.submaps is not None
    assert len(pipeline.submaps) == 0
    assert len(taken) == 2
    for number, (ended, first) in enumerate(zip(taken, (100, 103), strict=True)):
        submap, error = pipeline.complete(ended)
        assert submap is not None
        assert (submap.id, submap.first_stamp, error) == (number, first, "")
    last = pipeline.finish_submap("shutdown")
    assert last is not None
    assert [(info.id, info.first_stamp) for info in pipeline.submaps.infos()] == [
        (0, 100),
        (1, 103),
        (2, 106),
    ]
