"""Probabilities of slopes and steps against closed forms, draws and adaptive quadrature."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy import integrate, stats

from gpgmap_ros.config import TraversabilityConfig
from gpgmap_ros.mapping import traversability
from gpgmap_ros.mapping.traversability import probability_gentle, probability_low_step

LIMIT = 0.36
CONFIG = TraversabilityConfig()


def gentle(mean: tuple[float, float], std: tuple[float, float], limit: float = LIMIT) -> float:
    arguments = (np.array([value]) for value in (*mean, std[0] ** 2, std[1] ** 2))
    return float(probability_gentle(*arguments, limit)[0])


@pytest.mark.parametrize("std", [0.001, 0.03, 0.36, 2.0, 50.0])
def test_equal_variances_give_the_rice_distribution(std: float) -> None:
    for length in (0.0, 0.1, 0.35, 0.36, 0.37, 0.6, 5.0):
        for angle in (0.0, 0.5, math.pi / 4, 2.0, -1.2):
            mean = (length * math.cos(angle), length * math.sin(angle))
            expected = (
                stats.ncx2.cdf((LIMIT / std) ** 2, 2, (length / std) ** 2)
                if length
                else (1.0 - math.exp(-0.5 * (LIMIT / std) ** 2))
            )
            assert gentle(mean, (std, std)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "std", [(0.01, 0.3), (0.3, 0.01), (0.05, 0.1), (1.0, 0.02), (0.004, 0.1), (3.0, 0.5)]
)
def test_unequal_variances_agree_with_adaptive_quadrature(std: tuple[float, float]) -> None:
    for mean in ((0.0, 0.0), (0.3, 0.1), (-0.1, 0.34), (0.2, -0.4), (0.36, 0.0), (0.0, -0.36)):
        # polar coordinates: another way around the disc than the code's
        def ring(radius: float, mean: tuple[float, float] = mean) -> float:
            angles = np.linspace(0.0, 2.0 * np.pi, 4001)[:-1]
            density = stats.norm.pdf(radius * np.cos(angles), mean[0], std[0])
            density *= stats.norm.pdf(radius * np.sin(angles), mean[1], std[1])
            return radius * float(density.sum()) * angles[1]

        near = float(np.hypot(*mean))
        spread = 8.0 * max(std)
        marks = [edge for edge in (near - min(std), near, near + min(std)) if 0.0 < edge < LIMIT]
        low = max(0.0, near - spread)
        expected = (
            integrate.quad(ring, low, LIMIT, points=marks, limit=400, epsabs=1e-8)[0] if low < LIMIT else 0
        )
        assert gentle(mean, std) == pytest.approx(expected, abs=1e-4)


def test_a_gradient_known_exactly_is_a_comparison() -> None:
    assert gentle((0.2, 0.2), (0.0, 0.0)) == pytest.approx(1.0, abs=1e-6)
    assert gentle((0.3, 0.3), (0.0, 0.0)) == pytest.approx(0.0, abs=1e-6)


def test_what_is_not_known_is_nan() -> None:
    mean, variance = np.array([np.nan, 0.0, 0.0]), np.array([0.1, np.inf, np.nan])
    assert np.isnan(probability_gentle(mean, mean * 0.0, variance, np.full(3, 0.1), LIMIT)).all()


CONFIG = TraversabilityConfig(max_step=0.15, step_distance=0.2)


def test_large_maps_are_integrated_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a block holds, cells stay where they are; one variance may serve all of them."""
    rng = np.random.default_rng(3)
    gradient, variance = rng.normal(scale=0.3, size=(2, 9, 11)), rng.uniform(0.001, 0.1, size=(9, 11))
    expected = [
        [gentle((x, y), (np.sqrt(v), 0.2)) for x, y, v in zip(*row, strict=True)]
        for row in zip(*gradient, variance, strict=True)
    ]
    monkeypatch.setattr(traversability, "BLOCK", 10)
    found = probability_gentle(*gradient, variance, np.float64(0.04), LIMIT)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_map_is_derived_in_bands_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values, bit for bit, and no more memory at a time than a few bands need."""
    rng = np.random.default_rng(4)
    layers = {
        "elevation": np.cumsum(rng.normal(scale=0.02, size=(700, 300)), axis=0).astype(np.float32),
        **{f"gradient_{axis}": rng.normal(scale=0.4, size=(700, 300)).astype(np.float32) for axis in "xy"},
        **{
            name: np.full((700, 300), 0.01, np.float32)
            for name in ("variance", "gradient_x_variance", "gradient_y_variance")
        },
    }
    layers["elevation"][200:230, 40:90] = np.nan
    monkeypatch.setattr(traversability, "BLOCK", 1 << 30)
    whole = traversability.traversability(layers, 0.1, CONFIG)
    monkeypatch.setattr(traversability, "BLOCK", 3000)
    tracemalloc.start()
    banded = traversability.traversability(layers, 0.1, CONFIG)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(banded, whole)
    assert banded.dtype == np.float32
    assert peak < 3 * banded.nbytes


def test_steps_agree_with_draws() -> None:
    rng = np.random.default_rng(0)
    elevation, variance = rng.normal(0.0, 0.1, (5, 4)), rng.uniform(0.001, 0.01, (5, 4))
    found = probability_low_step(elevation, variance, 0.1, CONFIG)  # one cell to either side
    draws = elevation + np.sqrt(variance) * rng.standard_normal((200_000, 5, 4))
    ends = [((2, 2), (2, 0)), ((3, 1), (1, 1)), ((3, 2), (1, 0)), ((3, 0), (1, 2))]  # around cell (2, 1)
    low = [np.mean(np.abs(draws[:, *ahead] - draws[:, *behind]) <= 0.15) for ahead, behind in ends]
    assert found[2, 1] == pytest.approx(min(low), abs=0.005)


def test_a_kerb_blocks_the_cells_beside_it_and_no_others() -> None:
    elevation = np.zeros((9, 12))
    elevation[:, 6:] = 0.2
    low = probability_low_step(elevation, np.full(elevation.shape, 1e-6), 0.1, CONFIG)
    np.testing.assert_allclose(low[:, [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]], 1.0, atol=1e-6)
    np.testing.assert_allclose(low[:, [5, 6]], 0.0, atol=1e-6)
    turned = probability_low_step(elevation.T, np.full(elevation.T.shape, 1e-6), 0.1, CONFIG)
    np.testing.assert_allclose(turned, low.T, atol=1e-12)


def test_a_step_beside_the_unknown_is_judged_by_what_is_known() -> None:
    elevation = np.zeros((5, 5))
    elevation[:, 3:] = np.nan
    low = probability_low_step(elevation, np.full((5, 5), 1e-4), 0.1, CONFIG)
    assert np.isnan(low[:, 3:]).all()
    np.testing.assert_allclose(low[:, :3], 1.0, atol=1e-6)


def test_a_map_of_one_cell_has_no_steps() -> None:
    assert probability_low_step(np.zeros((1, 1)), np.ones((1, 1)), 0.1, CONFIG).tolist() == [[1.0]]
