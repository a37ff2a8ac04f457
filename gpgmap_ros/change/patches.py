"""Patches of cut and fill: cells that changed and belong together, with the ground around them that changed less.

The edge of a mound changes by less than can be told from no change, and yet is part of its volume. A patch is therefore
grown from its changed cells: to neighbours whose averaged difference has the same direction and is notable, and from
there by a margin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gp_core.arrays import Array
from gpgmap_ros.change.common_cells import Mask
from gpgmap_ros.change.null_model import EIGHT

GROW_SCORE = 1.5
"""Standard deviations that a neighbour of changed ground must differ by, in the same direction, to belong to it."""
GROW_CELLS, MARGIN = 4, 2
"""Cells that a patch grows by in this way at most, and cells around that."""
GAP_CELLS = 6
"""Cells that a patch reaches into ground that a survey measured badly, or did not see: a change does not end there."""
LEAST_CELLS = 4
"""Changed cells of a patch: fewer are not told from a single wrong height."""


@dataclass(frozen=True, eq=False)
class Footprint:
    """Cells of a patch, as indices into the flattened map; changed: how many of them are; sign: 1 is fill"""

    cells: NDArray[np.int64]
    changed: int
    sign: int


@dataclass(frozen=True)
class Patch:
    """A patch of cut or fill.

    kind: cut or fill; x, y: its middle, weighted by the difference; area: m^2, changed_area: of its changed cells
    gap_area: of cells that were not compared because a survey measured them badly or not at all; their part of the
        volume is uncertain accordingly
    volume: m^3, negative for cut; std: its standard deviation; interval: it holds the volume with a probability of 95 %
    mean, extreme: difference, m; false_rate: expected share of false patches among those at least as clear
    """

    kind: str
    x: float
    y: float
    area: float
    changed_area: float
    gap_area: float
    volume: float
    std: float
    interval: tuple[float, float]
    mean: float
    extreme: float
    false_rate: float


def find_footprints(changed: Mask, score: Array, compared: Mask, known: Mask) -> list[Footprint]:
    """Patches of the `changed` cells.

    score: (rows, columns) of the averaged differences, with sign
    known: cells of both maps; those that are not compared, and unseen cells within the ground, may belong to a patch
    """
    found = []
    taken = np.zeros(changed.shape, dtype=bool)
    ground = ndimage.binary_fill_holes(known)
    gaps = ground & ~compared
    for sign in (1, -1):
        core = changed & (sign * score > 0.0)
        labels, count = ndimage.label(core, EIGHT)
        core &= (np.bincount(labels.ravel(), minlength=count + 1) >= LEAST_CELLS)[labels]
        near = core | (sign * score > GROW_SCORE)
        grown = ndimage.binary_dilation(core, EIGHT, iterations=GROW_CELLS, mask=near)
        bridged = ndimage.binary_dilation(grown, EIGHT, iterations=GAP_CELLS, mask=grown | gaps)
        wide = ndimage.binary_dilation(bridged, EIGHT, iterations=MARGIN) & ground & ~taken
        taken |= wide
        labels, _ = ndimage.label(wide, EIGHT)
        for number, box in enumerate(ndimage.find_objects(labels), 1):
            rows, columns = np.nonzero(labels[box] == number)
            cells = (rows + box[0].start) * changed.shape[1] + columns + box[1].start
            size = int(core.ravel()[cells].sum())
            if size:
                found.append(Footprint(cells, size, sign))
    return found
