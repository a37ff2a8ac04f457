"""Selects the topics of a recording to map: clouds and poses, found from its beginning.

Each selection comes with its reason. Where two topics are equally likely, the error lists the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.pose_files import read_pose_file
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.io.trajectory import TrajectoryError
from gpgmap_ros.optional_packages import explain_missing
from gpgmap_ros.sensing import PoseSource, SourceSetup, make_source
from gpgmap_ros.sensing.cloud import cloud_size
from gpgmap_ros.sensing.file_source import FileSource
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, ScanRegistration
from gpgmap_ros.sensing.livox import LIVOX_TYPES, is_livox
from gpgmap_ros.sensing.messages import GPS, IMU, POSE_TYPES, TF_TYPES, nanoseconds
from gpgmap_ros.sensing.pointcloud2 import CloudError, check_layout
from gpgmap_ros.sensing.source_setup import MAX_TILT
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, frame_name
from gpgmap_ros.slam.trajectory import Trajectory

CLOUD = "sensor_msgs/msg/PointCloud2"
CLOUD_TYPES = (CLOUD, *LIVOX_TYPES)
PEEK_SECONDS, PEEK_MESSAGES = 10.0, 20_000
"""How much of the poses is looked at, from the beginning."""
CLEARLY_MORE = 2.0
"""A cloud topic with this many times the points of the next one is taken without asking."""
MAX_OVERLAP = 1.0
"""Seconds of one topic that two bags of one recording may share, where the recorder went from one to the next."""
USUAL_MAP_FRAMES = ("odom", "map", "world")


class TopicSelectionError(ValueError):
    """No choice can be made: why, the candidates, and the option that decides."""


@dataclass(frozen=True)
class PoseFile:
    """A trajectory file beside the recording.

    of_base: its poses are the robot's, not the sensor's; offset: seconds to add to its times
    """

    path: Path
    of_base: bool = False
    offset: float = 0.0


@dataclass(frozen=True)
class TopicRequest:
    """What the user has decided. None and False: guess.

    topic: of the clouds; odometry: topic of the poses; tf: poses from the tree of frames; lidar: by registering clouds
    lidar_inertial: by rko-lio from clouds and IMU
    still: the sensor stands; poses: from a file
    map_frame: gravity-aligned frame for the map
    imu, gps: topics of these, or "none"
    """

    topic: str | None = None
    odometry: str | None = None
    tf: bool = False
    lidar: bool = False
    lidar_inertial: bool = False
    still: bool = False
    poses: PoseFile | None = None
    map_frame: str | None = None
    imu: str | None = None
    gps: str | None = None


@dataclass(frozen=True)
class TopicSelection:
    """What is used, and why.

    topic, sensor_frame: of the clouds; pose_source: tf, odometry, lidar, lidar_inertial, file or still
    pose_topic: for odometry
    map_frame, base_frame: as in the configuration; mounted: whether frames lead from the base to the sensor
    transform_topics: /tf and /tf_static, as far as the recording has them
    pose_file, trajectory: where pose_source is file
    imu_topic, gps_topic: empty where there is none, or it is not used
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
    pose_file: PoseFile | None = None
    trajectory: Trajectory | None = field(default=None, repr=False)
    imu_topic: str = ""
    gps_topic: str = ""

    @property
    def topics(self) -> set[str]:
        """Everything that has to be read."""
        optional = {self.pose_topic, self.imu_topic, self.gps_topic}
        return {self.topic, *self.transform_topics} | {name for name in optional if name}


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


