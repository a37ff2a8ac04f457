"""The demo in numbers: for programs (summary.json, --json) and for people."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpgmap_ros.demo.live import Events
from gpgmap_ros.demo.outcome import Outcome, final_drift
from gpgmap_ros.demo.scene import Scene
from gpgmap_ros.mapping import GPGMap


@dataclass(frozen=True)
class Summary:
    """What the demo did.

    latency: from a cloud leaving the player to the map that contains it arriving
    drift: position error at the last pose of the received path, by odometry and corrected
    rmse: of the elevation of the whole map, stitched by odometry and with corrected poses
    """

    clouds_sent: int
    clouds_received: int
    clouds_used: int
    clouds_dropped: dict[str, int]
    points_used: int
    maps_received: int
    latency_median_ms: float
    latency_p95_ms: float
    submaps: int
    closures_received: list[tuple[int, int]]
    paths_received: int
    distance_m: float
    drift_before_m: float
    drift_after_m: float
    known_m2: float
    rmse_before_m: float
    rmse_m: float
    within_two_std: float
    seconds: float
    files: list[str]


def summarize(
    events: Events,
    scene: Scene,
    outcome: Outcome,
    before: GPGMap,
    after: GPGMap,
    seconds: float,
    files: list[Path],
) -> Summary:
    """before, after: the whole map by odometry and with the loops closed"""
    dropped = {
        key.removeprefix("clouds dropped: "): int(value)
        for key, value in events.mapping.items()
        if key.startswith("clouds dropped: ")
    }
    latency = [
        1e3 * (wall - events.sent[stamp]) for stamp, wall in events.maps.items() if stamp in events.sent
    ]
    drift_before, drift_after = final_drift(scene, outcome)
    error_before, _ = scene.height_errors(before)
    error, std = scene.height_errors(after)
    return Summary(
        clouds_sent=len(events.sent),
        clouds_received=int(events.mapping.get("clouds received", 0)),
        clouds_used=int(events.mapping.get("clouds used", 0)),
        clouds_dropped=dropped,
        points_used=int(events.mapping.get("points used", 0)),
        maps_received=len(events.maps),
        latency_median_ms=round(float(np.median(latency)), 1),
        latency_p95_ms=round(float(np.percentile(latency, 95)), 1),
        submaps=len(outcome.corrected_poses),
        closures_received=list(events.closures),
        paths_received=events.paths,
        distance_m=round(scene.truth.length, 1),
        drift_before_m=round(drift_before, 3),
        drift_after_m=round(drift_after, 3),
        known_m2=round(float(after.known.sum()) * after.grid.resolution**2, 1),
        rmse_before_m=round(float(np.sqrt(np.mean(error_before**2))), 4),
        rmse_m=round(float(np.sqrt(np.mean(error**2))), 4),
        within_two_std=round(float(np.mean(np.abs(error) <= 2.0 * std)), 4),
        seconds=round(seconds, 1),
        files=[str(path) for path in files],
    )


def describe_summary(summary: Summary) -> str:
    """The summary for people."""
    drops = ", ".join(f"{count} {reason}" for reason, count in summary.clouds_dropped.items()) or "none"
    pairs = ", ".join(f"{a}-{b}" for a, b in summary.closures_received)
    loops = f"{len(summary.closures_received)} received ({pairs})" if pairs else "none received"
    files = "\n".join(f"            {path}" for path in summary.files)
    return (
        f"  clouds    {summary.clouds_sent} sent, {summary.clouds_received} received, {summary.clouds_used} used"
        f" ({summary.points_used:,} points); dropped: {drops}\n"
        f"  maps      {summary.maps_received} received, latency {summary.latency_median_ms:.0f} ms median,"
        f" {summary.latency_p95_ms:.0f} ms p95 (cloud sent to map received)\n"
        f"  closures  {loops} among {summary.submaps} submaps; {summary.paths_received} corrected paths received\n"
        f"  drift     {summary.drift_before_m:.2f} m by odometry after {summary.distance_m:.0f} m,"
        f" {summary.drift_after_m:.2f} m with the loop closed\n"
        f"  map       {summary.known_m2:,.0f} m2; RMSE against the true ground"
        f" {100 * summary.rmse_before_m:.1f} cm by odometry, {100 * summary.rmse_m:.1f} cm with the loop closed,"
        f" {summary.within_two_std:.0%} within two standard deviations\n"
        f"  files\n{files}\n"
        f"  {summary.seconds:.0f} s in all"
    )
