"""The coarsest lattice that carries a rough kernel well enough for the data that are expected."""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.grid.markov.prior import falloff, lattice_error
from gp_core.kernels import Kernel

TOLERANCE: Final = 0.014
"""Error of the mean, in posterior standard deviations, that a lattice may cause by what it lacks of a rough kernel."""
GRADIENT_TOLERANCE: Final = 0.052
"""Likewise of the gradient, if the kernel has one."""
COARSEST: Final = 1.7
FINEST: Final = 40.0
FINEST_WITHOUT_SLOPES: Final = 16.0
"""Blocks per correlation length; the last for kernels much rougher than those with a derivative (Exponential), of which
no lattice carries all. The finest lattice leaves an unresolved part that counts as noise."""
_TOLERANCE_WITHOUT_SLOPES: Final = 0.04
"""Error of the mean, as predicted, for which a kernel without derivative gets more than so many blocks: a smaller one
would take too fine a lattice. What is measured is 0.6 of it."""
_NEARLY_DIFFERENTIABLE: Final = 3.5
"""Power of the spectrum's decay; 4 for a Matern of nu = 1, 3 for the Exponential."""
_STEPS: Final = 7


def choose_spacing(
    kernel: Kernel, length: tuple[float, float], variance: float, information: float
) -> tuple[float, float]:
    """(h_x, h_y), the same number of blocks to a correlation length along both axes.

    length: correlation lengths
    information: k(0) / noise variance times the points of a squared correlation length
    """
    density = information / (variance * length[0] * length[1])
    slopes = not kernel.why_not_differentiable()
    gradient_tolerance = GRADIENT_TOLERANCE if slopes else np.inf
    sixteenth = length[0] / 16.0, length[1] / 16.0
    carried = slopes or falloff(kernel, sixteenth) > _NEARLY_DIFFERENTIABLE
    coarse, fine = np.log(COARSEST), np.log(FINEST if carried else FINEST_WITHOUT_SLOPES)
    for _ in range(_STEPS):
        middle = 0.5 * (coarse + fine)
        spacing = (length[0] / np.exp(middle), length[1] / np.exp(middle))
        height, slope = lattice_error(kernel, spacing, density)
        beyond = not slopes and np.exp(middle) > FINEST_WITHOUT_SLOPES
        if height > (_TOLERANCE_WITHOUT_SLOPES if beyond else TOLERANCE) or slope > gradient_tolerance:
            coarse = middle
        else:
            fine = middle
    return length[0] / float(np.exp(fine)), length[1] / float(np.exp(fine))