def select_topics(
    recording: Recording, request: TopicRequest, map_frame: str, base_frame: str
) -> TopicSelection:
    """Decide what to use. TopicSelectionError where there is nothing to choose from, or too much.

    map_frame, base_frame: as configured; taken where the recording has them and the request asks for nothing else
    """
    decoder = Decoder()
    reasons: list[str] = []
    warnings: list[str] = []
    topic, cloud = _cloud_topic(recording, request.topic, decoder, reasons)
    both = recording.simultaneous(topic)
    if both is not None and both[2] > MAX_OVERLAP:
        raise TopicSelectionError(
            f"{both[0]} and {both[1]} have clouds on {topic} from the same {both[2]:.0f} s: these are two robots, or"
            " one recording twice; replay them one by one"
        )
    sensor_frame = frame_name(cloud.header.frame_id)
    transform_topics = tuple(item.name for item in recording.of_type(*TF_TYPES))
    tree = _tree(recording, transform_topics, decoder)
    pose_source, pose_topic = _pose_source(recording, request, tree, sensor_frame, base_frame, reasons)
    if pose_source == "odometry":
        first = _first(recording, pose_topic, decoder)
        told, base = (
            frame_name(first.header.frame_id),
            frame_name(getattr(first, "child_frame_id", "")) or base_frame,
        )
        registered = bool(told) and sensor_frame == told and sensor_frame != base
        mounted = registered or sensor_frame == base or tree.connected(sensor_frame, base)
        if registered:
            reasons.append(_registered(sensor_frame, base))
        if request.map_frame and request.map_frame != told:
            raise TopicSelectionError(
                f"{pose_topic} is in frame '{told}', not '{request.map_frame}': leave --map-frame out"
            )
        if not mounted:
            warnings.append(
                f"no transform leads from '{base}' to '{sensor_frame}': the sensor is taken to be at '{base}'"
            )
        chosen_frame, base_frame = told or "odom", base
    else:
        mounted = True
        registered = tree.moves(base_frame, sensor_frame) and request.map_frame in (None, sensor_frame)
        if pose_source == "tf" and registered:
            reasons.append(_registered(sensor_frame, base_frame))
            chosen_frame = sensor_frame
        else:
            chosen_frame = _map_frame(tree, sensor_frame, request, map_frame, pose_source, reasons)
    trajectory = None if request.poses is None else _read_poses(request.poses, recording, topic, decoder)
    imu_topic = _sensor_topic(recording, IMU, request.imu, "--imu", "the IMU", reasons)
    gps_topic = _sensor_topic(recording, GPS, request.gps, "--gps", "GPS fixes", reasons)
    return TopicSelection(
        topic, sensor_frame, pose_source, chosen_frame, base_frame, pose_topic, mounted, transform_topics,
        tuple(reasons), tuple(warnings), request.poses, trajectory, imu_topic, gps_topic,
    )  # fmt: skip


def _registered(sensor_frame: str, base_frame: str) -> str:
    return (
        f"the clouds are in the frame of the poses, '{sensor_frame}', already: rays begin at '{base_frame}'"
    )


def _sensor_topic(
    recording: Recording, kind: str, wanted: str | None, option: str, what: str, reasons: list[str]
) -> str:
    """The topic of an IMU or a GPS receiver; empty where there is none, or none is wanted.

    Of several the one with the most messages: they are optional, and the choice is said.
    """
    found = {item.name: item.count or 1 for item in recording.of_type(kind) if item.count != 0}
    if wanted == "none":
        return ""
    if wanted is not None:
        if wanted not in found:
            known = recording.topics.get(wanted)
            is_what = f"is of type {known.type_name}, not {kind}" if known else "is not in the recording"
            raise TopicSelectionError(
                f"{option} {wanted}: it {is_what}; {what} can be read from {', '.join(found) or 'no topic'}"
            )
        return wanted
    if not found:
        return ""
    best = max(found, key=lambda name: found[name])
    others = f", the most of {len(found)} topics; {option} decides" if len(found) > 1 else ""
    reasons.append(f"{what} from {best} ({found[best]} messages{others})")
    return best


def configured_source(pose_source: str) -> str:
    """The setting `pose_source` for the source of a recording: a file and a sensor that stands have none."""
    return pose_source if pose_source in ("tf", "lidar", "lidar_inertial") else "odometry"


