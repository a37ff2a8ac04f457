"""Types of the arrays that the package hands around: one home for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array as Array

Mask = NDArray[np.bool_]
"""Which of some points, cells or poses."""
AnyArray = NDArray[Any]
"""Of a type that only the file or message it comes from says."""
