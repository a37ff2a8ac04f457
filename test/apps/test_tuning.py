"""Learning settings: how points are divided, how a prediction is judged, and what is written back."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.apps.tuning import (
    CHOOSE,
    MIN_POINTS,
    TEST,
    TRAIN,
    Candidate,
    Points,
    TuneError,
    apply_learned,
    differences,
    evaluate,
    split,
)
from gpgmap_ros.config import Config, MappingConfig, with_settings
from gpgmap_ros.mapping.noise import sensor_model

CLOUDS = 28


def candidate(length_scale: float, relief_std: float, factor: float) -> Candidate:
    """Settings in cells of 0.2 m."""
    mapping = MappingConfig(
        kernel="rbf", learn_noise=False, resolution=0.2, length_scale=length_scale, relief_std=relief_std
    )
    return Candidate(mapping, factor)


@pytest.fixture(scope="module")
def divided() -> Points:
    rng = np.random.default_rng(0)
    xy = rng.uniform(40.0, 44.0, (MIN_POINTS, 2))
    z = 100.0 + 0.3 * np.sin(2.0 * xy[:, 0]) + rng.normal(0.0, 0.02, len(xy))
    cloud = np.arange(len(xy)) % CLOUDS
    return split(np.column_stack([xy, z]), np.full(len(xy), 0.02**2), cloud, Config())


def test_a_cloud_is_never_divided(divided: Points) -> None:
    cloud = np.arange(MIN_POINTS) % CLOUDS
    folds = [set(divided.fold[cloud == number].tolist()) for number in range(CLOUDS)]
    assert all(len(fold) == 1 for fold in folds)
    assert {fold for each in folds for fold in each} == {TRAIN, CHOOSE, TEST}


def test_most_points_are_learned_from(divided: Points) -> None:
    assert len(divided.part(TRAIN).xyz) > len(divided.xyz) / 2
    parts = sum(len(divided.part(fold).xyz) for fold in (TRAIN, CHOOSE, TEST))
    assert parts == MIN_POINTS


def test_heights_are_about_a_trend_and_positions_begin_at_zero(divided: Points) -> None:
    assert abs(divided.xyz[:, 2].mean()) < 0.2
    np.testing.assert_allclose(divided.xyz[:, :2].min(axis=0), 0.0)
    assert not divided.sensed


def test_too_few_points_are_refused() -> None:
    few = MIN_POINTS - 1
    with pytest.raises(TuneError, match=f"only {few} points"):
        split(np.zeros((few, 3)), np.ones(few), np.arange(few), Config())


def test_right_settings_score_better_than_wrong_ones(divided: Points) -> None:
    right, smooth, sure = (
        evaluate(divided, candidate(length, 0.3, factor), TEST)
        for length, factor in ((1.0, 1.0), (20.0, 1.0), (1.0, 0.01))
    )
    assert right.rmse == pytest.approx(0.02, rel=0.3)
    assert 0.9 < right.within <= 1.0
    assert right.log_density > smooth.log_density
    assert right.log_density > sure.log_density


def test_a_factor_on_variances_scales_every_standard_deviation() -> None:
    before = Config()
    after = apply_learned(before, candidate(0.8, 0.5, 4.0), sensed=True)
    assert after.mapping.length_scale == 0.8
    assert after.mapping.relief_std == 0.5
    assert after.noise.height_std == pytest.approx(2.0 * before.noise.height_std, rel=1e-2)
    model, scaled = sensor_model(before.noise), sensor_model(after.noise)
    for name, value in vars(model).items():
        assert getattr(scaled, name) == pytest.approx(2.0 * value, rel=1e-2), name


def test_without_a_sensor_model_only_the_height_noise_is_scaled() -> None:
    before = Config()
    after = apply_learned(before, candidate(0.8, 0.5, 4.0), sensed=False)
    assert sensor_model(after.noise) == sensor_model(before.noise)
    assert after.noise.height_std == pytest.approx(2.0 * before.noise.height_std, rel=1e-2)


def test_only_settings_that_changed_are_listed() -> None:
    before = with_settings(Config(), {"mapping.kernel": "rbf"})
    after = with_settings(before, {"mapping.length_scale": 2.0 * before.mapping.length_scale})
    scale = before.mapping.length_scale
    assert differences(before, after) == [("mapping.length_scale", scale, 2.0 * scale)]
    assert differences(before, before) == []
