"""What a merge leaves: a run folder like that of a replay, with one colour for each session in its report.

Everything is written beside the final name and renamed at the end: a merge that is killed leaves nothing behind by
that name, and the runs that it read as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import colormaps

from gpgmap_ros.apps.results import closure_row, outline, write_map
from gpgmap_ros.closure.loop_closer import known_covariances
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.config.yaml import save_config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import write_tum
from gpgmap_ros.mapping import GPGMap, SubmapStore
from gpgmap_ros.mapping.stitching import MAX_CELLS
from gpgmap_ros.report.content import (
    Content,
    closure_views,
    describe_origin,
    layers_of,
    settings_rows,
    track_of,
)
from gpgmap_ros.report.page import write_report
from gpgmap_ros.slam.drives import join_trajectories
from gpgmap_ros.slam.global_map import stitch_global_map
from gpgmap_ros.slam.merging import Member, Merged, frame_poses
from gpgmap_ros.storage.atomic import atomic_folder, write_json

FILES = [
    ("map.npz", "all layers"),
    ("layers/elevation.tif", "GeoTIFF, one file per layer"),
    ("trajectory.txt", "TUM format, all sessions, corrected"),
    ("sessions", "the trajectory of each session"),
    ("closures.g2o", "pose graph"),
    ("closures.json", "every comparison with its verdict"),
    ("config.yaml", "the settings of the first run"),
    ("run.json", "the numbers of this page"),
]


def write_merge(path: Path, merged: Merged, stage: Callable[[str], None]) -> dict[str, Any]:
    """Write the run folder of a merge at once; returns its summary. stage: told what is under way."""
    with atomic_folder(path) as staging:
        staging.mkdir()
        folder = RunFolder(staging)
        config = with_settings(merged.members[0].session.config, {"map_folder": str(path)})
        save_config(config, folder.config)
        stage("submaps")
        store = SubmapStore(folder.submaps, config)
        for member in merged.members:
            for old in member.ids:
                store.add(merged.load(member, old))
        merged.closer.save(folder.session, surfaces=False)
        merged.closer.write_g2o(folder.graph)
        write_json(folder.closures, [closure_row(item) for item in merged.closer.closures])
        stage("map")
        poses = frame_poses(merged)
        gpgmap = stitch_global_map(
            store, poses, config, config.map_frame, MAX_CELLS, known_covariances(merged.closer)
        )
        stage("layers and report")
        summary = summary_of(path, merged, gpgmap, config)
        write_trajectories(folder, merged)
        write_map(folder, gpgmap, Crs(name=f"local frame '{config.map_frame}'"))
        write_report(folder.report, page_of(merged, store, gpgmap, summary, config))
        write_json(folder.summary, summary)
    return summary


def write_trajectories(folder: RunFolder, merged: Merged) -> None:
    """All sessions in one file, in order of time, and each in its own."""
    write_tum(folder.trajectory, join_trajectories([merged.trajectory(m) for m in merged.members]))
    write_tum(folder.odometry, join_trajectories([merged.trajectory(m, False) for m in merged.members]))
    (folder.path / "sessions").mkdir()
    for member in merged.members:
        write_tum(folder.path / "sessions" / f"{member.name}.txt", merged.trajectory(member))


def summary_of(path: Path, merged: Merged, gpgmap: GPGMap, config: Config) -> dict[str, Any]:
    closures = merged.closer.closures
    names = {id: member.name for member in merged.members for id in member.ids.values()}
    between = [item for item in closures if item.accepted and names[item.a] != names[item.b]]
    known = int(gpgmap.known.sum()) * gpgmap.grid.resolution**2
    return {
        "kind": "merge",
        "name": path.name,
        "status": "complete",
        "sources": [str(member.session.path) for member in merged.members],
        "apart": [str(member.session.path) for member in merged.apart],
        "sessions": [session_row(merged, member, number) for number, member in enumerate(merged.members)],
        "drives": drive_rows(merged),
        "submaps": len(names),
        "closures": {
            "compared": len(closures),
            "accepted": sum(item.accepted for item in closures),
            "between_sessions": len(between),
        },
        "map": {
            "frame": config.map_frame,
            "resolution_m": gpgmap.grid.resolution,
            "cells": list(gpgmap.grid.shape),
            "origin": list(gpgmap.grid.origin),
            "known_m2": round(known, 1),
        },
        "warnings": [
            *(warning for member in merged.members for warning in member.session.warnings),
            *merged.notes,
            *(apart_text(member) for member in merged.apart),
        ],
    }


def apart_text(member: Member) -> str:
    return f"{member.name} shares no ground with the others that could be recognised: it is not in the map"


def colour_of(number: int) -> str:
    """One colour for each session, apart as far as ten colours go."""
    r, g, b, _ = colormaps["tab10"](number % 10)
    return f"#{round(255 * r):02x}{round(255 * g):02x}{round(255 * b):02x}"


def session_row(merged: Merged, member: Member, number: int) -> dict[str, Any]:
    trajectory = merged.trajectory(member)
    return {
        "name": member.name,
        "colour": colour_of(number),
        "submaps": len(member.ids),
        "way_m": round(trajectory.length, 3),
        "first_stamp": float(trajectory.stamps[0] / 1e9) if len(trajectory) else None,
    }


def drive_rows(merged: Merged) -> list[dict[str, Any]]:
    """The drives of all members, as a replay has them."""
    poses = frame_poses(merged)
    rows: list[dict[str, Any]] = []
    for member in merged.members:
        nodes = [merged.closer.node(id) for id in member.ids.values()]
        for drive in dict.fromkeys(node.drive for node in nodes):
            own = [node for node in nodes if node.drive == drive]
            rows.append(
                {
                    "number": len(rows) + 1,
                    "session": drive,
                    "first_stamp": own[0].first_stamp / 1e9,
                    "clouds": sum(len(node.stamps) for node in own),
                    "way_m": round(sum(node.length for node in own), 3),
                    "submaps": len(own),
                    "in_map": own[0].id in poses,
                    "folder": "" if own[0].id in poses else "nowhere: nothing joins it to the map",
                    "because": member.name,
                }
            )
    return rows


def page_of(
    merged: Merged, store: SubmapStore, gpgmap: GPGMap, summary: dict[str, Any], config: Config
) -> Content:
    """The report: the map with the trajectory of each session in its own colour."""
    poses = frame_poses(merged)
    tracks = []
    for number, member in enumerate(merged.members):
        track = track_of(member.name, "corrected", merged.trajectory(member))
        tracks.append({**track, "colour": colour_of(number)})
    return Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {', '.join(member.name for member in merged.members)}",
        abstract=abstract(summary),
        facts=[
            ("sessions", str(len(merged.members))),
            ("submaps", str(summary["submaps"])),
            ("closures", f"{summary['closures']['accepted']} of {summary['closures']['compared']}"),
            ("between sessions", str(summary["closures"]["between_sessions"])),
            ("known ground", f"{summary['map']['known_m2']:,.0f} m²"),
        ],
        map=layers_of(gpgmap),
        tracks=tracks,
        closures=closure_views(
            merged.closer.closures, poses, lambda id: store.load(id).gpgmap, frozenset(poses)
        ),
        submaps=[outline(info, poses[info.id]) for info in store.infos() if info.id in poses],
        drives=summary["drives"],
        warnings=summary["warnings"],
        settings=settings_rows(config),
        files=FILES,
        made=describe_origin(),
    )


def abstract(summary: dict[str, Any]) -> str:
    """The merge in a few sentences."""
    names = [row["name"] for row in summary["sessions"]]
    closures = summary["closures"]
    joining = closures["between_sessions"]
    text = (
        f"{len(names)} sessions, {', '.join(names[:-1])} and {names[-1]}, are in one frame:"
        f" {joining} of {closures['accepted']} loop closures join{'s' if joining == 1 else ''} them. The map has"
        f" {summary['map']['known_m2']:,.0f} m² of ground in cells of {summary['map']['resolution_m']:g} m."
    )
    if summary["apart"]:
        apart = ", ".join(Path(name).name for name in summary["apart"])
        text += f" Not in the map, because nothing joins them to it: {apart}."
    return text


def check_output(path: Path, runs: list[Path], overwrite: bool) -> str:
    """Why a merge can't be written there; empty where it can."""
    if any(path.resolve() == run.resolve() for run in runs):
        return f"--out {path}: is one of the runs to merge: choose another folder"
    if path.exists() and not path.is_dir():
        return f"--out {path}: is a file: choose a new folder"
    if path.exists() and any(path.iterdir()):
        if not (path / "run.json").exists():
            return f"{path} contains other files: choose a new folder with --out"
        if not overwrite:
            return f"{path} contains an earlier run: choose another folder with --out, or use --overwrite"
    return ""
