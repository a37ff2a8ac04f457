"""Groups of arrays that the compiled loops over the boxes of a dissection share."""

from __future__ import annotations

from typing import Any, NamedTuple

from gp_core.arrays import Array
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.statistics import Mask


class FrontTables(NamedTuple):
    """A `Plan` for the compiled loops: its boxes, nodes, runs, precision and back.

    n_x: coefficients of a row of the lattice
    """

    boxes: Indices
    nodes: Any
    runs: Indices
    precision: Array
    back: Any
    n_x: int


class Equations(NamedTuple):
    """The normal equations of the data: stencil (n_y n_x, 13) W' R^-1 W, right (K, n_y n_x) W' R^-1 z."""

    stencil: Array
    right: Array


class Factors(NamedTuple):
    """What is found upwards and used downwards.

    filled: (boxes,) those with data
    back, inverse: F and X of all boxes, in float32
    solved: (n_y n_x, K) X r_p
    """

    filled: Mask
    back: Any
    inverse: Any
    solved: Array


class KeptBorders(NamedTuple):
    """What the boxes that are kept between solutions leave on their borders.

    triangles: L, as rows of a lower triangle; vectors: (sum of m, K) r_m
    """

    triangles: Array
    vectors: Array


class Moments(NamedTuple):
    """The posterior: means (K, n_y n_x), covariances (n_y n_x, 13) of near coefficients."""

    means: Array
    covariances: Array
