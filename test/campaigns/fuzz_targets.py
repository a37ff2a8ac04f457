"""What is fuzzed: for every reader a small good file, how it is read, and when what was read is the same or sound."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.config import Config, settings, with_settings

CONFIG = with_settings(
    Config(),
    {"mapping.size_x": 6.0, "mapping.size_y": 6.0, "mapping.resolution": 0.3, "mapping.length_scale": 1.0},
)


class Unsound(Exception):
    """A reader accepted what can't be true: what."""


@dataclass(frozen=True)
class Target:
    """A reader.

    make: writes the good file or folder into an empty folder
    read: reads it, checks that it is sound (Unsound), and gives what must not change unnoticed
    checked: the format has checksums, so that damaged bytes are refused or change nothing
    same: whether an answer (first) is what the good file (second) may give when its bytes are damaged
    inside: archives whose members are damaged with their checksums made right
    weight: how often it is chosen
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    checked: bool = False
    same: Callable[[Any, Any], bool] = operator.eq
    inside: bool = False
    weight: float = 1.0


def digest(*items: Any) -> str:
    out = hashlib.sha256()
    for item in items:
        if isinstance(item, np.ndarray):
            out.update(f"{item.dtype} {item.shape}".encode() + np.ascontiguousarray(item).tobytes())
        else:
            out.update(repr(item).encode())
    return out.hexdigest()


def require(condition: Any, what: str) -> None:
    if not bool(condition):
        raise Unsound(what)


def require_finite(array: Any, what: str) -> None:
    require(np.isfinite(np.asarray(array, dtype=np.float64)).all(), f"{what} not finite")


def require_time(stamp: Any, what: str) -> None:
    require(abs(int(stamp)) < 2**63, f"{what} beyond 64 bits")


def hills(count: int = 400, edge: float = 5.0) -> np.ndarray[Any, np.dtype[np.float64]]:
    rng = np.random.default_rng(1)
    xy = rng.uniform(-edge / 2, edge / 2, (count, 2))
    return np.column_stack([xy, 0.3 * np.sin(2.0 * xy[:, 0]) * np.cos(1.5 * xy[:, 1])])


# -- points ----------------------------------------------------------------------------------------------


def read_points(path: Path) -> str:
    from gpgmap_ros.io.points import open_points

    source = open_points(path)
    pieces = list(source.pieces())
    for piece in pieces:
        require(piece.ndim == 2 and piece.shape[1] == 3, f"points of shape {piece.shape}")
        require_finite(piece, "points")
    source.crs.label  # noqa: B018 (must not raise)
    return digest(np.concatenate([np.empty((0, 3)), *pieces]), source.crs.label)


def make_npz(folder: Path) -> Path:
    np.savez(folder / "p.npz", xyz=hills().astype(np.float32), offset=np.array([5e5, 4e6, 100.0]), epsg=32611)
    return folder / "p.npz"


def make_npz_columns(folder: Path) -> Path:
    x, y, z = hills().T
    np.savez_compressed(folder / "p.npz", x=x, y=y, z=z, crs="EPSG:25832")
    return folder / "p.npz"


def make_npy(folder: Path) -> Path:
    np.save(folder / "p.npy", hills())
    return folder / "p.npy"


def make_las(suffix: str, point_format: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import laspy

        header = laspy.LasHeader(point_format=point_format, version="1.4" if point_format > 5 else "1.2")
        header.offsets, header.scales = [0.0, 0.0, 0.0], [0.001] * 3
        las = laspy.LasData(header)
        las.x, las.y, las.z = hills().T
        las.classification = np.full(400, 2, dtype=np.uint8)
        las.write(folder / f"p{suffix}")
        return folder / f"p{suffix}"

    return make


def make_text(folder: Path) -> Path:
    np.savetxt(folder / "p.xyz", hills(), fmt="%.4f")
    return folder / "p.xyz"


def make_csv(folder: Path) -> Path:
    np.savetxt(folder / "p.csv", hills(), fmt="%.4f", delimiter=",", header="x,y,z", comments="")
    return folder / "p.csv"


def make_ply(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        xyz, path = hills(), folder / "p.ply"
        head = f"ply\nformat {kind} 1.0\nelement vertex {len(xyz)}\n"
        head += "".join(f"property double {name}\n" for name in "xyz") + "end_header\n"
        text = "".join(f"{x:.4f} {y:.4f} {z:.4f}\n" for x, y, z in xyz).encode()
        path.write_bytes(head.encode() + (text if kind == "ascii" else xyz.astype("<f8").tobytes()))
        return path

    return make


def make_pcd(storage: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        xyz, path = hills().astype("<f4"), folder / "p.pcd"
        head = (
            "VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"
            f"WIDTH {len(xyz)}\nHEIGHT 1\nPOINTS {len(xyz)}\nDATA {storage}\n"
        ).encode()
        if storage == "ascii":
            body = "".join(f"{x:.4f} {y:.4f} {z:.4f}\n" for x, y, z in xyz).encode()
        elif storage == "binary":
            body = xyz.tobytes()
        else:  # one field after the other, in runs of literals of LZF
            raw = xyz.T.tobytes()
            packed = b"".join(
                bytes([len(raw[at : at + 32]) - 1]) + raw[at : at + 32] for at in range(0, len(raw), 32)
            )
            body = np.array([len(packed), len(raw)], dtype="<u4").tobytes() + packed
        path.write_bytes(head + body)
        return path

    return make


# -- recordings ------------------------------------------------------------------------------------------


def recorded_messages() -> list[Any]:
    from gpgmap_ros.demo.drive import Frame
    from gpgmap_ros.demo.recording import drive_messages

    frames = []
    for index in range(5):
        T = np.eye(4)
        T[0, 3] = 0.3 * index
        frames.append(Frame(0.1 * index, T, hills(40).astype(np.float32)))
    return list(drive_messages(frames))


def make_bag(plugin: str, compressed: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
        from rosbags.typesys import Stores, get_typestore

        store = get_typestore(Stores.ROS2_JAZZY)
        writer = Writer(folder / "bag", version=9, storage_plugin=StoragePlugin[plugin])
        if compressed:
            writer.set_compression(CompressionMode.FILE, CompressionFormat.ZSTD)
        with writer:
            connections: dict[str, Any] = {}
            for item in recorded_messages():
                kind = item.message.__msgtype__
                if item.topic not in connections:
                    connections[item.topic] = writer.add_connection(item.topic, kind, typestore=store)
                writer.write(connections[item.topic], item.time, store.serialize_cdr(item.message, kind))
        return folder / "bag"

    return make


def make_ros1(folder: Path) -> Path:
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    from gpgmap_ros.io.recordings import ros1_types

    ros2, ros1 = get_typestore(Stores.ROS2_JAZZY), ros1_types()
    with Writer(folder / "r.bag") as writer:
        connections: dict[str, Any] = {}
        for item in recorded_messages():
            kind = item.message.__msgtype__
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, kind, typestore=ros1)
            raw = ros2.cdr_to_ros1(ros2.serialize_cdr(item.message, kind), kind)
            writer.write(connections[item.topic], item.time, raw)
    return folder / "r.bag"


_DECODER: list[Any] = []


def read_bag(path: Path) -> str:
    """All messages; clouds as points. What can't be decoded is counted, as the replay counts it."""
    from gpgmap_ros.io.bags import BagError
    from gpgmap_ros.io.recordings import Decoder, Recording
    from gpgmap_ros.sensing.pointcloud2 import CloudError, read_xyz

    if not _DECODER:
        _DECODER.append(Decoder())
    found: list[Any] = []
    with Recording([path]) as recording:
        for message in recording.messages():
            try:
                decoded = _DECODER[0](message)
                if message.type_name == "sensor_msgs/msg/PointCloud2":
                    xyz = read_xyz(decoded)
                    require_finite(xyz, "a cloud")
                    found.append(digest(xyz))
            except (BagError, CloudError) as error:
                found.append(type(error).__name__)
        found.append(len(recording.losses))
    return digest(found)


