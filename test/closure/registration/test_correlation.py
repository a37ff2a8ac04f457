"""Search grids and spectra."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.registration.correlation import half_spectrum_weights, make_search_grid


@pytest.mark.parametrize("columns", [8, 9])
def test_half_a_spectrum_has_the_energy_of_the_whole(columns: int) -> None:
    field = np.random.default_rng(0).normal(size=(7, columns))
    half = np.abs(np.fft.rfft2(field)) ** 2
    energy = np.sum(half * half_spectrum_weights(columns)) / field.size
    np.testing.assert_allclose(energy, np.sum(field**2))


def test_a_grid_holds_the_map_and_its_shifts() -> None:
    config = ClosureConfig(yaw_step=5.0, search_cells=36)
    grid = make_search_grid(100.0, config)
    assert grid.stride * (grid.side - 1) >= 200.0
    assert grid.side <= 37
    assert grid.size >= 1.7 * grid.side
    assert len(grid.yaws) == 72
    half = len(grid.yaws) // 2
    np.testing.assert_allclose(grid.yaws[half:], grid.yaws[:half] + np.pi)
    few = make_search_grid(100.0, config, around=(0.3, np.deg2rad(10.0)))
    assert len(few.yaws) == 10
    np.testing.assert_allclose(few.yaws[:5], 0.3 + np.deg2rad([-10.0, -5.0, 0.0, 5.0, 10.0]))
