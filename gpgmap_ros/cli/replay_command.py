"""gpgmap replay"""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpgmap_ros.cli.common import (
    Interrupted,
    UsageError,
    add_json,
    add_output,
    add_settings,
    add_source,
    check_output_folder,
    config_from,
    given_settings,
    output_folder,
    print_json,
    release_folders,
    say,
    table,
    topic_request_from,
)
from gpgmap_ros.progress import ProgressBar

if TYPE_CHECKING:
    from gpgmap_ros.apps.topic_selection import TopicSelection
    from gpgmap_ros.config import Config
    from gpgmap_ros.io.recordings import Recording

DESCRIPTION = """Map a recording offline, with the node's own pipeline: rosbag2 (sqlite3, MCAP), ROS 1 .bag,
compressed, several at once. Guesses which topic has the clouds and where their poses come from,
and prints what it chose.

Writes a run folder: effective settings, trajectory (TUM), submaps, layers (GeoTIFF, PNG, NPZ),
closures (g2o) and report.html. Ctrl-C ends early and keeps what is there. A damaged recording is
used as far as it can be read."""
EXAMPLES = """examples:
  gpgmap replay my_bag                                   everything guessed; open my_bag_gpgmap/report.html
  gpgmap replay drive_0.mcap drive_1.mcap --out run      several files, one after the other or side by side
  gpgmap replay robot_a robot_b --sessions --out team    each by itself, then in one frame (as gpgmap merge)
  gpgmap replay old.bag --topic /velodyne_points --odom /odometry/filtered
  gpgmap replay my_bag --set mapping.resolution=0.2 --set mapping.length_scale=1 --sensor spinning_lidar
  gpgmap replay my_bag --from 60 --to 120 --json
"""