def recorded_source(
    selection: TopicSelection,
    limits: DriveConfig | None = None,
    max_tilt: float = MAX_TILT,
    make_odometry: Callable[[], ScanRegistration] = LidarOdometry,
) -> PoseSource:
    """The pose source for the messages of a recording.

    limits: of the motion within a drive, the defaults unless given
    max_tilt: radians against gravity beyond which the map's frame is refused
    make_odometry: registers the clouds where there are no poses
    """
    setup = SourceSetup.recorded(
        selection.map_frame, selection.base_frame, selection.sensor_frame, selection.mounted, selection.pose_topic,
        limits, max_tilt, bool(selection.imu_topic), make_odometry,
    )  # fmt: skip
    if selection.trajectory is not None and selection.pose_file is not None:
        trajectory = selection.trajectory
        return FileSource(setup, trajectory.stamps, trajectory.poses, selection.pose_file.of_base)
    return make_source(selection.pose_source, setup)


def _read_poses(file: PoseFile, recording: Recording, topic: str, decoder: Decoder) -> Trajectory:
    def cloud_stamps() -> list[int]:
        return [nanoseconds(decoder(message).header.stamp) for message in recording.messages([topic])]

    try:
        trajectory = read_pose_file(file.path, cloud_stamps)
    except TrajectoryError as error:
        raise TopicSelectionError(str(error)) from error
    return Trajectory(trajectory.stamps + round(file.offset * NANOSECONDS), trajectory.poses)


def _cloud_topic(
    recording: Recording, wanted: str | None, decoder: Decoder, reasons: list[str]
) -> tuple[str, Any]:
    candidates = [item for item in recording.of_type(*CLOUD_TYPES) if item.count != 0]
    names = [item.name for item in candidates]
    if wanted is not None:
        if wanted not in names:
            known = recording.topics.get(wanted)
            what = f"is of type {known.type_name}, not {CLOUD}" if known else "is not in the recording"
            raise TopicSelectionError(f"{wanted} {what}; clouds are on {', '.join(names) or 'no topic'}")
        return wanted, _first(recording, wanted, decoder)
    if not candidates:
        silent = [item.name for item in recording.of_type(*CLOUD_TYPES)]
        if silent:
            raise TopicSelectionError(
                f"no cloud was recorded on {', '.join(silent)}: was the driver running, and could the recorder hear it"
                " (quality of service)? Record again"
            )
        there = (
            ", ".join(f"{item.name} ({item.type_name})" for item in recording.topics.values()) or "nothing"
        )
        raise TopicSelectionError(
            f"there are no point clouds ({CLOUD}) in it; it has {there}. Record the topic of the clouds as well"
        )
    firsts: dict[str, Any] = {}
    for name in names:
        cloud = _first(recording, name, decoder)
        try:
            if not is_livox(cloud):
                check_layout(cloud)
            firsts[name] = cloud
        except CloudError:
            if len(names) == 1:
                raise
    size = {name: cloud_size(cloud) for name, cloud in firsts.items()}
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
        f"{name} ({counts[name]} clouds of {size[name]:,} points in '{frame_name(firsts[name].header.frame_id)}')"
        for name in order
    )
    raise TopicSelectionError(f"several topics have clouds, choose one with --topic: {listed}")


def _first(recording: Recording, topic: str, decoder: Decoder) -> Any:
    for message in recording.messages([topic]):
        return decoder(message)
    raise TopicSelectionError(f"{topic} has no message that can be read")


def _tree(recording: Recording, topics: tuple[str, ...], decoder: Decoder) -> _Tree:
    """The frames as the first messages have them; static ones from all of the recording."""
    tree = _Tree()
    for topic in topics:
        static = topic.endswith("tf_static")
        begun: int | None = None  # a robot may start long after the recorder
        for number, message in enumerate(recording.messages([topic])):
            begun = message.time if begun is None else begun
            late = not static and message.time > begun + round(PEEK_SECONDS * NANOSECONDS)
            if late or number >= PEEK_MESSAGES:
                break
            try:
                transforms = decoder(message).transforms
            except BagError:
                continue
            for item in transforms:
                child = frame_name(item.child_frame_id)
                tree.parents[child] = frame_name(item.header.frame_id)
                if not static:
                    tree.moving.add(child)
    return tree


