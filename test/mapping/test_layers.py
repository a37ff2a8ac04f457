"""Derived layers on planes whose slopes and normals are known."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.config import Config, TraversabilityConfig, VisualConfig
from gpgmap_ros.mapping import GPGMap, derived_layers
from gpgmap_ros.mapping.layers import LAYERS

GRID = Grid((0.0, 0.0), (4, 6), 0.5)


def plane(gx: float = 0.3, gy: float = -0.4, variance: float = 1e-4, config: Config | None = None) -> GPGMap:
    """z = gx x + gy y with cell (1, 2) unknown and the gradient of cell (3, 5) uncertain."""
    x, y = np.meshgrid(GRID.x, GRID.y)
    given = {
        "elevation": gx * x + gy * y,
        "variance": np.full(GRID.shape, variance),
        "gradient_x": np.full(GRID.shape, gx),
        "gradient_y": np.full(GRID.shape, gy),
        "gradient_x_variance": np.full(GRID.shape, variance),
        "gradient_y_variance": np.full(GRID.shape, variance),
    }
    for name in ("elevation", "gradient_x", "gradient_y"):
        given[name][1, 2] = np.nan
    given["gradient_y_variance"][3, 5] = 1.0
    float32 = {name: layer.astype(np.float32) for name, layer in given.items()}
    return GPGMap(GRID, float32, config=config or Config())


KNOWN = np.ones(GRID.shape, dtype=bool)
KNOWN[1, 2] = False


def test_the_surface_and_its_bounds() -> None:
    gpgmap = plane(variance=0.04)
    np.testing.assert_allclose(
        gpgmap["upper_bound"] - gpgmap["elevation"], np.where(KNOWN, 0.4, np.nan), rtol=1e-5
    )
    np.testing.assert_allclose(
        gpgmap["elevation"] - gpgmap["lower_bound"], np.where(KNOWN, 0.4, np.nan), rtol=1e-5
    )


def test_slope_and_normal_of_a_plane() -> None:
    gpgmap = plane()
    np.testing.assert_allclose(gpgmap["gradient_magnitude"][KNOWN], 0.5, rtol=1e-6)
    np.testing.assert_allclose(gpgmap["slope"][KNOWN], math.atan(0.5), rtol=1e-6)
    # the normal is upright to both tangents, of unit length and looks up
    n = np.stack([gpgmap[f"normal_{axis}"] for axis in "xyz"], axis=-1)[KNOWN]
    np.testing.assert_allclose(n @ [1.0, 0.0, 0.3], 0.0, atol=1e-6)
    np.testing.assert_allclose(n @ [0.0, 1.0, -0.4], 0.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(n, axis=1), 1.0, rtol=1e-6)
    assert (n[:, 2] > 0).all()
    for name in ("slope", "normal_x", "normal_y", "normal_z", "traversability"):
        assert np.isnan(gpgmap[name][~KNOWN]).all()


def test_traversability_compares_slopes_and_steps() -> None:
    def least(gx: float, **limits: float) -> float:
        config = Config(traversability=TraversabilityConfig(**limits))
        return float(np.nanmin(plane(gx, 0.0, 1e-6, config)["traversability"][:3]))

    assert least(0.3, max_slope=math.atan(0.35), max_step=1.0) == pytest.approx(1.0, abs=1e-4)
    assert least(0.3, max_slope=math.atan(0.25), max_step=1.0) == pytest.approx(0.0, abs=1e-4)
    assert least(0.3, max_slope=math.atan(0.30), max_step=1.0) == pytest.approx(0.5, abs=0.01)
    # 0.3 over two cells of 0.5 m
    assert least(0.3, max_slope=1.0, max_step=0.25, step_distance=1.0) == pytest.approx(0.0, abs=1e-4)


def test_the_visual_has_one_scale_and_masks_what_is_uncertain() -> None:
    config = Config(visual=VisualConfig(max_gradient=2.0, max_gradient_std=0.1))
    visual = plane(config=config)["gradient_visual"]
    assert visual.dtype == np.uint8
    assert visual[0, 0] == round(1 + 254 * 0.25)
    assert visual[1, 2] == derived_layers.MASKED
    assert visual[3, 5] == derived_layers.MASKED
    assert plane(0.0, 0.0, config=config)["gradient_visual"][0, 0] == derived_layers.FLATTEST
    assert plane(30.0, 0.0, config=config)["gradient_visual"][0, 0] == derived_layers.STEEPEST


def test_layers_are_computed_once_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = LAYERS["slope"].formula
    assert original is not None

    def counted(stack: object, settings: object) -> np.ndarray:
        calls.append(1)
        return original(stack, settings)

    monkeypatch.setitem(LAYERS, "slope", dataclasses.replace(LAYERS["slope"], formula=counted))
    gpgmap = plane()
    assert "slope" in gpgmap.layers
    assert not calls
    assert gpgmap["slope"] is gpgmap["slope"]
    assert len(calls) == 1


def test_a_layer_cannot_be_changed_by_accident() -> None:
    with pytest.raises(ValueError, match="read-only"):
        plane()["slope"][0, 0] = 1.0


def test_a_layer_whose_inputs_are_missing_is_named() -> None:
    with pytest.raises(KeyError, match="no layer 'gradient_x'"):
        GPGMap(GRID, {"elevation": np.zeros(GRID.shape, np.float32)})["slope"]
