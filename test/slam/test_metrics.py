"""Counts, durations and warnings of a run."""

from __future__ import annotations

from gpgmap_ros.slam.metrics import Metrics


def test_counts_by_name_and_by_reason() -> None:
    metrics = Metrics()
    metrics.count("clouds used", 3)
    metrics.count("points: held", 0)
    metrics.drop_cloud("too_late")
    metrics.drop_cloud("too_late")
    assert metrics["clouds used"] == 3
    assert metrics["never counted"] == 0
    assert metrics.dropped == {"too_late": 2}
    assert metrics.counts("points: ") == {"held": 0}, "what was counted as zero is there"
    assert "held" in metrics.counts("points: ")


def test_durations_as_totals_and_as_percentiles() -> None:
    metrics = Metrics()
    for seconds in (0.1, 0.2, 0.3):
        metrics.add_duration("fuse", seconds)
    metrics.add_duration("read", 2.0)
    assert list(metrics.seconds) == ["read", "fuse"], "the longest first"
    assert metrics.values({"fuse": "fusing"})["fusing (ms)"].startswith("median 200.0")


def test_a_warning_is_kept_once_and_in_order() -> None:
    metrics = Metrics()
    for text in ("b", "a", "b"):
        metrics.warn(text)
    assert metrics.warnings == ["b", "a"]