# -- what this package writes ----------------------------------------------------------------------------


def make_map(folder: Path) -> Path:
    from gpgmap_ros.mapping import ElevationMap
    from gpgmap_ros.mapping.map_file import save_map

    made = ElevationMap(CONFIG.mapping, (0.0, 0.0))
    made.add(hills(), np.full(400, 1e-4))
    save_map(folder / "m.npz", made, CONFIG, 10**18, 10**18 - 10**9)
    return folder / "m.npz"


def read_map(path: Path) -> str:
    from gpgmap_ros.mapping.map_file import load_map

    loaded = load_map(path, CONFIG)
    require_time(loaded.stamp, "the stamp")
    require_time(loaded.session, "the session")
    require_finite(loaded.elevation_map.grid.bounds, "the bounds of the map")
    blocks = loaded.elevation_map.blocks()
    if blocks is None:
        return digest(None, loaded.stamp)
    require_finite(blocks.reference, "the reference height")
    for name in ("weights", "heights", "totals"):
        require_finite(getattr(blocks, name), name)
    require((blocks.weights[:, 0, 0] >= 0.0).all(), "negative weights")
    total = blocks.weights[:, 0, 0]
    require((blocks.totals[:, 0] >= -1e-6 * total).all(), "negative sums of squares")  # but for round-off
    require((blocks.totals[:, 1] >= 0.0).all(), "negative numbers of points")
    return digest(blocks.index, blocks.weights, blocks.heights, blocks.totals, blocks.reference, loaded.stamp)


