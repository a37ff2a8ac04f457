"""`gpgmap demo`: make a drive, let the real node map it over DDS, show what came out."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.demo.drive import Frame, drive, start_pose
from gpgmap_ros.demo.recording import POINTS_TOPIC, drive_messages
from gpgmap_ros.demo.terrain import Terrain, rover_terrain
from gpgmap_ros.geometry import apply
from gpgmap_ros.io.bags import write_bag
from gpgmap_ros.processes import Child, ProcessFailed, isolated_ros_environment
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.share import share_file
from gpgmap_ros.viz.figures import save_figures

SEED = 7
DURATION, RATE = 15.0, 4.0  # seconds, clouds per second
NODE_NAME = "/mapping_node"
LAYERS = ("elevation", "variance", "gradient")
START_TIMEOUT = 300.0
"""Seconds for the children to start: the first start may compile, on a machine that has other work."""
SILENCE_TIMEOUT = 60.0
"""Seconds without news of a node that still owes maps."""


class DemoFailed(RuntimeError):
    """The demo did not end with a map: why."""


@dataclass(frozen=True)
class Summary:
    """What the demo did. Latency: from a cloud leaving the player to the map that contains it arriving."""

    clouds_sent: int
    clouds_received: int
    clouds_used: int
    clouds_dropped: dict[str, int]
    points_used: int
    maps_received: int
    latency_median_ms: float
    latency_p95_ms: float
    map_cells: int
    known_cells: int
    rmse_m: float
    within_two_std: float
    seconds: float
    files: list[str]


def run_demo(out: Path) -> Summary:
    """Leaves pictures, the last map (NPZ), the drive (a bag), logs and summary.json in `out`."""
    start = time.monotonic()
    prepare_folder(out)
    terrain = rover_terrain(np.random.default_rng(SEED))
    bag, track = record_drive(terrain, out / "drive")
    events = map_live(bag, out)
    arrays = dict(np.load(out / "map.npz"))
    corner, resolution = arrays["corner"], float(arrays["resolution"])
    figures = save_figures({name: arrays[name] for name in LAYERS}, tuple(corner), resolution, out, track)
    rmse, within = compare_with_truth(arrays, terrain)
    summary = summarise(
        events, arrays, rmse, within, time.monotonic() - start, [*figures, out / "map.npz", bag]
    )
    write_json(out / "summary.json", asdict(summary))
    return summary


def prepare_folder(out: Path) -> None:
    """Start from an empty folder, but never empty one that is not ours."""
    marker = out / ".gpgmap-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise DemoFailed(f"{out} has other files in it: name an empty or a new folder with --out")
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    marker.touch()


def record_drive(terrain: Terrain, bag: Path) -> tuple[Path, NDArray[np.float64]]:
    """The drive as a bag, and the positions (N, 2) along it."""
    track: list[NDArray[np.float64]] = []
    with ProgressBar("driving over the terrain", DURATION * RATE + 1) as bar:

        def watched() -> Iterator[Frame]:
            for frame in drive(terrain, np.random.default_rng(SEED + 1), DURATION, RATE):
                track.append(frame.T_odom_base[:2, 3])
                bar.advance(1, f"{len(frame.points)} points per cloud")
                yield frame

        write_bag(bag, drive_messages(watched()))
    return bag, np.array(track)


@dataclass
class Events:
    """What the children reported while the drive was replayed."""

    sent: dict[int, float]
    maps: dict[int, float]
    diagnostics: dict[str, str]

    def news(self) -> tuple[int, ...]:
        """Changes while the node makes progress: maps that arrived, and clouds that it has dealt with."""
        clouds = [int(value) for key, value in self.diagnostics.items() if key.startswith("clouds dropped")]
        return (len(self.maps), sum(clouds), int(self.diagnostics.get("clouds used", 0)))


def map_live(bag: Path, out: Path) -> Events:
    """Start the node, a recorder and a player; follow them until the map of the last cloud arrived."""
    logs = out / "logs"
    environment = isolated_ros_environment(logs)
    node_executable = Path(sys.executable).with_name("mapping_node")
    parameters = share_file("config", "demo.yaml")
    children: list[Child] = []

    def start(name: str, *command: str) -> Child:
        child = Child(name, list(command), environment, logs / f"{name}.log")
        children.append(child)
        return child

    try:
        with ProgressBar("starting the node", 2) as bar:
            node = start(
                "mapping_node", str(node_executable), "--ros-args", "--params-file", str(parameters),
                "-r", f"points:={POINTS_TOPIC}",
            )  # fmt: skip
            module = [sys.executable, "-m"]
            recorder = start(
                "map_recorder",
                *module,
                "gpgmap_ros.nodes.map_recorder",
                NODE_NAME,
                "--out",
                str(out / "map.npz"),
            )
            recorder.next_event(START_TIMEOUT)
            bar.advance(1, f"node {node.pid}, recorder {recorder.pid}")
        player = start(
            "bag_player", *module, "gpgmap_ros.nodes.bag_player", str(bag), "--wait", str(START_TIMEOUT)
        )
        events = follow(player, recorder, node)
        if recorder.stop(SILENCE_TIMEOUT):
            raise DemoFailed(f"the recorder could not save a map:\n{recorder.tail()}")
        if code := node.stop(SILENCE_TIMEOUT):
            raise DemoFailed(f"mapping_node ended with code {code}:\n{node.tail()}")
        return events
    except ProcessFailed as error:
        raise DemoFailed(str(error)) from error
    finally:
        for child in children:
            child.stop()


def follow(player: Child, recorder: Child, node: Child) -> Events:
    """Collect what player and recorder report, with a progress bar; DemoFailed if the last map does not come."""
    events = Events({}, {}, {})
    last_stamp, news, silent_since = None, None, time.monotonic()
    with ProgressBar("mapping live over DDS", DURATION * RATE + 1) as bar:
        while last_stamp is None or last_stamp not in events.maps or not diagnosed(events):
            node.check()
            player.check()
            recorder.check()
            drain(player, recorder, events)
            bar.update(len(events.sent), f"{len(events.sent)} clouds sent, {len(events.maps)} maps received")
            if last_stamp is None and not player.running():
                drain(player, recorder, events)
                if not events.sent:
                    raise DemoFailed(f"the player sent nothing:\n{player.tail()}")
                last_stamp, silent_since = max(events.sent), time.monotonic()
            if news != (news := events.news()):
                silent_since = time.monotonic()
            if last_stamp is not None and time.monotonic() > silent_since + SILENCE_TIMEOUT:
                what = (
                    f"{len(events.maps)} maps arrived, none with the last cloud"
                    if events.maps
                    else "no map arrived"
                )
                raise DemoFailed(
                    f"{what} (no news for {SILENCE_TIMEOUT:.0f} s). The node reports: "
                    f"{events.diagnostics or 'nothing'}, and says:\n{node.tail()}"
                )
            time.sleep(0.05)
    return events


def diagnosed(events: Events) -> bool:
    """Has the node's own count caught up with what was sent?"""
    counted = sum(int(value) for key, value in events.diagnostics.items() if key.startswith("clouds dropped"))
    return counted + int(events.diagnostics.get("clouds used", 0)) >= int(
        events.diagnostics.get("clouds received", len(events.sent))
    )


