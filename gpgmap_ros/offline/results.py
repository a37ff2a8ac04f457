"""What a replay leaves: files for programs, pictures and a report for people."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpgmap_ros import __version__
from gpgmap_ros.geometry import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import write_geotiffs, write_map_npz
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.staged import write_json
from gpgmap_ros.io.trajectory import Trajectory, write_tum
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.report.content import Content, closure_views, layers_of, settings_rows, track_of
from gpgmap_ros.report.page import write_report
from gpgmap_ros.viz.rendering import STYLES, picture, png

if TYPE_CHECKING:  # a survey has results too, and needs none of the packages that read recordings
    from gpgmap_ros.offline.replay import Replay

PICTURES = ("elevation", "standard_deviation", "gradient_magnitude", "slope", "traversability")
FATES = {
    "used": "in the map",
    "outside": "outside the window around the robot",
    "held": "contradict the map",
    "not_finite": "not finite",
    "range": "too near or too far",
    "robot": "the robot itself",
    "height": "too high or too low",
    "thinned": "thinned out",
    "overhang": "above the lowest surface",
}

STAGES = {
    "read": "reading",
    "fuse": "fusing clouds",
    "submaps": "solving submaps (beside)",
    "close loops": "closing loops (beside)",
    "wait for submaps": "waiting for these",
    "stitch": "one map of all submaps",
}
"""The stages of a replay as people read them; some run beside the others, so that the sum is not the time it took."""


def write_results(
    folder: RunFolder,
    replay: Replay,
    gpgmap: GPGMap | None,
    summary: dict[str, Any],
    stage: Callable[[str], None],
) -> dict[str, Any]:
    """Write everything but run.json; returns the summary with what is known now. stage: told what is under way."""
    odometry, corrected = replay.odometry, replay.corrected
    stage("trajectory and closures")
    write_tum(folder.odometry, odometry)
    write_tum(folder.trajectory, corrected)
    if replay.closer is not None and replay.submaps:
        replay.closer.write_g2o(folder.graph)
        write_json(folder.closures, [closure_row(item) for item in replay.closer.closures])
    summary = {**summary, **numbers(replay, gpgmap, odometry, corrected)}
    stage("layers and report")
    with ThreadPoolExecutor(1, "layers") as beside:
        written = None
        if gpgmap is not None:
            dict(gpgmap.layers)  # now, not in both threads
            crs = Crs(name=f"local frame '{replay.config.map_frame}'")
            written = beside.submit(write_map, folder, gpgmap, crs)
        content = page_of(replay, gpgmap, summary, odometry, corrected)
        if written is not None:
            written.result()
    write_report(folder.report, content)
    return summary


def page_of(
    replay: Replay,
    gpgmap: GPGMap | None,
    summary: dict[str, Any],
    odometry: Trajectory,
    corrected: Trajectory,
) -> Content:
    """What the report says of a replay."""
    closures = replay.closer.closures if replay.closer is not None else []
    poses: dict[int, Array] = dict(replay.closer.poses) if replay.closer is not None else {}
    return Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {', '.join(Path(item).name for item in summary['sources'])}",
        abstract=abstract(summary),
        facts=facts(summary),
        map=layers_of(gpgmap) if gpgmap is not None else None,
        tracks=tracks(odometry, corrected, summary),
        closures=closure_views(closures, poses, replay.map_of),
        submaps=[outline(item, poses.get(item.id, item.T_map_submap)) for item in replay.submaps],
        timings=[(STAGES[name], round(value, 4)) for name, value in replay.tally.seconds.most_common()],
        fates=[
            (text, replay.tally.points[name]) for name, text in FATES.items() if replay.tally.points[name]
        ],
        warnings=[*summary["losses"], *summary["warnings"]],
        settings=settings_rows(replay.config),
        files=FILES,
        made=made(),
    )


FILES = [
    ("map.npz", "all layers"),
    ("layers/elevation.tif", "GeoTIFF; the other layers beside it"),
    ("trajectory.txt", "TUM format, corrected"),
    ("odometry.txt", "TUM format, as recorded"),
    ("closures.g2o", "pose graph"),
    ("closures.json", "every comparison with its verdict"),
    ("config.yaml", "the effective settings"),
    ("run.json", "this page's numbers"),
]


def write_map(folder: RunFolder, gpgmap: GPGMap, crs: Crs) -> None:
    write_map_npz(folder.map, gpgmap, crs)
    write_geotiffs(folder.layers, gpgmap, crs)
    for name in PICTURES:
        png(picture(gpgmap, name), folder.layers / f"{name}.png")


def numbers(
    replay: Replay, gpgmap: GPGMap | None, odometry: Trajectory, corrected: Trajectory
) -> dict[str, Any]:
    """What happened, in numbers."""
    tally = replay.tally
    closures = replay.closer.closures if replay.closer is not None else []
    moved = np.linalg.norm(corrected.positions - odometry.positions, axis=1) if len(odometry) else np.zeros(1)
    seconds = float(odometry.stamps[-1] - odometry.stamps[0]) / 1e9 if len(odometry) > 1 else 0.0
    known = int(gpgmap.known.sum()) if gpgmap is not None else 0
    return {
        "clouds": {"read": tally.clouds, "used": tally.used, "dropped": dict(tally.dropped)},
        "points": dict(tally.points),
        "seconds_of_data": round(seconds, 3),
        "way_m": round(odometry.length, 3),
        "submaps": len(replay.submaps),
        "closures": {
            "compared": len(closures),
            "accepted": sum(item.accepted for item in closures),
            "largest_correction_m": round(float(moved.max()), 3),
            "correction_at_the_end_m": round(float(moved[-1]), 3),
        },
        "map": None
        if gpgmap is None
        else {
            "frame": gpgmap.frame_id,
            "resolution_m": gpgmap.grid.resolution,
            "cells": list(gpgmap.grid.shape),
            "origin": list(gpgmap.grid.origin),
            "known_m2": round(known * gpgmap.grid.resolution**2, 1),
            "median_std_m": round(float(np.sqrt(np.median(gpgmap["variance"][gpgmap.known]))), 4)
            if known
            else None,
        },
        "timings_s": {name: round(value, 4) for name, value in tally.seconds.most_common()},
        "warnings": [*summary_warnings(replay)],
    }


def summary_warnings(replay: Replay) -> list[str]:
    tally = replay.tally
    found = list(tally.warnings)
    dropped = tally.dropped.total()
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in tally.dropped.most_common())
        found.insert(0, f"{dropped} of {tally.clouds} clouds were not used: {reasons}")
    if tally.points["points"] and tally.points["used"] < 0.05 * tally.points["points"]:
        most = max((name for name in FATES if name != "used"), key=lambda name: tally.points[name])
        found.append(
            f"only {tally.points['used'] / tally.points['points']:.1%} of the points are in the map; most are"
            f" {FATES[most]}: see the settings in group 'filter'"
        )
    return found


def abstract(summary: dict[str, Any]) -> str:
    """The run in a few sentences."""
    clouds, closures, chosen = summary["clouds"], summary["closures"], summary["chosen"]
    if summary["map"] is None:
        return (
            f"No map was made: {clouds['read']} clouds were read from {chosen['topic']}, none could be used."
        )
    text = (
        f"{clouds['used']:,} clouds with {summary['points'].get('used', 0):,} points, taken over"
        f" {summary['seconds_of_data']:,.0f} s and {summary['way_m']:,.0f} m, make a map of"
        f" {summary['map']['known_m2']:,.0f} m² of ground in cells of {summary['map']['resolution_m']:g} m."
    )
    if summary["submaps"]:
        text += f" They were kept as {summary['submaps']} submaps."
    if closures["accepted"]:
        text += (
            f" Of {closures['compared']} comparisons between submaps {closures['accepted']} were accepted as loop"
            f" closures; they move the trajectory by up to {closures['largest_correction_m']:.2f} m, and its end by"
            f" {closures['correction_at_the_end_m']:.2f} m."
        )
    elif closures["compared"]:
        text += (
            f" {closures['compared']} pairs of submaps were compared; none was accepted as a loop closure."
        )
    if summary["status"] == "interrupted":
        text += " The replay was interrupted: this is what there was until then."
    return text


def facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    chosen = summary["chosen"]
    poses = chosen["pose_topic"] or {"tf": "/tf", "still": "none (standing)"}[chosen["pose_source"]]
    rows = [
        ("clouds", chosen["topic"]),
        ("poses", poses),
        ("map frame", chosen["map_frame"]),
        ("clouds used", f"{summary['clouds']['used']:,} of {summary['clouds']['read']:,}"),
        ("way", f"{summary['way_m']:,.1f} m"),
        ("duration", f"{summary['seconds_of_data']:,.1f} s"),
        ("submaps", str(summary["submaps"])),
        ("closures", f"{summary['closures']['accepted']} of {summary['closures']['compared']}"),
    ]
    if summary["map"] is not None:
        rows.append(("known ground", f"{summary['map']['known_m2']:,.0f} m²"))
        if summary["map"]["median_std_m"] is not None:
            rows.append(("median std", f"{100 * summary['map']['median_std_m']:.1f} cm"))
    if summary.get("times_real_time"):
        rows.append(("speed", f"{summary['times_real_time']:.1f} x real time"))
    return rows


def tracks(odometry: Trajectory, corrected: Trajectory, summary: dict[str, Any]) -> list[dict[str, Any]]:
    if not len(odometry):
        return []
    lines = [track_of("odometry", "odometry", odometry)]
    if summary["closures"]["accepted"]:
        lines.append(track_of("corrected", "corrected", corrected))
    return lines


def outline(submap: Any, T_map_submap: Array) -> dict[str, Any]:
    x_min, y_min, x_max, y_max = (submap.grid if hasattr(submap, "grid") else submap.gpgmap.grid).bounds
    corners = np.array([[x_min, y_min], [x_max, y_min], [x_max, y_max], [x_min, y_max]])
    outline = corners @ T_map_submap[:2, :2].T + T_map_submap[:2, 3]
    x, y = T_map_submap[:2, 3]
    return {
        "id": submap.id,
        "x": round(float(x), 3),
        "y": round(float(y), 3),
        "outline": np.round(outline, 2).tolist(),
    }


def closure_row(closure: Any) -> dict[str, Any]:
    finite = bool(np.isfinite(closure.covariance).all())
    return {
        "a": closure.a,
        "b": closure.b,
        "accepted": bool(closure.accepted),
        "reason": closure.reason,
        "probability": float(closure.probability),
        "overlap": float(closure.overlap),
        "T_a_b": closure.T_a_b.tolist(),
        "covariance": closure.covariance.tolist() if finite else None,
    }


def made() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"Made by gpgmap {__version__} on {now:%Y-%m-%d %H:%M} UTC."


__all__ = ["PICTURES", "STYLES", "write_map", "write_results"]
