"""The ground filter: what stands on the ground, hangs above it or lies below it is left out, and hills are not."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.mapping.survey_ground import GroundCells, filter_edge, ground_surface, is_ground

SIDE, EDGE, TOLERANCE = 80.0, 1.0, 0.3


def filtered(xyz: np.ndarray, edge: float = EDGE, width: float = 20.0) -> np.ndarray:
    xy, z = np.ascontiguousarray(xyz[:, :2]), np.ascontiguousarray(xyz[:, 2])
    count = int(np.ceil(SIDE / edge))
    cells = GroundCells((0.0, 0.0), (count, count), edge)
    lowest = cells.lowest()
    cells.add(lowest, xy, z, TOLERANCE)
    return is_ground(xy, z, ground_surface(lowest, edge, TOLERANCE, width), cells, TOLERANCE)


def hillside(count: int = 30_000, slope: float = 0.6) -> np.ndarray:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, SIDE, (count, 2))
    z = slope * xy[:, 0] + 3.0 * np.sin(xy[:, 1] / 8.0) + 0.03 * rng.normal(size=count)
    return np.column_stack([xy, z])


def beside(xyz: np.ndarray, low: tuple[float, float], high: tuple[float, float]) -> np.ndarray:
    return ((xyz[:, :2] < low) | (xyz[:, :2] > high)).any(axis=1)


def test_bare_ground_is_ground_also_where_it_is_steep() -> None:
    assert filtered(hillside()).mean() > 0.99
    assert filtered(hillside(slope=1.0)).mean() > 0.95


@pytest.mark.parametrize("height", [3.0, 8.0])
def test_a_building_on_a_slope_is_left_out(height: float) -> None:
    ground = hillside()
    seen = ground[beside(ground, (30.0, 30.0), (46.0, 42.0))]
    roof = ground[~beside(ground, (30.0, 30.0), (46.0, 42.0))]
    roof[:, 2] = roof[:, 2].max() + height
    kept = filtered(np.vstack([seen, roof]))
    assert kept[: len(seen)].mean() > 0.97
    assert kept[len(seen) :].mean() < 0.01


def test_crowns_wires_and_strays_are_left_out() -> None:
    rng, ground = np.random.default_rng(1), hillside()
    crown = ground[rng.choice(len(ground), 3000)]
    crown[:, 2] += rng.uniform(2.0, 12.0, len(crown))
    wire = np.column_stack([np.linspace(0.0, SIDE, 200), np.full(200, 40.0), np.full(200, 70.0)])
    above, below = (ground[rng.choice(len(ground), 20, replace=False)] for _ in range(2))
    above[:, 2] += 60.0
    below[:, 2] -= rng.uniform(3.0, 15.0, 20)
    kept = filtered(np.vstack([ground, crown, wire, above, below]))
    assert kept[: len(ground)].mean() > 0.97
    rest = kept[len(ground) :]
    assert rest[: len(crown)].mean() < 0.01
    assert not rest[len(crown) : -20].any()
    assert rest[-20:].mean() <= 0.1


def test_cells_grow_where_points_are_sparse() -> None:
    assert filter_edge(1.0, 10.0) == 1.0
    assert filter_edge(0.5, 1.0) == 2.0
    sparse = hillside(1200)  # 0.2 points per square metre
    assert filtered(sparse, filter_edge(1.0, len(sparse) / SIDE**2)).mean() > 0.85


def test_an_area_without_points_has_no_ground() -> None:
    cells = GroundCells((0.0, 0.0), (5, 5), 1.0)
    assert np.isnan(ground_surface(cells.lowest(), 1.0, 0.3, 20.0)).all()
