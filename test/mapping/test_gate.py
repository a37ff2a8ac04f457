"""The innovation gate: what contradicts the map waits, what is confirmed passes."""

from __future__ import annotations

import numpy as np

from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.config import GateConfig
from gpgmap_ros.mapping.cells import overlap
from gpgmap_ros.mapping.gate import GateResult, InnovationGate, PosteriorSnapshot

GRID = Grid((0.0, 0.0), (4, 6), 0.5)
CONFIG = GateConfig(enabled=True, threshold=3.0, tolerance=0.2, confirmations=3)
SLOPE = 0.2


def surface(grid: Grid = GRID) -> PosteriorSnapshot:
    """z = 0.2 x, known to 1 cm but for cell (0, 0)."""
    x, _ = np.meshgrid(grid.x, grid.y)
    gradient = np.zeros((*grid.shape, 2))
    gradient[..., 0] = SLOPE
    variance = np.full(grid.shape, 1e-4)
    posterior = GridPosterior(SLOPE * x, variance, gradient, np.full((*grid.shape, 2), 1e-4), grid)
    known = np.ones(grid.shape, dtype=bool)
    known[0, 0] = False
    return PosteriorSnapshot(posterior, known, 0)


def points(*places: tuple[float, float, float]) -> np.ndarray:
    """(x, y, height above the slope)"""
    xyz = np.array(places, dtype=np.float64)
    xyz[:, 2] += SLOPE * xyz[:, 0]
    return xyz


def judge(
    gate: InnovationGate, xyz: np.ndarray, on: PosteriorSnapshot | None = None, grid: Grid = GRID
) -> GateResult:
    return gate.apply(xyz, np.full(len(xyz), 0.02**2), on or surface(), grid)


def gate(**changes: float) -> InnovationGate:
    return InnovationGate(GateConfig(**{**CONFIG.__dict__, **changes}), length_scale=0.5)


def test_what_agrees_or_is_not_known_passes() -> None:
    xyz = points((1.6, 0.7, 0.03), (0.1, 0.1, 5.0), (1.99, 0.99, -0.05), (100.0, 0.0, 9.0))
    verdict = judge(gate(), xyz)
    assert verdict.passed.all()
    assert len(verdict.released) == 0


def test_ground_that_the_surface_does_not_know_counts_once_until_it_was_solved() -> None:
    this = gate()
    assert this.new_ground == 0
    for _ in range(2):  # the known, the unknown and a place outside of the map
        judge(this, points((1.6, 0.7, 0.0), (0.1, 0.1, 5.0), (0.2, 0.3, 5.0), (100.0, 0.0, 9.0)))
        assert this.new_ground == 1
    moved = Grid((-0.5, 0.0), (4, 6), 0.5)
    judge(this, points((-0.2, 0.1, 0.0), (-0.3, 0.7, 0.0)), grid=moved)
    assert this.new_ground == 3
    this.surface_taken()
    judge(this, points((0.1, 0.1, 5.0), (-0.2, 0.1, 0.0)), grid=moved)
    assert this.new_ground == 0, (
        "as far as these cells can be known, they are in the surface that is being solved"
    )
    judge(this, points((-0.2, 1.2, 0.0)), grid=moved)
    assert this.new_ground == 1


def test_both_standard_deviations_and_metres_must_be_exceeded() -> None:
    # tolerance 0.2 m + slope 0.2 * length scale 0.5 m = 0.3 m
    assert judge(gate(), points((1.6, 0.7, 0.29))).passed.all()
    assert not judge(gate(), points((1.6, 0.7, 0.31))).passed.any()
    assert not judge(gate(), points((1.6, 0.7, -0.31))).passed.any()
    assert judge(gate(threshold=20.0), points((1.6, 0.7, 0.31))).passed.all()


def test_confirmed_change_is_released_where_it_is() -> None:
    this, on = gate(), surface()
    xyz = points((1.6, 0.7, 1.0), (1.7, 0.6, 1.0), (0.7, 1.2, 0.0))
    for _ in range(2):
        verdict = judge(this, xyz, on)
        assert verdict.passed.tolist() == [False, False, True]
        assert len(verdict.released) == 0
        assert this.disputed == 1
    verdict = judge(this, xyz, on)
    assert verdict.passed.all()
    np.testing.assert_allclose(verdict.released, [[1.75, 0.75]])
    # the surface there is known no more: further points pass until it is solved again
    assert not on.known[1, 3]
    assert judge(this, xyz, on).passed.all()
    assert this.disputed == 0


def test_a_cloud_that_agrees_starts_the_count_again() -> None:
    this = gate()
    there, gone = points((1.6, 0.7, 1.0)), points((1.6, 0.7, 0.0))
    for xyz in (there, there, gone, there, there):
        assert len(judge(this, xyz).released) == 0
    assert len(judge(this, there).released) == 1


def test_a_cloud_that_does_not_see_the_cell_does_not() -> None:
    this = gate()
    for xyz in (points((1.6, 0.7, 1.0)), points((0.7, 0.7, 0.0)), points((1.6, 0.7, 1.0))):
        assert len(judge(this, xyz).released) == 0
    assert len(judge(this, points((1.6, 0.7, 1.0))).released) == 1


def test_the_majority_of_a_cells_points_decides() -> None:
    this = gate(confirmations=1)
    mixed = points((1.6, 0.7, 1.0), (1.7, 0.7, 0.0), (1.8, 0.7, 0.0))
    verdict = judge(this, mixed)
    assert verdict.passed.tolist() == [False, True, True]
    assert len(verdict.released) == 0


def test_clouds_that_contradict_each_other_confirm_nothing() -> None:
    this = gate()
    for height in (1.0, 2.0, 3.0, 1.0, 2.0, 3.0):
        assert len(judge(this, points((1.6, 0.7, height))).released) == 0


def test_counts_move_with_the_window_and_old_surfaces_still_count() -> None:
    this, xyz = gate(), points((1.6, 0.7, 1.0))
    judge(this, xyz)
    judge(this, xyz, grid=GRID.shift(1, 2))
    assert this.disputed == 1
    verdict = judge(this, xyz, grid=GRID.shift(-1, 1))
    np.testing.assert_allclose(verdict.released, [[1.75, 0.75]])
    judge(this, xyz)
    judge(this, xyz, grid=GRID.shift(50, 50))
    assert this.disputed == 0


def test_overlap_of_windows() -> None:
    for new, old, by in ((5, 5, 2), (5, 5, -2), (5, 5, 0), (5, 5, 7), (5, 5, -7), (3, 8, -2), (8, 3, 4)):
        a, b = np.full(new, -1), np.arange(old)
        to, of = overlap(new, old, by)
        a[to] = b[of]
        assert a.tolist() == [k - by if 0 <= k - by < old else -1 for k in range(new)]
