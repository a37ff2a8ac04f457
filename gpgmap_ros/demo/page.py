"""The report of the live run: the page that `gpgmap replay` writes, filled from what the node left and published."""

from __future__ import annotations

import datetime

import numpy as np

from gpgmap_ros import __version__
from gpgmap_ros.demo.live import Events
from gpgmap_ros.demo.outcome import Outcome, submap_outline
from gpgmap_ros.demo.recording import POINTS_TOPIC
from gpgmap_ros.demo.scene import Scene
from gpgmap_ros.demo.summary import Summary
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.report.content import Content, closure_views, layers_of, settings_rows, track_of

FILES = [
    ("before_after.png", "the map by odometry and with the loop closed"),
    ("map.npz", "all layers of the whole map"),
    ("last_map.npz", "the last map and path that were received over DDS"),
    ("trajectory.txt", "TUM format, corrected"),
    ("odometry.txt", "TUM format, as recorded"),
    ("config.yaml", "the effective settings"),
    ("summary.json", "this page's numbers"),
]


def demo_content(events: Events, scene: Scene, outcome: Outcome, gpgmap: GPGMap, summary: Summary) -> Content:
    """gpgmap: the whole map with the loops closed"""
    corrected = outcome.correct(scene.odometry)
    submaps = [
        submap_outline(info.id, info.grid.bounds, outcome.corrected_poses[info.id])
        for info in outcome.store.infos()
    ]
    now = datetime.datetime.now(datetime.UTC)
    return Content(
        title="A rover returns to its start",
        subtitle="GPGMap report · gpgmap demo, mapped live over DDS",
        abstract=abstract(summary),
        facts=facts(summary),
        map=layers_of(gpgmap),
        tracks=[
            track_of("odometry", "odometry", scene.odometry),
            track_of("corrected", "corrected", corrected),
            track_of("truth", "truth", scene.truth),
        ],
        closures=closure_views(outcome.closures, outcome.corrected_poses, outcome.map_of),
        submaps=submaps,
        timings=durations(events),
        settings=settings_rows(outcome.config),
        files=FILES,
        made=f"Made by gpgmap {__version__} on {now:%Y-%m-%d %H:%M} UTC.",
    )


def abstract(summary: Summary) -> str:
    loops = len(summary.closures_received)
    closed = (
        f"{loops} loop closure{'s' if loops != 1 else ''} received from the node reduced"
        f" {summary.drift_before_m:.2f} m of drift to {summary.drift_after_m:.2f} m, at the end of the published path"
        if loops
        else f"no loop was closed, and {summary.drift_before_m:.2f} m of drift remain"
    )
    return (
        f"A simulated rover drove {summary.distance_m:.0f} m over real relief and came back to its start, with"
        f" odometry that drifts. The node mapped {summary.clouds_used} clouds with {summary.points_used:,} points as"
        f" they arrived; {closed}. Against the true ground the map is off by {100 * summary.rmse_m:.1f} cm (RMSE);"
        f" by odometry alone it would be {100 * summary.rmse_before_m:.1f} cm."
    )


def facts(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("clouds", POINTS_TOPIC),
        ("poses", "/tf, with drift"),
        ("clouds used", f"{summary.clouds_used} of {summary.clouds_sent}"),
        ("distance", f"{summary.distance_m:.1f} m"),
        ("submaps", str(summary.submaps)),
        ("closures", str(len(summary.closures_received))),
        ("drift by odometry", f"{summary.drift_before_m:.2f} m"),
        ("drift, loop closed", f"{summary.drift_after_m:.2f} m"),
        ("latency, median", f"{summary.latency_median_ms:.0f} ms"),
        ("known ground", f"{summary.known_m2:,.0f} m²"),
    ]


def durations(events: Events) -> list[tuple[str, float]]:
    """Median time of each stage of the node in seconds, from its diagnostics; longest first."""
    found = []
    for diagnostics in (events.mapping, events.closing):
        for key, value in diagnostics.items():
            if key.endswith(" (ms)") and value.startswith("median "):
                median = float(value.removeprefix("median ").partition(",")[0])
                found.append((f"{key.removesuffix(' (ms)')}, median", round(median / 1e3, 4)))
    return sorted(found, key=lambda item: -item[1]) if np.any([item[1] for item in found]) else []
