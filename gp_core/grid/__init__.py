"""Gaussian processes on a grid: a terrain map with honest variance at sensor rate.

>>> import numpy as np
>>> from gp_core.grid import Grid, GridGP
>>> from gp_core.kernels import RBF
>>> gp = GridGP(Grid(origin=(0.0, 0.0), shape=(20, 20), resolution=0.1), 0.04 * RBF(0.5), noise_variance=1e-4)
>>> gp.update(np.array([[1.05, 1.05]]), np.array([0.3])).used
1
>>> float(gp.posterior().mean[10, 10].round(2))
0.3
"""

from gp_core.grid.axes import Grid
from gp_core.grid.blocks import Blocks
from gp_core.grid.grid_gp import GridGP
from gp_core.grid.hyperparameters import Fit
from gp_core.grid.observations import Intake
from gp_core.grid.posterior import GridPosterior
from gp_core.grid.tile_solver import Tiles
from gp_core.grid.tiled_statistics import Lattice, TiledStatistics
from gp_core.grid.tiles import TileSize
from gp_core.grid.workers import Workers

__all__ = ["Blocks", "Fit", "Grid", "GridGP", "GridPosterior", "Intake", "Lattice", "TileSize", "TiledStatistics",
           "Tiles", "Workers"]  # fmt: skip
