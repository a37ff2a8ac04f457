"""Map the recorded drive live: the real node, a player and a recorder as processes that meet over DDS."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpgmap_ros.demo.recording import POINTS_TOPIC
from gpgmap_ros.interpreter import module_command
from gpgmap_ros.processes import Child, ProcessFailed, isolated_ros_environment
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.share import share_file

NODE_NAME = "/mapping_node"
LAST_IMAGE = "gradient"
"""Of the images of one map, the one that is published last."""
SPEED, ANIMATION_SPEED = 3.0, 2.0
"""Times real time at which the recording is played; slower where every map that arrives is a frame of an animation."""
START_TIMEOUT = 300.0
"""Seconds for the children to start: the first start may compile, on a machine that has other work."""
SILENCE_TIMEOUT = 60.0
"""Seconds without progress of a node that has not published everything yet."""


class DemoFailed(RuntimeError):
    """The demo did not end with a map: why."""


@dataclass
class Events:
    """What the children reported while the drive was played.

    sent, maps: wall times by the stamp of the cloud; submaps: numbers of the finished ones
    closures: pairs of submaps received on ~/loop_closure; paths: messages received on ~/path
    mapping, closing: newest diagnostics of the node and of its loop closure
    """

    sent: dict[int, float] = field(default_factory=dict)
    maps: dict[int, float] = field(default_factory=dict)
    submaps: set[int] = field(default_factory=set)
    closures: list[tuple[int, int]] = field(default_factory=list)
    paths: int = 0
    mapping: dict[str, str] = field(default_factory=dict)
    closing: dict[str, str] = field(default_factory=dict)

    @property
    def clouds_handled(self) -> int:
        """Clouds that the node has used or dropped."""
        dropped = [int(value) for key, value in self.mapping.items() if key.startswith("clouds dropped")]
        return sum(dropped) + int(self.mapping.get("clouds used", 0))

    @property
    def submaps_compared(self) -> int:
        return int(self.closing.get("submaps in the graph", 0))

    def progress(self) -> tuple[int, ...]:
        """Changes while the node makes progress."""
        return len(self.maps), self.clouds_handled, self.submaps_compared, self.paths

    def complete(self, last_stamp: int) -> bool:
        """Has the map of the last cloud arrived, and has every finished submap been compared?"""
        received = int(self.mapping.get("clouds received", len(self.sent)))
        return (
            last_stamp in self.maps
            and self.clouds_handled >= received
            and self.submaps_compared >= len(self.submaps)
        )


def map_live(bag: Path, out: Path, history: Path | None = None) -> Events:
    """Play a recording to the node until its last map has arrived and all submaps have been compared.

    The node keeps its submaps and closures in `out`; the last map and path received are in last_map.npz.
    history: folder for every elevation map received
    """
    logs, speed = out / "logs", SPEED if history is None else ANIMATION_SPEED
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
                "-r", f"points:={POINTS_TOPIC}", "-p", f"map_folder:={out.resolve()}",
            )  # fmt: skip
            keep = ["--history", str(history)] if history is not None else []
            recorder = start(
                "map_recorder",
                *module_command(
                    "gpgmap_ros.nodes.map_recorder", NODE_NAME, "--out", str(out / "last_map.npz"), *keep
                ),
            )
            recorder.next_event(START_TIMEOUT)
            bar.advance(1, f"node {node.pid}, recorder {recorder.pid}")
        player = start(
            "bag_player",
            *module_command(
                "gpgmap_ros.nodes.bag_player", str(bag), "--wait", str(START_TIMEOUT), "--rate", str(speed)
            ),
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
    from gpgmap_ros.demo.scene import DURATION, RATE

    events, last_stamp = Events(), None
    progress, silent_since = events.progress(), time.monotonic()
    with ProgressBar("mapping live over DDS", DURATION * RATE + 1) as bar:
        while last_stamp is None or not events.complete(last_stamp):
            for child in (node, player, recorder):
                child.check()
            drain(player, recorder, events)
            bar.update(len(events.sent), describe(events))
            if last_stamp is None and not player.running():
                drain(player, recorder, events)
                if not events.sent:
                    raise DemoFailed(f"the player sent nothing:\n{player.tail()}")
                last_stamp, silent_since = max(events.sent), time.monotonic()
            if progress != (progress := events.progress()):
                silent_since = time.monotonic()
            if last_stamp is not None and time.monotonic() > silent_since + SILENCE_TIMEOUT:
                raise DemoFailed(explain_silence(events, last_stamp, node))
            time.sleep(0.05)
    return events


def describe(events: Events) -> str:
    loops = len(events.closures)
    return f"{len(events.sent)} clouds sent, {len(events.maps)} maps received, {loops} loop closures"


def explain_silence(events: Events, last_stamp: int, node: Child) -> str:
    if not events.maps:
        missing = "no map arrived"
    elif last_stamp not in events.maps:
        missing = f"{len(events.maps)} maps arrived, none with the last cloud"
    else:
        missing = f"{events.submaps_compared} of {len(events.submaps)} submaps were compared"
    return (
        f"{missing} (no progress for {SILENCE_TIMEOUT:.0f} s). The node reports: "
        f"{events.mapping or 'nothing'}, and says:\n{node.tail()}"
    )


def drain(player: Child, recorder: Child, events: Events) -> None:
    """Take over the events that have arrived."""
    while not player.events.empty():
        event = player.events.get()
        if event.get("topic") == POINTS_TOPIC:
            events.sent[event["stamp"]] = event["wall"]
    while not recorder.events.empty():
        event = recorder.events.get()
        if event.get("image") == LAST_IMAGE:
            events.maps[event["stamp"]] = event["wall"]
        elif "closure" in event:
            a, b = event["closure"]
            events.closures.append((a, b))
        elif "submap" in event:
            events.submaps.add(event["submap"])
        elif "path" in event:
            events.paths += 1
        elif "clouds received" in event.get("diagnostics", {}):
            events.mapping = event["diagnostics"]
        elif str(event.get("name", "")).endswith("loop closure"):
            events.closing = event["diagnostics"]