def _pose_source(
    recording: Recording,
    request: TopicRequest,
    tree: _Tree,
    sensor_frame: str,
    base_frame: str,
    reasons: list[str],
) -> tuple[str, str]:
    """tf, odometry, lidar, lidar_inertial, file or still, and the topic of the odometry."""
    topics = recording.of_type(*POSE_TYPES)
    if request.still:
        reasons.append("no poses: the sensor is taken to stand still (--still)")
        return "still", ""
    if request.odometry is not None:
        if request.odometry not in {item.name for item in topics}:
            known = recording.topics.get(request.odometry)
            what = f"is of type {known.type_name}" if known else "is not in the recording"
            listed = ", ".join(item.name for item in topics) or "no topic"
            raise TopicSelectionError(f"{request.odometry} {what}; poses are on {listed}")
        reasons.append(f"poses from {request.odometry} (--odom)")
        return "odometry", request.odometry
    if request.poses is not None:
        whose = "the robot's" if request.poses.of_base else "the sensor's"
        reasons.append(f"poses from {request.poses.path}, {whose} (--poses)")
        return "file", ""
    if request.lidar_inertial:
        _require_imu(recording, request)
        _require_lidar_odometry("--lidar-inertial", "small_gicp", "rko_lio")
        reasons.append("poses by LiDAR-inertial odometry (--lidar-inertial)")
        return "lidar_inertial", ""
    if request.lidar:
        _require_lidar_odometry("--lidar")
        reasons.append("poses by LiDAR odometry (--lidar)")
        return "lidar", ""
    chain = tree.ancestors(sensor_frame)
    moving = [above for above in chain[1:] if tree.moves(sensor_frame, above)]
    # clouds in the frame of the poses already
    if not moving and tree.moves(base_frame, sensor_frame):
        chain = tree.ancestors(base_frame)
        moving = chain[: chain.index(sensor_frame)]
    if request.tf or moving:
        if not moving:
            frames = ", ".join(sorted({*tree.parents, *tree.parents.values()})) or "none"
            raise TopicSelectionError(
                f"no moving frame is above '{sensor_frame}' in the first {PEEK_SECONDS:.0f} s of /tf; frames: {frames}"
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
        raise TopicSelectionError(f"several topics have poses, choose one with --odom: {listed}")
    missing = f"there is no moving /tf above '{sensor_frame}' and no odometry"
    _require_lidar_odometry(missing)
    reasons.append(f"poses by LiDAR odometry: {missing} (--still if the sensor did not move)")
    return "lidar", ""


def _require_imu(recording: Recording, request: TopicRequest) -> None:
    if request.imu == "none" or not any(item.count != 0 for item in recording.of_type(IMU)):
        raise TopicSelectionError(
            f"--lidar-inertial needs the messages of an IMU ({IMU}): say --lidar where there is none"
        )


def _require_lidar_odometry(why: str, *modules: str) -> None:
    try:
        for name in modules or ("small_gicp",):
            import_module(name)
    except ImportError as error:
        raise TopicSelectionError(
            f"{why}: {explain_missing(error)}. Or record one of them, or say --still if the sensor did not move"
        ) from error


def _map_frame(
    tree: _Tree,
    sensor_frame: str,
    request: TopicRequest,
    configured: str,
    pose_source: str,
    reasons: list[str],
) -> str:
    chain = tree.ancestors(sensor_frame)
    above = [name for name in chain[1:] if pose_source == "still" or tree.moves(sensor_frame, name)]
    free = pose_source in ("still", "lidar", "lidar_inertial", "file")  # of frames in the recording
    if request.map_frame is not None:
        if request.map_frame not in above and not free:
            raise TopicSelectionError(
                f"'{request.map_frame}' is not above '{sensor_frame}': frames are {', '.join(above)}"
            )
        return request.map_frame
    for name in (configured, *USUAL_MAP_FRAMES, *reversed(above)):
        if name in above:
            if name != configured:
                reasons.append(f"map in frame '{name}': there is no '{configured}'")
            return name
    return sensor_frame if pose_source == "still" else configured
