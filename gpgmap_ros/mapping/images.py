"""Layers as other people index them. A layer is `layer[iy, ix]`, y and x growing with the index.

An image is shown with north up: row 0 is the largest y.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def image_from_layer(layer: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows from the largest y to the smallest, contiguous, ready to send as 32FC1."""
    return np.ascontiguousarray(layer[::-1], dtype=np.float32)


def layer_from_image(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """The inverse of `image_from_layer`."""
    return np.ascontiguousarray(image[::-1], dtype=np.float32)
