"""Which cell of a layer is which pixel of an image: exact."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.mapping.images import image_from_layer, layer_from_image


def test_north_is_up() -> None:
    layer = np.arange(6, dtype=np.float32).reshape(2, 3)  # layer[iy, ix]
    image = image_from_layer(layer)
    assert image[0, 0] == layer[1, 0]  # the first row is the largest y
    assert image[1, 2] == layer[0, 2]
    assert image.flags.c_contiguous
    assert image.dtype == np.float32


def test_there_and_back() -> None:
    layer = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    layer[2, 3] = np.nan
    np.testing.assert_array_equal(layer_from_image(image_from_layer(layer)), layer)
