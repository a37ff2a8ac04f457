"""Variances are drawn again only where they changed, and the layers are what drawing all of them gives."""

from __future__ import annotations

import numpy as np

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov import surface as markov_surface
from gp_core.kernels import Matern


def test_a_change_in_a_corner_leaves_the_variances_of_other_cells(monkeypatch) -> None:
    rng = np.random.default_rng(4)
    gp = GridGP(Grid((0.0, 0.0), (60, 60), 0.1), 0.09 * Matern(1.0, nu=1.5), 1e-3)
    xy = rng.uniform(0.0, 6.0, (8000, 2))
    gp.update(xy, np.sin(xy[:, 0]))
    gp.posterior()
    spread: list[float] = []
    draw = markov_surface.at_cells

    def note(*arguments):
        spread.append(float(arguments[11].mean()))
        draw(*arguments)

    monkeypatch.setattr(markov_surface, "at_cells", note)
    corner = rng.uniform(0.0, 1.0, (500, 2))
    gp.update(corner, np.sin(corner[:, 0]) + 0.02)
    changed = gp.posterior()
    assert 0.0 < max(spread) < 0.9
    gp._surface._stale[:] = gp._surface._spread[:] = True
    gp._surface.draw_cells()
    full = gp.posterior()
    for name in ("mean", "variance", "gradient", "gradient_variance"):
        np.testing.assert_array_equal(getattr(changed, name), getattr(full, name))
