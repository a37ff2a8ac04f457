"""What uncertain poses add to the variance of a stitched map: on slopes, not on flat ground."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, MappingConfig, SubmapConfig
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import read_map_npz, write_geotiffs, write_map_npz
from gpgmap_ros.mapping import GPGMap, StitchError, stitch, stitch_tiles, stitching
from gpgmap_ros.mapping.layers import reported_layers
from gpgmap_ros.mapping.submaps import Submap, SubmapBuilder

Array = NDArray[np.float64]

CONFIG = Config(
    mapping=MappingConfig(resolution=0.25, length_scale=1.0, relief_std=1.0),
    submap=SubmapConfig(size=16.0, resolution=0.25),
)
SLOPE = 0.3
NOTHING = np.zeros((6, 6))


def submap(id: int, slope: float, T_map_submap: Array | None = None, bumps: float = 0.0) -> Submap:
    """A plane that rises along the map's x, with bumps if wanted, seen within 6 m of the submap's origin."""
    T = np.eye(4) if T_map_submap is None else T_map_submap
    xy = np.random.default_rng(id).uniform(-6.0, 6.0, (20000, 2)) + T[:2, 3]
    z = slope * xy[:, 0] + bumps * np.sin(0.8 * xy[:, 0]) * np.cos(0.6 * xy[:, 1])
    builder = SubmapBuilder(CONFIG, T, stamp=1, session=1)
    builder.add(np.column_stack([xy, z]), np.full(len(xy), 0.02**2), T, 1)
    found = builder.finish(id, "request")
    assert found is not None
    return found


def inner(gpgmap: GPGMap, half: float = 4.0) -> NDArray[np.bool_]:
    return (np.abs(gpgmap.grid.x)[None, :] < half) & (np.abs(gpgmap.grid.y)[:, None] < half)


def horizontal(std: float) -> Array:
    return np.diag([std**2, std**2, 0.0, 0.0, 0.0, 0.0])


def test_uncertainty_in_position_counts_on_a_slope_and_not_on_flat_ground() -> None:
    for slope, expected in ((SLOPE, (SLOPE * 0.5) ** 2), (0.0, 0.0)):
        one = submap(0, slope)
        gpgmap = stitch([one], {0: np.eye(4)}, CONFIG, covariances={0: horizontal(0.5)})
        np.testing.assert_allclose(gpgmap["pose_variance"][inner(gpgmap)], expected, rtol=0.05, atol=1e-5)


def test_height_and_heading_count_as_they_should() -> None:
    one = submap(0, SLOPE)
    gpgmap = stitch([one], {0: np.eye(4)}, CONFIG, covariances={0: np.diag([0.0, 0.0, 0.2**2, 0, 0, 0])})
    np.testing.assert_allclose(gpgmap["pose_variance"][inner(gpgmap)], 0.2**2, rtol=1e-3)
    gpgmap = stitch([one], {0: np.eye(4)}, CONFIG, covariances={0: np.diag([0, 0, 0, 0, 0, 0.1**2])})
    y = np.broadcast_to(gpgmap.grid.y[:, None], gpgmap.grid.shape)
    # a turn moves the ground sideways in proportion to the distance: along the contour nothing happens
    np.testing.assert_allclose(
        gpgmap["pose_variance"][inner(gpgmap)], (SLOPE * 0.1 * y[inner(gpgmap)]) ** 2, rtol=0.05, atol=2e-4
    )


def test_it_is_what_a_wrong_pose_does_to_the_heights() -> None:
    """Every error of the pose, alone: the heights move by as much as is stated, at every cell."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", 0.7).as_matrix()
    T[:3, 3] = 0.5, -0.3, 1.0
    one = submap(0, SLOPE, T, bumps=0.3)
    true = stitch([one], {0: T}, CONFIG)
    step = 0.01
    for k in range(6):
        error = np.zeros(6)
        error[k] = step
        moved = T.copy()
        moved[:3, :3] = Rotation.from_rotvec(error[3:]).as_matrix() @ T[:3, :3]
        moved[:3, 3] += error[:3]
        covariance = np.outer(error, error)
        stated = stitch([one], {0: T}, CONFIG, covariances={0: covariance})
        wrong = stitch([one], {0: moved}, CONFIG)
        row, column = stitching.cell_offset(wrong.grid, true.grid)
        rows, columns = np.nonzero(inner(true))
        found = wrong["elevation"][rows + row, columns + column] - true["elevation"][rows, columns]
        expected = np.sqrt(stated["pose_variance"][rows, columns])
        np.testing.assert_allclose(np.abs(found), expected, atol=0.1 * step * max(1.0, expected.max() / step))


