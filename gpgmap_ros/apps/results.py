"""What a replay leaves: files for programs, pictures and a report for people.

The map of a run folder is that of the part with the most clouds. Drives that nothing joins to it have run folders of
their own inside, `drives/2` and so on, each with its map, trajectory and report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.config.yaml import save_config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import write_geotiffs, write_map_npz
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import write_tum
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import exported_layers, reported_layers
from gpgmap_ros.report.content import (
    MOST_CLOSURES,
    Content,
    closure_views,
    describe_origin,
    layers_of,
    settings_rows,
    track_of,
)
from gpgmap_ros.report.page import write_report
from gpgmap_ros.slam.drives import Drive, Part, align_start, join_trajectories
from gpgmap_ros.slam.trajectory import Trajectory
from gpgmap_ros.storage.atomic import write_json
from gpgmap_ros.viz.rendering import picture, png

if TYPE_CHECKING:  # a survey has results too, and needs none of the packages that read recordings
    from gpgmap_ros.apps.replay import Replay

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
    "locate": "poses of the clouds (in parallel)",
    "fuse": "fusing clouds",
    "submaps": "solving submaps (in parallel)",
    "close loops": "closing loops (in parallel)",
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
    parts = replay.parts
    part = parts[0] if parts else Part((), frozenset())
    stage("trajectory and closures")
    if replay.closer is not None and replay.submaps:
        replay.closer.write_g2o(folder.graph)
        write_json(folder.closures, [closure_row(item) for item in replay.closer.closures])
        replay.closer.save(folder.session, surfaces=False)
    for item in parts:
        replay.georeference(item)
    findings = [dataclasses.asdict(item) for item in replay.findings]
    summary = {**summary, **numbers(replay, part, gpgmap), "findings": findings}
    for other in parts[1:]:
        write_apart(folder, replay, other, summary)
    summary["warnings"] = warnings_of(replay, parts)
    stage("layers and report")
    write_part(folder, replay, part, gpgmap, summary)
    return summary


def write_apart(folder: RunFolder, replay: Replay, part: Part, summary: dict[str, Any]) -> None:
    """A run folder for drives that nothing joins to the map."""
    own = RunFolder(folder.path / apart(part))
    own.path.mkdir(parents=True)
    gpgmap = replay.stitch(part)
    name = f"{summary['name']}: {drives_text(part)}"
    whole = {**summary, **numbers(replay, part, gpgmap), "name": name, "warnings": [apart_text(part)]}
    save_config(replay.config, own.config)
    write_part(own, replay, part, gpgmap, whole)
    write_json(own.summary, whole)


def apart(part: Part) -> str:
    """Where the results of drives are that are not in the map, in the run folder."""
    return f"drives/{part.number}"


def drives_text(part: Part) -> str:
    numbers = [str(drive.number) for drive in part.drives]
    return (
        f"drive {numbers[0]}" if len(numbers) == 1 else f"drives {', '.join(numbers[:-1])} and {numbers[-1]}"
    )


def apart_text(part: Part) -> str:
    several = len(part.drives) > 1
    return (
        f"no loop closure joins {drives_text(part)} ({part.clouds} clouds) to the rest:"
        f" {'they are' if several else 'it is'} not in the map, but in {apart(part)}, in"
        f" {'their' if several else 'its'} own frame"
    )


def write_part(
    folder: RunFolder, replay: Replay, part: Part, gpgmap: GPGMap | None, summary: dict[str, Any]
) -> None:
    """Trajectory, layers and report of drives that are in one frame."""
    write_tum(folder.odometry, join_trajectories([drive.odometry for drive in part.drives]))
    corrected = join_trajectories([replay.correct_drive(drive) for drive in part.drives])
    write_tum(folder.trajectory, corrected)
    found = replay.georeference(part) if len(corrected) else None
    if found is not None:
        write_tum(folder.trajectory_utm, Trajectory(corrected.stamps, found.move(corrected.poses)))
    with ThreadPoolExecutor(1, "layers") as beside:
        written = None
        if gpgmap is not None:
            for name in {*exported_layers(gpgmap.layers), *reported_layers(gpgmap.layers)}:
                gpgmap[name]  # now, not in both threads
            crs = Crs(name=f"local frame '{replay.config.map_frame}'")
            if found is not None and gpgmap.frame_id == found.label:
                crs = Crs(found.epsg, name=found.name)
            written = beside.submit(write_map, folder, gpgmap, crs)
        content = page_of(replay, part, gpgmap, summary)
        if written is not None:
            written.result()
    write_report(folder.report, content)


def page_of(replay: Replay, part: Part, gpgmap: GPGMap | None, summary: dict[str, Any]) -> Content:
    """What the report says of a part of a replay."""
    closures = replay.closer.closures if replay.closer is not None else []
    moved = replay.place_poses(part)
    poses: dict[int, Array] = {}
    if replay.closer is not None:
        poses = {id: moved(T) for id, T in replay.closer.poses.items()}
    whole = replay.parts[:1] == [part]
    if not whole:
        closures = [item for item in closures if {item.a, item.b} <= part.submaps]
    return Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {', '.join(Path(item).name for item in summary['sources'])}",
        abstract=abstract(summary),
        facts=facts(summary),
        map=layers_of(gpgmap) if gpgmap is not None else None,
        tracks=tracks(replay, part),
        closures=closure_views(closures, poses, replay.map_of, part.submaps),
        submaps=[
            outline(item, poses[item.id] if item.id in poses else moved(item.T_map_submap))
            for item in replay.submaps
            if item.id in part.submaps
        ],
        drives=summary["drives"] if len(summary["drives"]) > 1 else [],
        timings=[(STAGES[name], round(value, 4)) for name, value in replay.metrics.seconds.items()]
        if whole
        else [],
        fates=[(text, replay.points[name]) for name, text in FATES.items() if replay.points[name]]
        if whole
        else [],
        warnings=[*summary["losses"], *summary["warnings"]],
        settings=settings_rows(replay.config),
        files=files_of(whole, georeferenced=summary["georeference"] is not None),
        made=describe_origin(),
    )


FILES = [
    ("map.npz", "all layers"),
    ("layers/elevation.tif", "GeoTIFF, one file per layer"),
    ("trajectory.txt", "TUM format, corrected"),
    ("trajectory_utm.txt", "the same in UTM, where there are GPS fixes"),
    ("odometry.txt", "TUM format, as recorded"),
    ("closures.g2o", "pose graph"),
    ("closures.json", "every comparison with its verdict"),
    ("config.yaml", "the effective settings"),
    ("run.json", "the numbers of this page"),
]


def files_of(whole: bool, georeferenced: bool) -> list[tuple[str, str]]:
    """The files beside the report: of the whole run, or of drives apart."""
    return [
        item
        for item in FILES
        if (whole or not item[0].startswith("closures"))
        and (georeferenced or item[0] != "trajectory_utm.txt")
    ]


def write_map(folder: RunFolder, gpgmap: GPGMap, crs: Crs) -> None:
    write_map_npz(folder.map, gpgmap, crs)
    write_geotiffs(folder.layers, gpgmap, crs)
    for name in reported_layers(gpgmap.layers):
        png(picture(gpgmap, name), folder.layers / f"{name}.png")


def numbers(replay: Replay, part: Part, gpgmap: GPGMap | None) -> dict[str, Any]:
    """What happened, in numbers; those of the map and the trajectory are of the part."""
    metrics = replay.metrics
    closures = replay.closer.closures if replay.closer is not None else []
    moved = corrections(replay, part)
    georeference = replay.georeference(part) if part.drives else None
    known = int(gpgmap.known.sum()) if gpgmap is not None else 0
    return {
        "clouds": {
            "read": metrics["clouds read"],
            "used": metrics["clouds used"],
            "dropped": dict(metrics.dropped),
        },
        "deskewing": {
            "deskewed": metrics["clouds deskewed"],
            "not_deskewed": metrics["clouds not deskewed"],
            "unusable_times": metrics["clouds with unusable times"],
        },
        "points": dict(replay.points),
        "cells_cleared": metrics["cells cleared"],
        "seconds_of_data": round(sum(drive.seconds for drive in part.drives), 3),
        "way_m": round(sum(drive.odometry.length for drive in part.drives), 3),
        "submaps": len(part.submaps),
        "drives": [drive_row(replay, drive) for drive in replay.drives if drive.stamps],
        "closures": {
            "compared": len(closures),
            "accepted": sum(item.accepted for item in closures),
            "largest_correction_m": round(float(moved.max()), 3),
            "correction_at_the_end_m": round(float(moved[-1]), 3),
        },
        "georeference": georeference.summary() if georeference is not None else None,
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
        "timings_s": {name: round(value, 4) for name, value in metrics.seconds.items()},
    }


def corrections(replay: Replay, part: Part) -> Array:
    """Metres by which the closures move the robot's position at each cloud, against where its drive begins."""
    moved = [np.zeros(1)]
    for drive in part.drives:
        odometry, corrected = drive.odometry, replay.correct_drive(drive)
        if len(odometry):
            away = corrected.positions - align_start(odometry, corrected).positions
            moved.append(np.linalg.norm(away, axis=1))
    return np.concatenate(moved)