LARGE, KEPT = 4 << 20, 32 << 20
"""Bytes, see `limit_malloc_arenas`: submaps come and go in three threads, and none may keep what another could use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="+", type=Path, metavar="BAG", help="folder or file of a recording")
    add_output(parser, "the recording's name and _gpgmap")
    parser.add_argument(
        "--sessions",
        action="store_true",
        help="each BAG is a session of its own, of another day or robot: replay them one by one, then merge them",
    )
    source = add_source(parser)
    source.add_argument(
        "--from", dest="start", type=float, metavar="S", help="begin this many seconds into the recording"
    )
    source.add_argument(
        "--to", dest="stop", type=float, metavar="S", help="end this many seconds into the recording"
    )
    source.add_argument(
        "--rate",
        type=float,
        default=0.0,
        metavar="X",
        help="speed, as a multiple of real time (default: as fast as possible)",
    )
    viewer = parser.add_argument_group("live view (pip install rerun-sdk)").add_mutually_exclusive_group()
    viewer.add_argument("--rerun", action="store_true", help="stream to the Rerun viewer")
    viewer.add_argument(
        "--rerun-save", type=Path, metavar="FILE", help="write the viewer's recording to a file (.rrd)"
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.rate < 0.0:
        raise UsageError(f"--rate {arguments.rate}: must be positive, or 0 for as fast as it goes")
    if arguments.sessions:
        return run_sessions(arguments)
    begin = time.monotonic()
    config = config_from(arguments)
    from gpgmap_ros.apps.cell_size import fit_cell_size
    from gpgmap_ros.apps.topic_selection import configured_source
    from gpgmap_ros.config import with_settings
    from gpgmap_ros.io.recordings import Recording
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.memory import limit_malloc_arenas

    limit_malloc_arenas(LARGE, KEPT)
    with Recording(arguments.bags) as recording:
        choice = choose_topics(arguments, recording, config)
        scale = fit_cell_size(config, recording, choice.topic, given_settings(arguments))
        config = scale.config
        limits = window(recording.start, recording.end, arguments.start, arguments.stop)
        name = arguments.bags[0].resolve().name.split(".")[0]
        viewer = None
        if arguments.rerun or arguments.rerun_save:
            from gpgmap_ros.viz.live import Viewer

            viewer = Viewer(name, None if arguments.rerun else str(arguments.rerun_save))
        folder = RunFolder(output_folder(arguments.out, f"{name}_gpgmap", arguments.overwrite))
        config = with_settings(
            config,
            {
                "pose_source": configured_source(choice.pose_source),
                "map_frame": choice.map_frame,
                "base_frame": choice.base_frame,
                "points_topics": [choice.topic],
                "map_folder": str(folder.path),
            },
        )
        reasons = [*choice.reasons, *([scale.reason] if scale.reason else [])]
        for text in reasons:
            say(arguments, f"  {text}")
        summary = first_summary(name, arguments.bags, choice, reasons)
        folder.begin(summary, config)
        return run_replay(arguments, recording, choice, config, folder, limits, summary, viewer, begin)


def choose_topics(arguments: argparse.Namespace, recording: Recording, config: Config) -> TopicSelection:
    """What is read of a recording. UsageError where there is nothing to choose, or too much."""
    from gpgmap_ros.apps.topic_selection import TopicSelectionError, select_topics

    try:
        return select_topics(recording, topic_request_from(arguments), config.map_frame, config.base_frame)
    except TopicSelectionError as error:
        raise UsageError(f"{', '.join(map(str, recording.paths))}: {error}") from error


def common_cells(arguments: argparse.Namespace) -> list[str]:
    """Cells that fit the clouds of all recordings, as --set has them: only maps with cells of one size are merged."""
    from gpgmap_ros.apps.cell_size import fit_cell_size
    from gpgmap_ros.io.recordings import Recording

    config, scales = config_from(arguments), []
    for bag in arguments.bags:
        with Recording([bag]) as recording:
            topic = choose_topics(arguments, recording, config).topic
            scales.append(fit_cell_size(config, recording, topic, given_settings(arguments)))
    coarsest = max(scales, key=lambda scale: scale.config.mapping.resolution)
    if coarsest.reason:
        say(arguments, f"all sessions: {coarsest.reason}")
    return [f"{name}={value}" for name, value in coarsest.changes.items()]


def run_sessions(arguments: argparse.Namespace) -> int:
    """Replay each recording into a run of its own, beside the result, and merge the runs."""
    from gpgmap_ros.apps.merge import check_output
    from gpgmap_ros.cli import merge_command

    names = [path.resolve().name.split(".")[0] for path in arguments.bags]
    if len(set(names)) < max(len(names), 2):
        raise UsageError("--sessions needs two recordings or more, of different names")
    out = arguments.out or Path(f"{names[0]}_merged")
    objection = check_output(out, [], arguments.overwrite)
    if objection:
        raise UsageError(objection)
    check_output_folder(out)
    runs = [out.with_name(f"{out.name}_sessions") / name for name in names]
    changes = [*arguments.changes, *common_cells(arguments)]
    for bag, folder in zip(arguments.bags, runs, strict=True):
        say(arguments, f"session {folder.name}")
        own = {"bags": [bag], "out": folder, "sessions": False, "quiet": arguments.json, "changes": changes}
        run(argparse.Namespace(**{**vars(arguments), **own}))
        release_folders()  # it is complete: the merge reads it
    return merge_command.run(argparse.Namespace(**{**vars(arguments), "runs": runs, "out": out}))


def run_replay(
    arguments: argparse.Namespace,
    recording: Any,
    choice: Any,
    config: Any,
    folder: Any,
    limits: tuple[int | None, int | None],
    summary: dict[str, Any],
    viewer: Any,
    begin: float,
) -> int:
    from gpgmap_ros.apps.replay import Replay
    from gpgmap_ros.apps.results import write_results
    from gpgmap_ros.storage.atomic import write_json

    replay = Replay(recording, choice, config)
    interrupted = follow(replay, recording, limits, arguments.rate, viewer)
    rest = replay.end()
    if viewer is not None:
        viewer.show_finished(*rest)
    mapped = time.monotonic() - begin
    with ProgressBar("writing the results", 3) as bar:
        bar.update(0, "map")
        gpgmap = replay.stitch()
        summary["status"] = "interrupted" if interrupted else "complete"
        seconds = sum(drive.seconds for drive in replay.drives)
        summary["times_real_time"] = round(seconds / mapped, 2) if seconds else None
        summary["losses"] = list(recording.losses)
        summary = write_results(folder, replay, gpgmap, summary, lambda stage: bar.advance(1, stage))
        if viewer is not None and gpgmap is not None:
            viewer.map(gpgmap)
            if replay.closer is not None:
                moved = replay.place_poses(replay.parts[0])
                poses = {id: moved(T) for id, T in replay.closer.poses.items()}
                viewer.graph(replay.closer.closures, poses, moved(replay.corrected.poses)[:, :3, 3])
        summary["seconds"] = {"mapping": round(mapped, 3), "all": round(time.monotonic() - begin, 3)}
        write_json(folder.summary, summary)
    if arguments.json:
        if not getattr(arguments, "quiet", False):  # a session of several: the merge has the JSON
            print_json(summary)
    else:
        print(format_result(summary, folder))
    if gpgmap is None or not summary["map"]["known_m2"]:
        raise RuntimeError(f"no map: {'; '.join(summary['warnings']) or 'no cloud could be used'}")
    if interrupted:
        raise Interrupted(f"{summary['clouds']['used']} clouds are kept in {folder.path}")
    return 0


def first_summary(name: str, bags: list[Path], choice: Any, reasons: list[str]) -> dict[str, Any]:
    return {
        "kind": "replay",
        "name": name,
        "sources": [str(path) for path in bags],
        "chosen": {
            "topic": choice.topic,
            "sensor_frame": choice.sensor_frame,
            "pose_source": choice.pose_source,
            "pose_topic": choice.pose_topic,
            "imu_topic": choice.imu_topic,
            "gps_topic": choice.gps_topic,
            "map_frame": choice.map_frame,
            "base_frame": choice.base_frame,
            "because": reasons,
        },
        "losses": [],
        "warnings": [],
    }


def window(
    first: int | None, last: int | None, start: float | None, stop: float | None
) -> tuple[int | None, int | None]:
    """--from and --to, seconds from the beginning, as times of the recording."""
    if start is None and stop is None:
        return None, None
    if first is None:
        raise UsageError("the recording does not say when it begins: leave --from and --to out")
    if (start or 0.0) < 0.0 or (stop is not None and stop <= (start or 0.0)):
        raise UsageError("--from must not be negative, and --to must come after it")
    length = (last - first) / 1e9 if last is not None else None
    if length is not None and start is not None and start >= length:
        raise UsageError(f"--from {start:g}: the recording is only {length:.1f} s long")
    at = [None if value is None else first + round(value * 1e9) for value in (start, stop)]
    return at[0], at[1]


def follow(
    replay: Any, recording: Any, limits: tuple[int | None, int | None], rate: float, viewer: Any
) -> bool:
    """Map cloud after cloud with a progress bar; True if the user ended it."""
    first = limits[0] if limits[0] is not None else recording.start
    last = recording.end if limits[1] is None else min(limits[1], recording.end or limits[1])
    total = (last - first) / 1e9 if first is not None and last is not None else 0.0
    begin, points, latest, drive = time.monotonic(), 0, first, 1
    with ending_well(replay), ProgressBar("mapping", total or 1.0) as bar:
        for step in replay.steps(*limits):
            now = step.cloud.received
            first = now if first is None else first
            if step.drive != drive and latest is not None:  # the time between two drives is not lived through
                first, total = first + now - latest, max(total - (now - latest) / 1e9, 0.0)
            latest, drive = now, step.drive
            done, spent = (now - first) / 1e9, time.monotonic() - begin
            points += step.report.used
            if viewer is not None:
                viewer.step(step)
            lag = wait_until_due(replay, begin, done / rate) if rate > 0.0 else None
            used = replay.metrics["clouds used"]
            bar.update(done, note(used, points, done, total, spent, lag), total or 1.0)
    return bool(replay.stopped)


@contextlib.contextmanager
def ending_well(replay: Any) -> Iterator[None]:
    """Ctrl-C ends with the cloud that is being mapped, so that nothing is half done; a second one ends at once."""

    def stop(*_: object) -> None:
        replay.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until_due(replay: Any, begin: float, due: float) -> float:
    """Wait until `due` seconds after `begin`; how many seconds late it is."""
    while not replay.stopped and (left := begin + due - time.monotonic()) > 0.0:
        time.sleep(min(left, 0.1))
    return max(time.monotonic() - begin - due, 0.0)


def note(clouds: int, points: int, done: float, total: float, spent: float, lag: float | None) -> str:
    """clouds/s, points, times real time (or lag behind it), time left"""
    spent = max(spent, 1e-6)
    speed = f"{done / spent:.0f}x" if lag is None else f"lag {lag:.1f} s"
    left = (total - done) * spent / done if done > 0.0 and total else 0.0
    return f"{clouds / spent:.0f} clouds/s  {points / 1e6:.1f} M points  {speed}  {left:.0f} s left"


def format_result(summary: dict[str, Any], folder: Any) -> str:
    """The result for people."""
    from gpgmap_ros.apps.results import closures_text, deskewing_fact, drives_fact

    clouds, closures, map_ = summary["clouds"], summary["closures"], summary["map"]
    dropped = sum(clouds["dropped"].values())
    rows = [
        (
            "clouds",
            f"{clouds['used']} of {clouds['read']} used" + (f", {dropped} dropped" if dropped else ""),
        ),
        ("deskewed", deskewing_fact(summary["deskewing"])),
        ("trajectory", f"{summary['way_m']:.1f} m in {summary['seconds_of_data']:.1f} s"),
        ("submaps", str(summary["submaps"])),
        ("closures", closures_text(closures)[0].lower() + closures_text(closures)[1:]),
    ]
    if len(summary["drives"]) > 1:
        rows.insert(2, ("drives", drives_fact(summary["drives"])))
    if summary["georeference"] is not None:
        geo = summary["georeference"]
        rows.append(
            (
                "GPS",
                f"{geo['name']} (EPSG:{geo['epsg']}), known to {max(geo['std_m'][:2]):.2f} m and"
                f" {geo['yaw_std_deg']:.2f} deg; {geo['fixes_outliers']} of"
                f" {geo['fixes_used'] + geo['fixes_outliers']} fixes are outliers",
            )
        )
    if map_ is not None:
        rows.append(("map", f"{map_['known_m2']:,.0f} m2 known, cells of {map_['resolution_m']:g} m"))
    speed = f", {summary['times_real_time']:.1f} times real time" if summary["times_real_time"] else ""
    rows.append(
        (
            "time",
            f"{summary['seconds']['mapping']:.1f} s mapping{speed}; {summary['seconds']['all']:.1f} s in all",
        )
    )
    for text in (*summary["losses"], *summary["warnings"]):
        rows.append(("warning", text))
    rows.append(("report", str(folder.report)))
    return table(rows)