def test_where_submaps_overlap_each_counts_for_its_share() -> None:
    there = np.eye(4)
    there[0, 3] = 6.0
    parts, poses = [submap(0, SLOPE), submap(1, SLOPE, there)], {0: np.eye(4), 1: there}
    gpgmap = stitch(parts, poses, CONFIG, covariances={0: NOTHING, 1: horizontal(1.0)})
    row = gpgmap["pose_variance"][gpgmap.grid.shape[0] // 2]
    west, middle, east = (row[np.argmin(np.abs(gpgmap.grid.x - x))] for x in (-4.0, 3.0, 10.0))
    assert west < 1e-3 * SLOPE**2
    assert middle == pytest.approx(0.5 * SLOPE**2, rel=0.2)
    assert east == pytest.approx(SLOPE**2, rel=0.05)


def test_the_surface_and_its_own_variance_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """However uncertain the pose: what it adds is a layer of its own, the same in one piece and in tiles."""
    one = submap(0, SLOPE, bumps=0.3)
    certain = stitch([one], {0: np.eye(4)}, CONFIG)
    assert "pose_variance" not in certain.layers
    uncertain = stitch([one], {0: np.eye(4)}, CONFIG, covariances={0: horizontal(30.0)})
    for name in ("elevation", "variance", "gradient_x", "traversability"):
        np.testing.assert_array_equal(uncertain[name], certain[name])
    assert (np.isfinite(uncertain["pose_variance"]) == uncertain.known).all()
    shown = "standard_deviation_with_poses"
    assert shown in reported_layers(uncertain.layers)
    assert shown not in reported_layers(certain.layers)
    total = np.where(uncertain.known, uncertain["variance"] + uncertain["pose_variance"], np.nan)
    np.testing.assert_allclose(uncertain[shown], np.sqrt(total), rtol=1e-6)
    monkeypatch.setattr(stitching, "TILE_CELLS", 20)
    tiles = list(stitch_tiles([one], {0: np.eye(4)}, CONFIG, covariances={0: horizontal(30.0)}))
    assert len(tiles) > 4
    for tile in tiles:
        row, column = stitching.cell_offset(uncertain.grid, tile.grid)
        same = uncertain["pose_variance"][
            row : row + tile.grid.shape[0], column : column + tile.grid.shape[1]
        ]
        close = np.isfinite(same) & np.isfinite(tile["pose_variance"])
        np.testing.assert_allclose(tile["pose_variance"][close], same[close], rtol=0.05, atol=3.0)


def test_a_covariance_that_is_missing_or_no_covariance_is_named() -> None:
    one = submap(0, SLOPE)
    with pytest.raises(StitchError, match="submap 0 has a pose, but its covariance is not given"):
        stitch([one], {0: np.eye(4)}, CONFIG, covariances={})
    with pytest.raises(StitchError, match="covariance of submap 0 must be 6 x 6 and finite"):
        stitch([one], {0: np.eye(4)}, CONFIG, covariances={0: np.full((6, 6), np.inf)})


def test_files_keep_it(tmp_path: Path) -> None:
    gpgmap = stitch([submap(0, SLOPE)], {0: np.eye(4)}, CONFIG, covariances={0: horizontal(0.5)})
    write_map_npz(tmp_path / "map.npz", gpgmap, Crs())
    again, _ = read_map_npz(tmp_path / "map.npz")
    np.testing.assert_array_equal(again["pose_variance"], gpgmap["pose_variance"])
    assert tmp_path / "pose_variance.tif" in write_geotiffs(tmp_path, gpgmap, Crs())
