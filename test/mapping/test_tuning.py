"""Tuning: the kernel is chosen by the data, and held-out scores never get worse."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.apps import tuning
from gpgmap_ros.apps.tuning import Tuned, TuneError, split, tune
from gpgmap_ros.config import Config, with_settings

CONFIG = with_settings(
    Config(),
    {
        "mapping.kernel": "rbf", "mapping.resolution": 0.25, "mapping.length_scale": 1.25, "mapping.relief_std": 0.3,
        "noise.height_std": 0.02,
    },
)  # fmt: skip


def ridges(xy: np.ndarray) -> np.ndarray:
    """Ground with breaks in slope and steps, which no smooth kernel fits."""
    fold = np.abs((0.8 * xy[:, 0] + 0.3 * xy[:, 1]) % 2.0 - 1.0)
    return 0.4 * fold + 0.3 * (np.sin(1.7 * xy[:, 1]) > 0.3)


def tuned(count: int, config: Config, seed: int = 0, noise: float = 0.03) -> Tuned:
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, 6.0, (count, 2))
    xyz = np.column_stack([xy, ridges(xy) + rng.normal(0.0, noise, count)])
    points = split(xyz, np.full(count, config.noise.height_std**2), np.arange(count), config)
    return tune(points, config, lambda done, total, what: None)


@pytest.fixture(autouse=True)
def few_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One search of a smooth kernel instead of four."""
    monkeypatch.setattr(tuning, "STARTS", {**tuning.STARTS, "rbf": (1.0,)})


def test_every_kernel_is_tried() -> None:
    assert set(tuning.STARTS) == {"rbf", "matern32", "matern52", "matern54"}


def test_broken_ground_gets_a_rough_kernel() -> None:
    result = tuned(1500, CONFIG)
    assert result.config.mapping.kernel.startswith("matern")
    before, after = result.score
    assert after.log_density > before.log_density
    assert after.rmse <= before.rmse
    names = [name for name, _, _ in result.changed]
    assert "mapping.kernel" in names
    assert "mapping.length_scale" not in names, "which a rough kernel does not have"


def test_nothing_gets_worse_from_few_points() -> None:
    before, after = tuned(500, CONFIG, seed=1).score
    assert after.log_density >= before.log_density
    assert after.rmse <= before.rmse


def test_settings_that_nothing_beats_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    # From a length scale forty times too long the search finds only surfaces that miss the steps.
    monkeypatch.setattr(tuning, "STARTS", {"rbf": (40.0,)})
    config = with_settings(CONFIG, {"mapping.kernel": "matern32", "noise.height_std": 0.03})
    result = tuned(600, config)
    assert result.config == config
    assert result.changed == []
    assert result.score[0] == result.score[1]
    assert any("stay as they were" in text for text in result.warnings)


def test_too_few_points_are_refused() -> None:
    with pytest.raises(TuneError, match="only 499 points: 500 are needed"):
        tuned(499, CONFIG)
