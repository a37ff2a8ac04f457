"""What several commands share: settings on the command line, output folders, JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from gpgmap_ros.config import Config, ConfigError, with_settings
from gpgmap_ros.config.yaml import flatten, load_config, parse_yaml
from gpgmap_ros.share import share_file
from gpgmap_ros.storage.folder_lock import LOCK_FILE, FolderLock

SENSORS = ("spinning_lidar", "solid_state_lidar", "stereo")


class UsageError(ValueError):
    """The call is not valid: why, and what would be."""


class Interrupted(Exception):
    """The user ended the work; what was kept."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    """--config, --sensor and --set, in the order in which they count."""
    group = parser.add_argument_group("settings (`gpgmap config` lists them)")
    group.add_argument("--config", type=Path, metavar="FILE", help="YAML with settings, as for mapping_node")
    group.add_argument(
        "--sensor",
        choices=SENSORS,
        help="noise and filter settings for a kind of sensor, applied after the file",
    )
    group.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, applied after both; may be repeated",
    )


class Once(argparse.Action):
    """Stores a value, and refuses a second one: argparse would forget the first without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        if before not in (self.default, values):
            raise argparse.ArgumentError(
                self,
                f"{before} and {values}: only one can be given; the node takes clouds of several sensors",
            )
        setattr(namespace, self.dest, values)


def add_source(parser: argparse.ArgumentParser) -> Any:
    """What of a recording is used: --topic, one source of poses, and --map-frame. The group, for more."""
    group = parser.add_argument_group("what to read from a recording (guessed unless given)")
    group.add_argument("--topic", action=Once, metavar="NAME", help="topic of the point clouds")
    poses = group.add_mutually_exclusive_group()
    poses.add_argument("--odom", metavar="NAME", help="topic of the poses: Odometry, PoseStamped or similar")
    poses.add_argument("--tf", action="store_true", help="poses from /tf")
    poses.add_argument(
        "--lidar", action="store_true", help="poses by registering the clouds (LiDAR odometry)"
    )
    poses.add_argument(
        "--lidar-inertial", action="store_true", help="poses by rko-lio from the clouds and the IMU"
    )
    poses.add_argument(
        "--poses", type=Path, metavar="FILE", help="poses from a trajectory file: TUM, KITTI or EuRoC (CSV)"
    )
    poses.add_argument("--still", action="store_true", help="no poses: the sensor stands still")
    group.add_argument(
        "--poses-of",
        choices=("sensor", "base"),
        default="sensor",
        help="whose poses FILE has (default: sensor)",
    )
    group.add_argument(
        "--poses-offset", type=float, default=0.0, metavar="S", help="seconds to add to the times of FILE"
    )
    group.add_argument("--imu", metavar="TOPIC", help="of the IMU, or none (default: where there is one)")
    group.add_argument("--gps", metavar="TOPIC", help="of GPS fixes, or none (default: where there are some)")
    group.add_argument("--map-frame", metavar="FRAME", help="gravity-aligned frame of the map")
    return group


def topic_request_from(arguments: argparse.Namespace) -> Any:
    """What `add_source` was told, for apps.topic_selection."""
    from gpgmap_ros.apps.topic_selection import PoseFile, TopicRequest

    poses = None
    if arguments.poses is not None:
        poses = PoseFile(arguments.poses, arguments.poses_of == "base", arguments.poses_offset)
    return TopicRequest(
        topic=arguments.topic,
        odometry=arguments.odom,
        tf=arguments.tf,
        lidar=arguments.lidar,
        lidar_inertial=arguments.lidar_inertial,
        still=arguments.still,
        poses=poses,
        map_frame=arguments.map_frame,
        imu=arguments.imu,
        gps=arguments.gps,
    )


def config_from(arguments: argparse.Namespace) -> Config:
    """The settings that the options ask for. UsageError or ConfigError where one makes no sense."""
    config = load_config(arguments.config) if arguments.config else Config()
    if arguments.sensor:
        preset = yaml.safe_load(share_file("config", f"{arguments.sensor}.yaml").read_text())
        config = with_settings(config, flatten(preset["/**"]["ros__parameters"]))
    return with_settings(config, changes_from(arguments.changes))