def drain(player: Child, recorder: Child, events: Events) -> None:
    while not player.events.empty():
        event = player.events.get()
        if event.get("topic") == POINTS_TOPIC:
            events.sent[event["stamp"]] = event["wall"]
    while not recorder.events.empty():
        event = recorder.events.get()
        if event.get("image") == LAYERS[-1]:
            events.maps[event["stamp"]] = event["wall"]
        elif "clouds received" in event.get("diagnostics", {}):  # the node also reports on its closures
            events.diagnostics = event["diagnostics"]


def compare_with_truth(arrays: dict[str, Any], terrain: Terrain) -> tuple[float, float]:
    """RMSE of the known cells' heights, and the share of them within two of the map's own standard deviations."""
    elevation, variance = arrays["elevation"].astype(np.float64), arrays["variance"].astype(np.float64)
    rows, columns = elevation.shape
    resolution, (x0, y0) = float(arrays["resolution"]), arrays["corner"]
    x, y = np.meshgrid(
        x0 + (np.arange(columns) + 0.5) * resolution, y0 + (np.arange(rows) + 0.5) * resolution, indexing="xy"
    )
    T_world_odom = start_pose(terrain)
    world = apply(T_world_odom, np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)]))
    truth = (terrain.height_at(world[:, 0], world[:, 1]) - T_world_odom[2, 3]).reshape(x.shape)
    known = np.isfinite(elevation)
    error = (elevation - truth)[known]
    return float(np.sqrt(np.mean(error**2))), float(np.mean(np.abs(error) <= 2.0 * np.sqrt(variance[known])))


def summarise(
    events: Events, arrays: dict[str, Any], rmse: float, within: float, seconds: float, files: list[Path]
) -> Summary:
    dropped = {
        key.removeprefix("clouds dropped: "): int(value)
        for key, value in events.diagnostics.items()
        if key.startswith("clouds dropped: ")
    }
    latency = [
        1e3 * (wall - events.sent[stamp]) for stamp, wall in events.maps.items() if stamp in events.sent
    ]
    return Summary(
        clouds_sent=len(events.sent),
        clouds_received=int(events.diagnostics.get("clouds received", 0)),
        clouds_used=int(events.diagnostics.get("clouds used", 0)),
        clouds_dropped=dropped,
        points_used=int(events.diagnostics.get("points used", 0)),
        maps_received=len(events.maps),
        latency_median_ms=round(float(np.median(latency)), 1),
        latency_p95_ms=round(float(np.percentile(latency, 95)), 1),
        map_cells=int(arrays["elevation"].size),
        known_cells=int(np.isfinite(arrays["elevation"]).sum()),
        rmse_m=round(rmse, 4),
        within_two_std=round(within, 4),
        seconds=round(seconds, 1),
        files=[str(path) for path in files],
    )


def write_json(path: Path, data: dict[str, Any]) -> None:
    staged = path.with_name(path.name + ".new")
    staged.write_text(json.dumps(data, indent=2) + "\n")
    staged.replace(path)


def report(summary: Summary) -> str:
    """The summary for people."""
    drops = ", ".join(f"{count} {reason}" for reason, count in summary.clouds_dropped.items()) or "none"
    pictures = "\n".join(f"            {path}" for path in summary.files)
    return (
        f"  clouds    {summary.clouds_sent} sent, {summary.clouds_received} received, {summary.clouds_used} used"
        f" ({summary.points_used:,} points); dropped: {drops}\n"
        f"  maps      {summary.maps_received} received, latency {summary.latency_median_ms:.0f} ms median,"
        f" {summary.latency_p95_ms:.0f} ms p95 (cloud sent to map received)\n"
        f"  map       {summary.known_cells:,} of {summary.map_cells:,} cells known; against the true ground: RMSE"
        f" {100 * summary.rmse_m:.1f} cm, {summary.within_two_std:.0%} within two standard deviations\n"
        f"  files\n{pictures}\n"
        f"  {summary.seconds:.0f} s in all"
    )
