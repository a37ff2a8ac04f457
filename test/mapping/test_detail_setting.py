"""Which maps estimate relief below their cells: those made of all their points at once, by default."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from small_survey import SmallSurvey

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.survey import trend_of
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

SIZE = 6.0
LAYERS = ("elevation", "variance", "gradient_x", "gradient_x_variance", "noise_variance")


def rough_ground(seed: int, count: int, cell: float, size: float) -> np.ndarray:
    """Points (N, 3) on waves of half a cell to 40 cells, as steep whatever their length."""
    rng = np.random.default_rng(1)
    length = np.exp(rng.uniform(np.log(0.5), np.log(40.0), 300))
    angle, phase = rng.uniform(0.0, 2.0 * np.pi, (2, 300))
    waves = 2.0 * np.pi / length * np.array([np.cos(angle), np.sin(angle)])
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, size / cell, (count, 2))
    z = np.cos(xy @ waves + phase) @ (0.01 * length) + 0.005 * rng.normal(size=count)
    return cell * np.column_stack([xy, z])


def settings(detail: str | None, **more: float) -> Config:
    """detail: None for what is so by default"""
    named = {f"mapping.{name}": value for name, value in more.items()}
    return with_settings(Config(), named if detail is None else {**named, "mapping.detail": detail})


def live_map(detail: str | None, beside: bool) -> GPGMap:
    """Of clouds that come one after another. beside: as the node solves it"""
    config = with_settings(settings(detail, size_x=SIZE, size_y=SIZE), {"submap.enabled": False})
    pipeline, mount = MappingPipeline(config, solved_beside=beside), np.eye(4)
    mount[2, 3] = 1.0
    for stamp in range(1, 5):
        points = rough_ground(stamp, 12_000, 0.1, SIZE) - [0.5 * SIZE, 0.5 * SIZE, 1.0]
        pipeline.add_cloud(points, mount, stamp * 1_000_000_000, np.eye(6) * 1e-8)
        if not beside:
            gpgmap = pipeline.gpgmap()
            continue
        task = pipeline.map_to_solve()
        assert task is not None
        solved = task.solve()
        pipeline.look_at(solved)
        task.renew()
        gpgmap = solved.gpgmap
    assert gpgmap is not None
    return gpgmap


def batch_map(detail: str | None) -> GPGMap:
    return gpgmap_from_points(rough_ground(1, 24_000, 0.1, SIZE), 0.1, settings(detail))


def survey_map(detail: str | None, folder: Path) -> GPGMap:
    """A window of what `gpgmap map` makes."""
    points = rough_ground(1, 24_000, 1.0, 60.0)
    survey = SmallSurvey(settings(detail, resolution=1.0), trend_of(points, 40.0), folder, [points])
    out = survey.window(slice(0, 48), slice(0, 48))
    assert out is not None
    return out


def assert_same(one: GPGMap, other: GPGMap) -> None:
    for name in LAYERS:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def change(one: GPGMap, other: GPGMap) -> float:
    """Difference of the heights, in standard deviations (rms)."""
    known = one.known & other.known
    assert known.mean() > 0.5
    difference = (one["elevation"] - other["elevation"])[known] / np.sqrt(other["variance"][known])
    return float(np.sqrt(np.mean(difference**2)))


@pytest.mark.parametrize("beside", [False, True])
def test_a_live_map_has_none_unless_it_is_asked_for(beside: bool) -> None:
    make = partial(live_map, beside=beside)
    default, never, always = make(None), make("never"), make("always")
    assert_same(default, never)
    assert change(always, default) > 0.1


def test_a_map_of_points_has_it() -> None:
    default, never, batch, always = (batch_map(detail) for detail in (None, "never", "batch", "always"))
    assert_same(default, batch)
    assert_same(default, always)
    assert change(default, never) > 0.1
    for name in ("gradient_x", "gradient_y"):
        np.testing.assert_allclose(default[name], never[name], atol=1e-6, err_msg=name)


def test_a_survey_has_it(tmp_path: Path) -> None:
    default, never, always = (
        survey_map(detail, tmp_path / str(detail)) for detail in (None, "never", "always")
    )
    assert_same(default, always)
    assert change(default, never) > 0.1


@pytest.mark.parametrize("changes", [{"mapping.kernel": "rbf"}, {"mapping.learn_noise": False}])
def test_maps_that_can_have_none_have_none(changes: dict[str, object]) -> None:
    points = rough_ground(1, 6_000, 0.1, 3.0)
    never, always = (
        gpgmap_from_points(points, 0.1, with_settings(settings(detail), changes))
        for detail in ("never", "always")
    )
    np.testing.assert_array_equal(never["elevation"], always["elevation"])
