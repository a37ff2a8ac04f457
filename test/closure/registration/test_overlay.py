"""Two maps at a pose."""

from __future__ import annotations

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.registration.overlay import crop, overlay_maps
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map

CONFIG = ClosureConfig()


@pytest.fixture(scope="module")
def prepared(world: World) -> RegistrationMap:
    return make_registration_map(world.map_at((100.0, 100.0), 1)[0], CONFIG)


def at(prepared: RegistrationMap, x: float = 0.0, y: float = 0.0) -> Alignment:
    t = np.array([prepared.centre[0] + x, prepared.centre[1] + y, 0.0])
    return Alignment(np.eye(3), t, t)


def test_a_map_on_itself_leaves_no_residual(prepared: RegistrationMap) -> None:
    over = overlay_maps(at(prepared), prepared, prepared, CONFIG)
    shared = over.weight > 0.0
    assert shared.sum() > 0.8 * (prepared.weight > 0.0).sum()
    np.testing.assert_allclose(over.residual[shared], 0.0, atol=1e-5)
    np.testing.assert_allclose(over.source_slope, over.target_slope, atol=1e-5)
    np.testing.assert_allclose(over.weight[shared], prepared.weight[shared] ** 2, rtol=1e-4)
    np.testing.assert_allclose(
        over.variance[shared], 2.0 * prepared.height_variance[shared] + 1e-7, rtol=1e-4
    )


def test_a_shift_by_whole_cells_compares_the_cells_it_meets(prepared: RegistrationMap) -> None:
    over = overlay_maps(at(prepared, 3.0, -2.0), prepared, prepared, CONFIG)
    rows, columns = np.nonzero(over.weight > 0.0)
    expected = prepared.height[rows, columns] - prepared.height[rows - 2, columns + 3]
    np.testing.assert_allclose(over.residual[rows, columns], expected, atol=1e-4)
    np.testing.assert_allclose(over.points[0][rows, columns], columns + 3.0)


def test_a_stride_takes_every_so_many_cells_and_a_crop_the_shared_part(prepared: RegistrationMap) -> None:
    fine = overlay_maps(at(prepared, 4.0), prepared, prepared, CONFIG)
    coarse = overlay_maps(at(prepared, 4.0), prepared, prepared, CONFIG, stride=3)
    np.testing.assert_array_equal(coarse.residual, fine.residual[::3, ::3])
    part = crop(fine, fine.weight > 0.0)
    assert part.weight.sum() == pytest.approx(fine.weight.sum())
    assert part.weight.any(axis=0)[[0, -1]].all()
    assert part.source_slope.shape[1:] == part.weight.shape
