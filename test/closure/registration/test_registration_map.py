"""Maps prepared for registration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig, NotComparable
from gpgmap_ros.closure.registration.registration_map import FIELDS, make_registration_map

CONFIG = ClosureConfig()


def test_fields_are_those_of_the_map_in_cells(world: World) -> None:
    map_, _ = world.map_at((100.0, 100.0), 1)
    prepared = make_registration_map(map_, CONFIG)
    trusted = prepared.weight > 0.0
    np.testing.assert_allclose(
        prepared.height[trusted] * map_.grid.resolution + prepared.base, map_["elevation"][trusted], atol=1e-4
    )
    np.testing.assert_array_equal(prepared.slope_x[trusted], map_["gradient_x"][trusted])
    for k, name in enumerate(FIELDS):
        field = getattr(prepared, name)
        assert not field[~trusted].any()
        assert np.shares_memory(field, prepared.fields[k])
    rows, columns = np.nonzero(trusted)
    distances = np.hypot(columns - prepared.centre[0], rows - prepared.centre[1])
    assert distances.max() == pytest.approx(prepared.radius)


def test_cells_far_from_data_are_left_out_unless_variances_are_not_used(world: World) -> None:
    map_, _ = world.map_at((100.0, 100.0), 1)
    trusted = make_registration_map(map_, CONFIG).weight
    plain = make_registration_map(map_, replace(CONFIG, use_variance=False)).weight
    assert np.count_nonzero(trusted) < np.count_nonzero(plain)
    assert set(np.unique(plain)) <= {0.0, 1.0}


def test_a_map_without_enough_cells_is_refused(world: World) -> None:
    map_, _ = world.map_at((100.0, 100.0), 1)
    with pytest.raises(NotComparable, match="well observed cells, 100000 are needed"):
        make_registration_map(map_, replace(CONFIG, min_cells=100_000))
