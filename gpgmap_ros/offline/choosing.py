"""Which topic has the clouds and what says where they were taken: guessed from the beginning of a recording.

A guess is always said, with the reason. Where two answers are as likely, the candidates are listed instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.pointcloud2 import CloudError, check_layout
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.offline.poses import POSE_TYPES, TF_TYPES, frame
from gpgmap_ros.transform_buffer import NANOSECONDS

CLOUD = "sensor_msgs/msg/PointCloud2"
PEEK_SECONDS, PEEK_MESSAGES = 10.0, 20_000
"""How much of the poses is looked at, from the beginning."""
CLEARLY_MORE = 2.0
"""A cloud topic with this many times the points of the next one is taken without asking."""
MOST_OVERLAP = 1.0
"""Seconds of one topic that two bags of one recording may share, where the recorder went from one to the next."""
USUAL_MAP_FRAMES = ("odom", "map", "world")


class ChoiceError(ValueError):
    """No choice can be made: why, the candidates, and the option that decides."""


@dataclass(frozen=True)
class Wish:
    """What the user has decided. None and False: guess.

    topic: of the clouds; odometry: topic of the poses; tf: poses from the tree of frames; still: the sensor stands
    map_frame: gravity-aligned frame for the map
    """

    topic: str | None = None
    odometry: str | None = None
    tf: bool = False
    still: bool = False
    map_frame: str | None = None


@dataclass(frozen=True)
class Choice:
    """What is used, and why.

    topic, sensor_frame: of the clouds; pose_source: tf, odometry or still; pose_topic: for odometry
    map_frame, base_frame: as in the configuration; mounted: whether frames lead from the base to the sensor
    transform_topics: /tf and /tf_static, as far as the recording has them
    reasons: sentences for people; warnings: what may be wrong with it
    """

    topic: str
    sensor_frame: str
    pose_source: str
    map_frame: str
    base_frame: str
    pose_topic: str = ""
    mounted: bool = True
    transform_topics: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def topics(self) -> set[str]:
        """Everything that has to be read."""
        return {self.topic, *self.transform_topics} | ({self.pose_topic} if self.pose_topic else set())


@dataclass
class _Tree:
    """Parents of frames, and which of them move."""

    parents: dict[str, str] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)

    def ancestors(self, name: str) -> list[str]:
        """The frame itself first, the root last."""
        chain = [name]
        while (above := self.parents.get(chain[-1])) is not None and above not in chain:
            chain.append(above)
        return chain

    def moves(self, below: str, above: str) -> bool:
        chain = self.ancestors(below)
        return any(name in self.moving for name in chain[: chain.index(above)]) if above in chain else False

    def connected(self, a: str, b: str) -> bool:
        return bool(set(self.ancestors(a)) & set(self.ancestors(b)))


def choose(recording: Recording, wish: Wish, map_frame: str, base_frame: str) -> Choice:
    """Decide what to use. ChoiceError where there is nothing to choose from, or too much.

    map_frame, base_frame: as configured; taken where the recording has them and the wish says nothing else
    """
    decoder = Decoder()
    reasons: list[str] = []
    warnings: list[str] = []
    topic, cloud = _cloud_topic(recording, wish.topic, decoder, reasons)
    both = recording.simultaneous(topic)
    if both is not None and both[2] > MOST_OVERLAP:
        raise ChoiceError(
            f"{both[0]} and {both[1]} have clouds on {topic} from the same {both[2]:.0f} s: these are two robots, or"
            " one recording twice; replay them one by one"
        )
    sensor_frame = frame(cloud.header.frame_id)
    transform_topics = tuple(item.name for item in recording.of_type(*TF_TYPES))
    tree = _tree(recording, transform_topics, decoder)
    pose_source, pose_topic = _pose_source(recording, wish, tree, sensor_frame, reasons)
    if pose_source == "odometry":
        first = _first(recording, pose_topic, decoder)
        told, base = frame(first.header.frame_id), frame(getattr(first, "child_frame_id", "")) or base_frame
        mounted = sensor_frame == base or tree.connected(sensor_frame, base)
        if wish.map_frame and wish.map_frame != told:
            raise ChoiceError(
                f"{pose_topic} is in frame '{told}', not '{wish.map_frame}': leave --map-frame out"
            )
        if not mounted:
            warnings.append(
                f"no transform leads from '{base}' to '{sensor_frame}': the sensor is taken to be at '{base}'"
            )
        chosen_frame, base_frame = told or "odom", base
    else:
        mounted = True
        chosen_frame = _map_frame(tree, sensor_frame, wish, map_frame, pose_source, reasons)
    return Choice(
        topic, sensor_frame, pose_source, chosen_frame, base_frame, pose_topic, mounted, transform_topics,
        tuple(reasons), tuple(warnings),
    )  # fmt: skip


def _cloud_topic(
    recording: Recording, wanted: str | None, decoder: Decoder, reasons: list[str]
) -> tuple[str, Any]:
    candidates = [item for item in recording.of_type(CLOUD) if item.count != 0]
    names = [item.name for item in candidates]
    if wanted is not None:
        if wanted not in names:
            known = recording.topics.get(wanted)
            what = f"is of type {known.type_name}, not {CLOUD}" if known else "is not in the recording"
            raise ChoiceError(f"{wanted} {what}; clouds are on {', '.join(names) or 'no topic'}")
        return wanted, _first(recording, wanted, decoder)
    if not candidates:
        silent = [item.name for item in recording.of_type(CLOUD)]
        if silent:
            raise ChoiceError(
                f"no cloud was recorded on {', '.join(silent)}: was the driver running, and could the recorder hear it"
                " (quality of service)? Record again"
            )
        there = (
            ", ".join(f"{item.name} ({item.type_name})" for item in recording.topics.values()) or "nothing"
        )
        raise ChoiceError(
            f"there are no point clouds ({CLOUD}) in it; it has {there}. Record the topic of the clouds as well"
        )
    firsts: dict[str, Any] = {}
    for name in names:
        cloud = _first(recording, name, decoder)
        try:
            check_layout(cloud)
            firsts[name] = cloud
        except CloudError:
            if len(names) == 1:
                raise
    size = {name: int(cloud.width) * int(cloud.height) for name, cloud in firsts.items()}
    counts = {item.name: item.count or 1 for item in candidates}
    total = {name: size[name] * counts[name] for name in firsts}
    order = sorted(total, key=lambda name: -total[name])
    if len(order) == 1 or (len(order) > 1 and total[order[0]] >= CLEARLY_MORE * total[order[1]]):
        others = (
            f", the most of {len(order)} topics with clouds"
            if len(order) > 1
            else ", the only topic with clouds"
        )
        reasons.append(f"clouds from {order[0]} ({counts[order[0]]} messages{others})")
        return order[0], firsts[order[0]]
    listed = "; ".join(
        f"{name} ({counts[name]} clouds of {size[name]:,} points in '{frame(firsts[name].header.frame_id)}')"
        for name in order
    )
    raise ChoiceError(f"several topics have clouds, choose one with --topic: {listed}")


def _first(recording: Recording, topic: str, decoder: Decoder) -> Any:
    for message in recording.messages([topic]):
        return decoder(message)
    raise ChoiceError(f"{topic} has no message that can be read")


def _tree(recording: Recording, topics: tuple[str, ...], decoder: Decoder) -> _Tree:
    """The frames as the beginning of the recording has them; static ones from all of it."""
    tree = _Tree()
    for topic in topics:
        static = topic.endswith("tf_static")
        start = recording.start
        stop = None if static or start is None else start + round(PEEK_SECONDS * NANOSECONDS)
        for number, message in enumerate(recording.messages([topic], None, stop)):
            if number >= PEEK_MESSAGES:
                break
            try:
                transforms = decoder(message).transforms
            except BagError:
                continue
            for item in transforms:
                child = frame(item.child_frame_id)
                tree.parents[child] = frame(item.header.frame_id)
                if not static:
                    tree.moving.add(child)
    return tree


def _pose_source(
    recording: Recording, wish: Wish, tree: _Tree, sensor_frame: str, reasons: list[str]
) -> tuple[str, str]:
    """tf, odometry or still, and the topic of the odometry."""
    topics = recording.of_type(*POSE_TYPES)
    if wish.still:
        reasons.append("no poses: the sensor is taken to stand still (--still)")
        return "still", ""
    if wish.odometry is not None:
        if wish.odometry not in {item.name for item in topics}:
            known = recording.topics.get(wish.odometry)
            what = f"is of type {known.type_name}" if known else "is not in the recording"
            listed = ", ".join(item.name for item in topics) or "no topic"
            raise ChoiceError(f"{wish.odometry} {what}; poses are on {listed}")
        reasons.append(f"poses from {wish.odometry} (--odom)")
        return "odometry", wish.odometry
    chain = tree.ancestors(sensor_frame)
    moving = [above for above in chain[1:] if tree.moves(sensor_frame, above)]
    if wish.tf or moving:
        if not moving:
            known = ", ".join(sorted({*tree.parents, *tree.parents.values()})) or "none"
            raise ChoiceError(
                f"no moving frame is above '{sensor_frame}' in the first {PEEK_SECONDS:.0f} s of /tf; frames: {known}"
            )
        others = f"; {', '.join(item.name for item in topics)} could be used with --odom" if topics else ""
        reasons.append(f"poses from /tf ({' <- '.join(reversed(chain))}){others}")
        return "tf", ""
    by_rank = sorted(topics, key=lambda item: (POSE_TYPES.index(item.type_name), -(item.count or 0)))
    best = [item for item in by_rank if item.type_name == by_rank[0].type_name]
    if len(best) == 1:
        reasons.append(
            f"poses from {best[0].name} ({best[0].type_name}): /tf does not lead to '{sensor_frame}'"
        )
        return "odometry", best[0].name
    if best:
        listed = "; ".join(f"{item.name} ({item.count} x {item.type_name})" for item in by_rank)
        raise ChoiceError(f"several topics have poses, choose one with --odom: {listed}")
    raise ChoiceError(
        f"nothing says where '{sensor_frame}' was: no moving /tf above it and no odometry. Record one of them, or say "
        "--still if the sensor did not move"
    )


def _map_frame(
    tree: _Tree, sensor_frame: str, wish: Wish, configured: str, pose_source: str, reasons: list[str]
) -> str:
    chain = tree.ancestors(sensor_frame)
    above = [name for name in chain[1:] if pose_source == "still" or tree.moves(sensor_frame, name)]
    if wish.map_frame is not None:
        if wish.map_frame not in above and pose_source != "still":
            raise ChoiceError(
                f"'{wish.map_frame}' is not above '{sensor_frame}': frames are {', '.join(above)}"
            )
        return wish.map_frame
    for name in (configured, *USUAL_MAP_FRAMES, *reversed(above)):
        if name in above:
            if name != configured:
                reasons.append(f"map in frame '{name}': there is no '{configured}'")
            return name
    return sensor_frame if pose_source == "still" else configured