def some_submap(number: int = 0) -> Any:
    from gpgmap_ros.mapping.submaps import SubmapBuilder

    config = with_settings(
        CONFIG,
        {"submap.size": 6.0, "submap.resolution": 0.3, "submap.length_scale": 1.0},
    )
    builder = SubmapBuilder(config, np.eye(4), 10**18, 10**18)
    T = np.eye(4)
    T[0, 3] = 0.5
    builder.add(hills(), np.full(400, 1e-4), T, 10**18 + 10**9)
    submap = builder.finish(number, "distance")
    assert submap is not None
    return submap


def make_submaps(folder: Path) -> Path:
    from gpgmap_ros.mapping import SubmapStore

    SubmapStore(folder / "submaps", CONFIG).add(some_submap())
    return folder / "submaps"


def read_submaps(path: Path) -> str:
    from gpgmap_ros.mapping import SubmapStore

    store = SubmapStore(path, CONFIG)
    found: list[Any] = []
    for info in store.infos():
        submap = store.load(info.id)
        require_finite(submap.T_map_submap, "the pose of a submap")
        require(abs(np.linalg.det(submap.T_map_submap[:3, :3]) - 1.0) < 1e-6, "a pose that is no rotation")
        for stamp in (submap.first_stamp, submap.last_stamp, submap.session):
            require_time(stamp, "a stamp")
        for name in ("elevation", "variance"):
            layer = submap.gpgmap[name]
            require(not np.isinf(layer).any(), f"infinite {name}")
        variance = submap.gpgmap["variance"]
        require(not (variance[np.isfinite(variance)] < 0.0).any(), "negative variances")
        require_finite(submap.track.poses, "the track")
        if submap.points is not None:
            require_finite(submap.points.xyz, "statistics")
        found.append(
            digest(submap.gpgmap["elevation"], submap.gpgmap["variance"], submap.T_map_submap, info.id)
        )
    if not found and store.damaged:
        raise ValueError(next(iter(store.damaged.values())))
    return digest(found)


def two_submaps() -> list[Any]:
    import dataclasses

    T = np.eye(4)
    T[0, 3] = 4.0
    first = some_submap(0)
    return [first, dataclasses.replace(some_submap(1), T_map_submap=T)]


def make_session(folder: Path) -> Path:
    from gpgmap_ros.closure import ClosureConfig, LoopCloser

    closer = LoopCloser(ClosureConfig(threads=1, min_path=1e6))
    for submap in two_submaps():
        closer.add(submap)
    (folder / "session").mkdir()
    closer.save(folder / "session" / "s.npz")
    return folder / "session"


def read_session(path: Path) -> str:
    from gpgmap_ros.closure import ClosureConfig, LoopCloser

    closer = LoopCloser.load(path / "s.npz", ClosureConfig(threads=1, min_path=1e6))
    poses = closer.poses
    for T in poses.values():
        require_finite(T, "a corrected pose")
    return digest(sorted(poses), *(poses[key] for key in sorted(poses)), [c.reason for c in closer.closures])


def make_session_log(folder: Path) -> Path:
    """A file with a submap, and a log with two more, the last of which was compared with the first."""
    import dataclasses

    from gpgmap_ros.closure import ClosureConfig, LoopCloser

    (folder / "session").mkdir()
    closer = LoopCloser(ClosureConfig(threads=1, min_path=0.0))
    first = some_submap(0)
    for number, x in enumerate((0.0, 4.0, 0.5)):
        T = np.eye(4)
        T[0, 3] = x
        closer.add(dataclasses.replace(first, id=number, T_map_submap=T))
        closer.keep(folder / "session" / "s.npz")
    assert (folder / "session" / "s.log").exists()
    assert closer.comparisons
    return folder / "session"


def read_session_log(path: Path) -> list[str]:
    """One item for each submap. The log may end early, as after a kill: what comes before must be right."""
    from gpgmap_ros.closure import ClosureConfig, LoopCloser

    closer = LoopCloser.load(path / "s.npz", ClosureConfig(threads=1, min_path=0.0))
    for T in closer.poses.values():
        require_finite(T, "a corrected pose")
    for closure in closer.closures:
        require(not closure.accepted or np.isfinite(closure.covariance).all(), "a covariance not finite")
    compared = {s.id: [c.reason for c in closer.closures if c.b == s.id] for s in closer.nodes}
    return [digest(s.id, s.T_odom_submap, s.driven, compared[s.id]) for s in closer.nodes]


def is_beginning(answer: list[str], whole: list[str]) -> bool:
    return whole[: len(answer)] == answer


def make_database(folder: Path) -> Path:
    from gpgmap_ros.closure import ClosureDatabase

    database = ClosureDatabase()
    for submap in two_submaps():
        database.add(str(submap.id), submap.gpgmap)
    database.save(folder / "d.db")
    return folder / "d.db"


