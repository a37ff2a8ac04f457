"""Groups of arrays that the compiled loops over the boxes of a dissection share."""

from __future__ import annotations

from typing import Any, NamedTuple

from gp_core.arrays import Array
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.statistics import Mask


class FrontTables(NamedTuple):
    """A `Plan` for the compiled loops: its boxes, nodes, runs, own, coupled, back and back_rest.

    n_x: coefficients of a row of the lattice
    """

    boxes: Indices
    nodes: Any
    runs: Indices
    own: Array
    coupled: Any
    back: Any
    back_rest: Any
    n_x: int


class Factors(NamedTuple):
    """What is found upwards and used downwards.

    filled: (boxes,) those with data
    back, inverse: F of all boxes, and of X the lower triangles, in float32
    """

    filled: Mask
    back: Any
    inverse: Any