def given_settings(arguments: argparse.Namespace) -> set[str]:
    """Names of the settings that the user decided, by --set or in the file: guesses must leave them alone."""
    names = set(changes_from(arguments.changes))
    if arguments.config:
        default, loaded = dict(_values(Config())), dict(_values(load_config(arguments.config)))
        names |= {name for name, value in loaded.items() if value != default[name]}
    return names


def _values(config: Config) -> Iterable[tuple[str, Any]]:
    from gpgmap_ros.config import settings

    return ((item.name, item.value) for item in settings(config))


def changes_from(texts: list[str]) -> dict[str, Any]:
    changes = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set {text}: expected NAME=VALUE, as in --set mapping.resolution=0.2")
        try:
            parsed = parse_yaml(value) if value.strip() else ""
        except ConfigError:
            raise UsageError(f"--set {text}: '{value}' is not a value") from None
        # YAML 1.1 reads 1e-3 as text
        if isinstance(parsed, str):
            with contextlib.suppress(ValueError):
                parsed = float(parsed)
        changes[name.strip()] = parsed
    try:
        with_settings(Config(), changes)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return changes


OWNER = ("gpgmap", "name another folder with --out")
_OWNED: list[FolderLock] = []
"""Until `release_folders`, or the end of the process."""
MARK = "run.json"
"""The file by which a folder is known to be ours."""


def output_folder(wanted: Path | None, name: str, overwrite: bool) -> Path:
    """A new, empty folder that this process owns until `release_folders`: the one asked for, or `name`.

    With a number behind the name where that exists and must not be replaced.
    """
    if wanted is None:
        wanted, number = Path(name), 2
        while wanted.exists() and not (overwrite and _replaceable(wanted)):
            wanted, number = Path(f"{name}_{number}"), number + 1
    check_output_folder(wanted)
    if wanted.exists() and any(path.name != LOCK_FILE for path in wanted.iterdir()):
        if not _replaceable(wanted):
            raise UsageError(f"{wanted} contains other files: choose an empty or a new folder with --out")
        if not overwrite:
            raise UsageError(
                f"{wanted} contains an earlier run: choose another folder with --out, or use --overwrite"
            )
        with FolderLock(wanted, *OWNER):  # a run that is still writing is not deleted
            shutil.rmtree(wanted)
    _OWNED.append(FolderLock(wanted, *OWNER))
    return wanted


def release_folders() -> None:
    """Give free what `output_folder` and `unfinished_folder` took: the command has ended, the process need not."""
    while _OWNED:
        _OWNED.pop().release()


def unfinished_folder(wanted: Path) -> Path:
    """The folder of a run to go on with, which this process owns from now on. UsageError where it is none."""
    if not _replaceable(wanted):
        raise UsageError(f"--resume: {wanted} is not the folder of a run: name the one given to --out")
    _OWNED.append(FolderLock(wanted, *OWNER))
    return wanted


def _replaceable(folder: Path) -> bool:
    return (folder / MARK).exists()


def check_output_folder(wanted: Path | None) -> None:
    """UsageError where no folder can be made there. Worth calling before hours of work."""
    if wanted is None:
        return
    there = next(path for path in (wanted, *wanted.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"--out {wanted}: {there} is a file: choose a new or empty folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"--out {wanted}: {there} is not writable: choose another folder")


def check_output_file(path: Path, option: str = "--out") -> None:
    """UsageError where no file can be written there. Worth calling before the work. option: that names the file"""
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder: name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: {path.parent.absolute()} is not writable: choose another folder")


def add_output(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--out", "-o", type=Path, metavar="FOLDER", help=f"folder for the results (default: {default})"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in that folder")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")


def print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2)
    print()


def say(arguments: argparse.Namespace, text: str) -> None:
    """For people: not with --json."""
    if not getattr(arguments, "json", False):
        print(text, flush=True)


def table(rows: list[tuple[str, str]], indent: str = "  ") -> str:
    """Names and values, values aligned; a value may have several lines."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, value in rows:
        first, *rest = value.splitlines() or [""]
        lines.append(f"{indent}{name:<{width}}  {first}".rstrip())
        lines.extend(f"{indent}{'':<{width}}  {line}" for line in rest)
    return "\n".join(lines)