def read_database(path: Path) -> str:
    from gpgmap_ros.closure import ClosureDatabase

    database = ClosureDatabase.load(path)
    found = []
    for name in database:
        require(isinstance(name, str), "a name that is no text")
        surface = database._maps[name]
        for field in ("weight", "height", "slope_x", "slope_y"):
            array = getattr(surface, field)
            require(array.ndim == 2 and array.shape == surface.weight.shape, f"{field} of another shape")
            require_finite(array, field)
        require(np.isfinite(surface.resolution) and surface.resolution > 0.0, "a resolution that is none")
        found.append(digest(name, surface.height, surface.weight))
    return digest(found)


def make_config(folder: Path) -> Path:
    from gpgmap_ros.config.yaml import save_config

    save_config(CONFIG, folder / "c.yaml")
    return folder / "c.yaml"


def read_config(path: Path) -> str:
    from gpgmap_ros.config.yaml import load_config

    config = load_config(path)
    for item in settings(config):
        if isinstance(item.value, float):
            require(not np.isnan(item.value), f"{item.name} is NaN")
    return digest([item.value for item in settings(config)])


def make_run(folder: Path) -> Path:
    from gpgmap_ros.io.geotiff import Crs
    from gpgmap_ros.io.map_products import write_map_npz
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.io.trajectory import Trajectory, write_tum
    from gpgmap_ros.mapping import SubmapStore
    from gpgmap_ros.storage.atomic import write_json

    run = RunFolder(folder / "run")
    run.path.mkdir()
    run.begin({"kind": "replay", "name": "run", "clouds": {"used": 5}}, CONFIG)
    submap = some_submap()
    SubmapStore(run.submaps, CONFIG).add(submap)
    write_map_npz(run.map, submap.gpgmap, Crs(32611))
    write_tum(run.trajectory, Trajectory(np.array([1, 2]) * 10**18, np.tile(np.eye(4), (2, 1, 1))))
    write_json(run.closures, [{"a": 0, "b": 1, "accepted": False, "T_a_b": np.eye(4).tolist()}])
    return run.path


def read_run(path: Path) -> str:
    from gpgmap_ros.io.run_folder import RunFolder

    run = RunFolder(path)
    found: list[Any] = []
    errors: list[Exception] = []
    for read in (run.read_summary, run.read_trajectory, run.read_closures, run.read_config, run.read_map):
        try:
            found.append(read())
        except (ValueError, OSError) as error:
            errors.append(error)
    for item in found:
        if isinstance(item, tuple):
            gpgmap = item[0]
            require(not np.isinf(gpgmap["elevation"]).any(), "infinite heights")
            require_time(gpgmap.stamp, "the stamp of a map")
            require_finite(gpgmap.grid.bounds, "the bounds of a map")
        elif hasattr(item, "poses"):
            require_finite(item.poses, "a trajectory")
    read_submaps(run.submaps)
    if errors:
        raise errors[0]
    return digest(found[-1][0]["elevation"])


DECODED = 0.15
"""Weight of LAS and LAZ: whatever ends their decoder costs its start, ten times what other mutants do."""
TARGETS = (
    Target("points npz", make_npz, read_points, checked=True, inside=True),
    Target("points npz columns", make_npz_columns, read_points, checked=True, inside=True),
    Target("points npy", make_npy, read_points),
    Target("points las", make_las(".las", 1), read_points, weight=DECODED),
    Target("points laz", make_las(".laz", 1), read_points, weight=DECODED),
    Target("points laz layered", make_las(".laz", 6), read_points, weight=DECODED),
    Target("points text", make_text, read_points),
    Target("points csv", make_csv, read_points),
    Target("points ply", make_ply("binary_little_endian"), read_points),
    Target("points ply text", make_ply("ascii"), read_points),
    Target("points pcd", make_pcd("binary"), read_points),
    Target("points pcd text", make_pcd("ascii"), read_points),
    Target("points pcd compressed", make_pcd("binary_compressed"), read_points),
    Target("bag sqlite", make_bag("SQLITE3"), read_bag, weight=0.5),
    Target("bag mcap", make_bag("MCAP"), read_bag, weight=0.5),
    Target("bag packed", make_bag("SQLITE3", compressed=True), read_bag, weight=0.5),
    Target("bag ros1", make_ros1, read_bag, weight=0.5),
    Target("map", make_map, read_map, checked=True, inside=True, weight=2.0),
    Target("submap", make_submaps, read_submaps, checked=True, inside=True, weight=2.0),
    Target("session", make_session, read_session, checked=True, inside=True),
    Target("session log", make_session_log, read_session_log, checked=True, same=is_beginning, inside=True),
    Target("database", make_database, read_database, checked=True, inside=True),
    Target("config", make_config, read_config, weight=0.3),
    Target("run folder", make_run, read_run, inside=True, weight=0.5),
)
