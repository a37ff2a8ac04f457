"""Visibility clearing: what rays pass through goes, what they end on stays, and doubt about the ray counts."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.config import ClearingConfig, Config, with_settings
from gpgmap_ros.mapping.clearing import VisibilityClearing
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gate import PosteriorSnapshot
from gpgmap_ros.mapping.model import block_spacing
from gpgmap_ros.mapping.noise import ray_deviations
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

GRID = Grid((0.0, 0.0), (20, 20), 0.5)
SENSOR = np.array([0.25, 5.25, 1.5])
EXACT = (0.01, 0.001)


def surface_with_a_ghost(height: float = 1.5) -> PosteriorSnapshot:
    """Level ground, with something on row 10 and columns 8 to 10."""
    mean = np.zeros(GRID.shape)
    mean[10, 8:11] = height
    posterior = GridPosterior(
        mean, np.full(GRID.shape, 1e-4), np.zeros((*GRID.shape, 2)), np.ones((*GRID.shape, 2)), GRID
    )
    return PosteriorSnapshot(posterior, np.ones(GRID.shape, dtype=bool), 1)


def behind(row: int = 10) -> np.ndarray:
    """Points on the ground behind the ghost, on a line from the sensor, a little to its side for other rows."""
    x = np.linspace(7.0, 9.5, 30)
    return np.column_stack([x, 0.5 * row + 0.25 + np.where(np.arange(30) % 2, 0.3, -0.3), np.zeros(30)])


def knows_ghost(on: PosteriorSnapshot, clouds: int = 3) -> VisibilityClearing:
    """With points all over the cells of a surface, and their heights."""
    this = VisibilityClearing(ClearingConfig(clouds=clouds), 0.5)
    offset = 0.2 * np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    xy = (GRID.centers.reshape(-1, 1, 2) + offset).reshape(-1, 2)
    z = np.repeat(on.posterior.mean.ravel(), 4)
    this.add(SENSOR, np.column_stack([xy, z]), np.full(len(z), 0.01), EXACT, GRID)
    return this


def clear(
    this: VisibilityClearing,
    on: PosteriorSnapshot,
    xyz: np.ndarray,
    std: tuple[float, float] = EXACT,
    grid: Grid = GRID,
) -> list[tuple[float, float]]:
    return sorted(map(tuple, this.apply(SENSOR, xyz, std, on, grid).tolist()))


def test_what_enough_clouds_look_through_is_cleared_and_nothing_else() -> None:
    on = surface_with_a_ghost()
    this = knows_ghost(on)
    assert clear(this, on, behind()) == clear(this, on, behind()) == []
    assert this.doubted > 0
    assert clear(this, on, behind()) == [(4.25, 5.25), (4.75, 5.25), (5.25, 5.25)]
    assert not on.known[10, 8:11].any()
    assert on.known.sum() == on.known.size - 3
    assert this.doubted == 0


def test_a_point_on_it_is_evidence_for_it() -> None:
    on = surface_with_a_ghost()
    this = knows_ghost(on, 2)
    top = np.array([[4.25, 5.25, 1.45], [4.75, 5.25, 1.5], [5.25, 5.25, 1.5]])
    for _ in range(3):
        assert clear(this, on, behind()) == []
        assert clear(this, on, top) == []


def test_rays_beside_it_or_above_it_say_nothing() -> None:
    on = surface_with_a_ghost(0.5)
    this = knows_ghost(on, 1)
    beside = behind()
    beside[:, 1] += np.linspace(3.0, 4.0, len(beside))
    assert clear(this, on, beside) == []
    above = behind()
    above[:, 2] = 1.4  # a wall behind it
    assert clear(this, on, above) == []


def test_rays_that_pass_on_one_side_or_further_apart_than_it_is_wide_say_nothing() -> None:
    on = surface_with_a_ghost()
    along = behind()
    along[:, 1] = 5.25 + 0.3
    assert clear(knows_ghost(on, 1), on, along) == []
    this = VisibilityClearing(ClearingConfig(clouds=1), 0.5)
    post = np.column_stack([np.full(9, 4.75), np.linspace(5.2, 5.3, 9), np.full(9, 1.5)])
    this.add(SENSOR, post, np.full(9, 0.01), EXACT, GRID)
    assert clear(this, on, behind()) == []


def test_a_point_as_high_in_a_cell_beside_is_evidence_for_it() -> None:
    on = surface_with_a_ghost()
    beside = np.array([[4.25, 5.75, 1.5], [5.25, 5.75, 1.5]])
    assert clear(knows_ghost(on, 1), on, np.concatenate([behind(), beside])) == []
    assert clear(knows_ghost(on, 1), on, behind()) != []


def test_what_a_loaded_map_shows_is_cleared_as_what_was_seen() -> None:
    config = with_settings(Config(), {"mapping.size_x": 10.0, "mapping.size_y": 10.0}).mapping
    this_map = ElevationMap(config, (5.0, 5.0))
    rng = np.random.default_rng(4)
    edge = block_spacing(config)[0]
    corner = (
        np.floor(np.array([4.5, 5.25]) / edge) * edge
    )  # within a block, which shows how wide it is by itself
    x, y = rng.uniform(corner + 0.01 * edge, corner + 0.99 * edge, (3000, 2)).T
    points = np.column_stack([x, y, rng.normal(1.5, 0.02, 3000)])
    variance = np.full(3000, 4e-4)
    this_map.add(points, variance)
    blocks, posterior, grid = this_map.blocks(), this_map.posterior(), this_map.posterior().grid
    assert blocks is not None
    cleared = []
    for loaded in (False, True):
        this = VisibilityClearing(ClearingConfig(clouds=2), edge)
        on = PosteriorSnapshot(posterior, np.ones(grid.shape, dtype=bool), 1)
        if loaded:
            this.begin(blocks, grid, EXACT)
        else:
            this.add(SENSOR, points, variance, EXACT, grid)
        rays = np.column_stack([np.full(400, 9.0), np.linspace(4.0, 7.0, 400), np.zeros(400)])
        assert clear(this, on, rays, grid=grid) == []
        cleared.append(clear(this, on, rays, grid=grid))
    assert cleared[0] != []
    assert cleared[1] == cleared[0]


def test_an_uncertain_pose_clears_nothing_low() -> None:
    low = surface_with_a_ghost(0.8)
    assert clear(knows_ghost(low, 1), low, behind()) != []
    unsure = ray_deviations(np.diag([0.0, 0.0, 0.04, 0.0, 0.0, 0.0]), Config().noise)
    low = surface_with_a_ghost(0.8)
    assert clear(knows_ghost(low, 1), low, behind(), unsure) == []


def test_counts_move_with_the_window() -> None:
    on = surface_with_a_ghost()
    this = knows_ghost(on, 2)
    clear(this, on, behind())
    assert len(clear(this, on, behind(), grid=GRID.shift(1, 2))) == 3


def drive_past_a_ghost(clearing: bool, model: dict[str, object]) -> tuple[np.ndarray, int]:
    """Heights around a ghost, and cells cleared.

    Somebody stands where the sensor has seen nothing else, then is gone: rays pass there, and none ends there.
    """
    given = {"clearing.enabled": clearing, "submap.enabled": False, "gate.refresh_period": 0.0}
    pipeline = MappingPipeline(with_settings(Config(), given | model))
    rng = np.random.default_rng(3)
    ground = np.column_stack([rng.uniform(-8.0, 8.0, (6000, 2)), rng.normal(-1.0, 0.02, 6000)])
    there = (np.abs(ground[:, 0] - 4.0) < 0.5) & (np.abs(ground[:, 1]) < 0.5)
    seen = ground[~there]
    body = np.column_stack(
        [rng.uniform(3.8, 4.2, 400), rng.uniform(-0.2, 0.2, 400), rng.normal(0.2, 0.02, 400)]
    )
    T, cleared = np.eye(4), 0
    for stamp in range(1, 12):
        cloud = np.concatenate([seen, body]) if stamp <= 2 else seen
        cleared += pipeline.add_cloud(cloud.astype(np.float32), T, stamp * 100_000_000).cleared
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    near_x, near_y = np.abs(gpgmap.grid.x - 4.0) < 1.5, np.abs(gpgmap.grid.y) < 1.5
    return np.asarray(gpgmap["elevation"])[np.ix_(near_y, near_x)], cleared


@pytest.mark.parametrize(
    "model", [{}, {"mapping.kernel": "rbf", "mapping.learn_noise": False}], ids=["default", "rbf"]
)
def test_the_pipeline_clears_a_ghost_and_keeps_the_ground(model: dict[str, object]) -> None:
    with_ghost, none = drive_past_a_ghost(False, model)
    without, cleared = drive_past_a_ghost(True, model)
    assert none == 0
    assert cleared > 0
    assert np.nanmax(with_ghost) > 0.0
    assert np.nanmax(without) < -0.7
    # the ground around it is known as before
    assert np.isfinite(without).sum() >= 0.99 * np.isfinite(with_ghost).sum()
