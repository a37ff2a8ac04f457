"""The terrain model: its kernel, the variances that follow from it, and the tables that maps share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.config import MappingConfig
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.model import (
    APPROXIMATE_TILES,
    block_spacing,
    cached_gp,
    correlation_length,
    fit_gp,
    is_rough,
    learned_settings,
    make_gp,
    model_settings,
    prior_gradient_variance,
    prior_variance,
    terrain_kernel,
)

MAPPING = MappingConfig(kernel="rbf", length_scale=0.7, relief_std=1.3, resolution=0.2)
ROUGH = dataclasses.replace(MAPPING, kernel="matern32", rough_length=20.0)
MODELS = [
    MAPPING,
    *(dataclasses.replace(ROUGH, kernel=name) for name in ("matern54", "matern32", "matern52")),
]
each_model = pytest.mark.parametrize("mapping", MODELS, ids=lambda mapping: mapping.kernel)


@each_model
def test_prior_variances_are_those_of_the_kernel(mapping: MappingConfig) -> None:
    kernel = terrain_kernel(mapping)
    assert prior_variance(mapping) == pytest.approx(float(kernel.diag(np.zeros((1, 2)))[0]))
    # d^2 k(x, x') / dx dx' at x = x', by central differences: of rough kernels they converge slowly
    h = 1e-5 if mapping.kernel == "matern54" else 1e-3
    at = np.array([[-h, 0.0], [h, 0.0]])
    K = kernel(at, at)
    second = (K[0, 0] - K[0, 1] - K[1, 0] + K[1, 1]) / (2.0 * h) ** 2
    assert prior_gradient_variance(mapping) == pytest.approx(float(second), rel=1e-2)


@each_model
def test_an_empty_map_has_the_prior_variances(mapping: MappingConfig) -> None:
    posterior = make_gp(Grid((0.0, 0.0), (6, 5), 0.2), 3.0, mapping).posterior()
    np.testing.assert_allclose(posterior.mean, 3.0)
    np.testing.assert_allclose(posterior.variance, prior_variance(mapping), rtol=1e-3)
    np.testing.assert_allclose(posterior.gradient_variance, prior_gradient_variance(mapping), rtol=1e-3)


@each_model
def test_settings_are_read_back_from_a_kernel(mapping: MappingConfig) -> None:
    _, length, relief = model_settings(mapping)
    learned = dataclasses.replace(mapping, **{relief: 0.4, length: 1.7 * getattr(mapping, length)})
    found = learned_settings(mapping, terrain_kernel(learned))
    assert set(found) == set(model_settings(mapping)) - {"kernel"}
    for name, value in found.items():
        assert value == pytest.approx(getattr(learned, name), rel=1e-6)


def test_the_length_of_a_rough_kernel_follows_the_cells() -> None:
    assert is_rough(ROUGH)
    assert not is_rough(MAPPING)
    assert correlation_length(ROUGH) == pytest.approx(20.0 * 0.2)
    wider = dataclasses.replace(ROUGH, resolution=1.0, length_scale=9.0)
    assert correlation_length(wider) == pytest.approx(20.0)
    assert correlation_length(MAPPING) == MAPPING.length_scale


def test_a_rough_kernel_rings_less_far_from_a_step() -> None:
    rng = np.random.default_rng(1)
    xyz = np.column_stack([rng.uniform(0.0, 4.0, (4000, 2)), np.zeros(4000)])
    xyz[:, 2] = np.where(xyz[:, 0] > 2.0, 0.5, 0.0) + rng.normal(0.0, 0.005, 4000)
    error = {}
    for kernel in ("rbf", "matern32"):
        gp = make_gp(Grid((0.0, 0.0), (40, 40), 0.1), 0.0, MappingConfig(kernel=kernel))
        gp.update(xyz[:, :2], xyz[:, 2], np.full(4000, 0.02**2))
        mean = gp.posterior().mean[5:-5]
        error[kernel] = max(np.abs(mean[:, 3:16]).max(), np.abs(mean[:, 24:-3] - 0.5).max())
    assert error["matern32"] < 0.03 < error["rbf"], error


@each_model
def test_maps_of_any_size_share_their_tables_and_other_models_do_not(mapping: MappingConfig) -> None:
    assert cached_gp(dataclasses.replace(mapping, size_x=77.0)) is cached_gp(mapping)
    for name in (*model_settings(mapping)[1:], "resolution"):
        other = dataclasses.replace(mapping, **{name: 2.0 * getattr(mapping, name)})
        assert cached_gp(other) is not cached_gp(mapping)
    assert cached_gp(MAPPING, APPROXIMATE_TILES) is not cached_gp(MAPPING)
    assert block_spacing(MAPPING) == pytest.approx(cached_gp(MAPPING).prior.spacing)


def test_a_fitted_process_has_its_points() -> None:
    xy = np.random.default_rng(0).uniform(0.0, 3.0, (200, 2))
    xyz = np.column_stack([xy, np.full(200, 0.5)])
    gp = fit_gp(Grid((0.0, 0.0), (15, 15), 0.2), MAPPING, xyz, np.full(200, 1e-4), 1e-4)
    assert gp.count == 200
    np.testing.assert_allclose(gp.predict(np.array([[1.5, 1.5]])), 0.5, atol=0.02)


@pytest.mark.parametrize("place", [1.5, 1.53, 1.55, 1.57])
def test_a_default_map_hardly_overshoots_beside_a_step(place: float) -> None:
    rng = np.random.default_rng(1)
    xyz = np.column_stack([rng.uniform(0.0, 3.0, (9000, 2)), np.zeros(9000)])
    xyz[:, 2] = np.where(xyz[:, 0] > place, 0.5, 0.0) + rng.normal(0.0, 0.005, 9000)
    made = ElevationMap(MappingConfig(size_x=3.0, size_y=3.0), (1.5, 1.5))
    made.add(xyz, np.full(9000, 0.02**2))
    posterior = made.posterior()
    profile = posterior.mean[3:-3].mean(axis=0)
    assert -0.01 < profile.min() < profile.max() < 0.51
    beside = np.column_stack([np.linspace(1.2, 1.8, 601), np.full(601, 1.5)])
    heights = made.measured_heights(beside)[0]
    assert -0.03 < heights.min() < heights.max() < 0.53, "nor do heights between the cells"
    std = np.sqrt(posterior.variance[3:-3]).mean(axis=0)
    assert std[14:17].max() > 10.0 * std[5], "the cell with the step can't be followed, and says so"


def test_limits_of_heights_leave_ground_alone_that_no_points_surround() -> None:
    """Points in two rows: no block has points on all sides."""
    along = np.linspace(0.0, 3.0, 400)
    rows = [np.column_stack([along, np.full(400, y), np.full(400, z)]) for y, z in ((1.0, 0.0), (2.0, 0.3))]
    made = ElevationMap(MappingConfig(size_x=3.0, size_y=3.0), (1.5, 1.5))
    made.add(np.concatenate(rows), np.full(800, 0.02**2))
    low, high = made._with_points().height_limits_at(made.grid.x, made.grid.y[:, None])
    assert (low == -np.inf).all()
    assert (high == np.inf).all()