def drive_row(replay: Replay, drive: Drive) -> dict[str, Any]:
    """first_stamp, last_stamp: seconds; folder: of its map, empty for that of the run; because: why it is a drive"""
    number, part = next((k, part) for k, part in enumerate(replay.parts) if drive in part.drives)
    return {
        "number": drive.number,
        "session": drive.id,
        "first_stamp": min(drive.stamps) / 1e9,
        "last_stamp": max(drive.stamps) / 1e9,
        "clouds": len(drive.stamps),
        "way_m": round(drive.odometry.length, 3),
        "submaps": sum(item.session == drive.id for item in replay.submaps),
        "in_map": number == 0,
        "folder": "" if number == 0 else apart(part),
        "because": drive.reason,
    }


def warnings_of(replay: Replay, parts: list[Part]) -> list[str]:
    metrics = replay.metrics
    found = [item.sentence for item in replay.findings]
    found.extend(apart_text(part) for part in parts[1:])
    found.extend(text for text in metrics.warnings if text not in found)
    ends = sorted((min(drive.stamps), max(drive.stamps)) for drive in (parts[0].drives if parts else ()))
    if any(after[0] <= before[1] for before, after in pairwise(ends)):
        found.append(
            "stamps of the drives in the map overlap, and trajectory.txt has them in order of time: replay them one by"
            " one for a trajectory each"
        )
    dropped = metrics.dropped.total()
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in metrics.dropped.most_common())
        found.insert(0, f"{dropped} of {metrics['clouds read']} clouds were not used: {reasons}")
    if replay.points["points"] and replay.points["used"] < 0.05 * replay.points["points"]:
        commonest = max((name for name in FATES if name != "used"), key=lambda name: replay.points[name])
        found.append(
            f"only {replay.points['used'] / replay.points['points']:.1%} of the points are in the map; most are"
            f" {FATES[commonest]}: see the settings in group 'filter'"
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
        count = summary["submaps"]
        text += f" They were kept as {count} submap{'' if count == 1 else 's'}."
    if len(summary["drives"]) > 1:
        text += f" Drives in the recording: {drives_fact(summary['drives'])}."
    if closures["accepted"]:
        text += f" {closures_text(closures)}, and its end by {closures['correction_at_the_end_m']:.2f} m."
    elif closures["compared"]:
        text += f" {closures_text(closures)}."
    if summary["status"] == "interrupted":
        text += " The replay was interrupted: this is what there was until then."
    return text


def closures_text(closures: dict[str, Any]) -> str:
    """What came of comparing submaps, for the terminal and the report; no full stop."""
    compared, accepted = closures["compared"], closures["accepted"]
    if not compared:
        return "No submaps were compared"
    pairs = f"{compared} pair{'s' if compared > 1 else ''} of submaps {'were' if compared > 1 else 'was'} compared"
    if not accepted:
        return f"{pairs}, none was accepted as a loop closure"
    closed = "loop closures; they move" if accepted > 1 else "a loop closure; it moves"
    largest = closures["largest_correction_m"]
    return f"{pairs}, {accepted} accepted as {closed} the trajectory by up to {largest:.2f} m"


def drives_fact(drives: list[dict[str, Any]]) -> str:
    """How many drives there are, and which of them are in the map."""
    inside = [str(item["number"]) for item in drives if item["in_map"]]
    if len(inside) == len(drives):
        return f"{len(drives)}, joined by loop closures"
    return f"{len(drives)}; in the map: {', '.join(inside)}"


def facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    chosen = summary["chosen"]
    poses = (
        chosen["pose_topic"]
        or {
            "tf": "/tf",
            "lidar": "LiDAR odometry",
            "lidar_inertial": "LiDAR-inertial odometry",
            "file": "trajectory file",
            "still": "none (standing)",
        }[chosen["pose_source"]]
    )
    rows = [
        ("clouds", chosen["topic"]),
        ("poses", poses),
        ("map frame", chosen["map_frame"]),
        ("clouds used", f"{summary['clouds']['used']:,} of {summary['clouds']['read']:,}"),
        ("deskewed", deskewing_fact(summary["deskewing"])),
        ("trajectory", f"{summary['way_m']:,.1f} m"),
        ("duration", f"{summary['seconds_of_data']:,.1f} s"),
        ("submaps", str(summary["submaps"])),
        *([("drives", drives_fact(summary["drives"]))] if len(summary["drives"]) > 1 else []),
        ("closures", f"{summary['closures']['accepted']} of {summary['closures']['compared']}"),
        *georeference_facts(summary["georeference"]),
    ]
    if summary["closures"]["compared"] > MOST_CLOSURES:
        rows.append(("closures listed", f"{MOST_CLOSURES:,}; closures.json has all"))
    if summary["map"] is not None:
        rows.append(("known ground", f"{summary['map']['known_m2']:,.0f} m²"))
        if summary["map"]["median_std_m"] is not None:
            rows.append(("median std", f"{100 * summary['map']['median_std_m']:.1f} cm"))
    if summary.get("times_real_time"):
        rows.append(("speed", f"{summary['times_real_time']:.1f} x real time"))
    return rows


def deskewing_fact(counts: dict[str, int]) -> str:
    """In how many clouds the motion of the sensor was undone, and why not in others."""
    done, motion, times = counts["deskewed"], counts["not_deskewed"], counts["unusable_times"]
    if not done + motion + times:
        return "none: the points have no times"
    text = f"{done:,} of {done + motion + times:,} clouds with times"
    reasons = [f"{motion:,} motion not known"] if motion else []
    reasons += [f"{times:,} times not usable"] if times else []
    return f"{text} ({', '.join(reasons)})" if reasons else text


def georeference_facts(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    return [
        ("coordinates", f"{found['name']} (EPSG:{found['epsg']})"),
        ("georeference", f"± {max(found['std_m'][:2]):.2f} m, ± {found['yaw_std_deg']:.2f}°"),
    ]


def tracks(replay: Replay, part: Part) -> list[dict[str, Any]]:
    """Lines on the map for each drive: its odometry from where the corrected trajectory begins, and that."""
    closed = replay.closer is not None and any(item.accepted for item in replay.closer.closures)
    moved = replay.place_poses(part)
    lines = []

    def add(name: str, trajectory: Trajectory) -> None:
        lines.append(track_of(name, name, Trajectory(trajectory.stamps, moved(trajectory.poses))))

    for drive in part.drives:
        corrected = replay.correct_drive(drive)
        add("odometry", align_start(drive.odometry, corrected))
        if closed:
            add("corrected", corrected)
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
