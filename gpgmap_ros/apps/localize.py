"""A recording localised in a saved run: where the robot was in it, cloud by cloud, with covariance and status.

    run = LocalizeRun(replay, session, config)
    for _ in run.steps():
        print(run.localization.state.status, run.localization.state.reason)
    write_localization(folder, run, summary)

The saved run is only read. Poses are those that a robot would have had at that moment: nothing later corrects them.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.apps.replay import Replay
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import quaternion_of
from gpgmap_ros.io.run_folder import RunError, RunFolder
from gpgmap_ros.io.trajectory import write_tum
from gpgmap_ros.mapping.submaps import submap_mapping
from gpgmap_ros.report.content import Content, describe_origin, layers_of, settings_rows, track_of
from gpgmap_ros.report.page import write_report
from gpgmap_ros.slam import Step, Trajectory
from gpgmap_ros.slam.localization import Localization
from gpgmap_ros.slam.localizer import TRACKING
from gpgmap_ros.slam.pose_belief import PoseBelief
from gpgmap_ros.slam.session import Session, SessionError
from gpgmap_ros.slam.work_queue import InlineExecutor
from gpgmap_ros.storage.atomic import write_text

POSES = "poses.csv"


@dataclass(frozen=True, eq=False)
class LocalizedCloud:
    """What was known at one cloud. pose: None unless the status is tracking"""

    stamp: int
    drive: int
    driven: float
    status: str
    probability: float
    pose: PoseBelief | None


@dataclass(frozen=True)
class Change:
    """The status or its reason has changed. seconds: of the recording; driven: metres in the drive"""

    seconds: float
    driven: float
    status: str
    reason: str


def localization_config(session: Session, changes: dict[str, Any]) -> Config:
    """The settings of the run, with changes. SessionError where its submaps could not be compared any more."""
    config = with_settings(session.config, changes)
    cell = submap_mapping(config).resolution
    if abs(np.log(cell / session.resolution)) > 1e-3:
        raise SessionError(
            f"{session.path}: its submaps have cells of {session.resolution:g} m, and the settings ask for {cell:g} m:"
            " leave submap.resolution and mapping.resolution as the run has them"
        )
    return with_settings(config, {"closure.enabled": False, "submap.enabled": True, "map_folder": ""})


class LocalizeRun:
    """One recording in one saved run. replay: made with `localization_config`"""

    def __init__(self, replay: Replay, session: Session) -> None:
        self.replay, self.session = replay, session
        config = replay.config.localization
        self.localization = Localization(session.localizer(config), config, InlineExecutor(_fail))
        self.clouds: list[LocalizedCloud] = []
        self.changes: list[Change] = []
        self.first_fixes: dict[int, float] = {}

    def steps(self, start: int | None = None, stop: int | None = None) -> Iterator[Step]:
        """Localise the clouds between two times of the recording, nanoseconds."""
        first, last = 0, None
        for step in self.replay.steps(start, stop):
            first = first or step.cloud.stamp
            self.localization.add(step.drive, step.pose.T_map_robot, self.replay.mapping)
            self._take(step, (step.cloud.stamp - first) / 1e9)
            last = step
            yield step
        if last is not None:  # what was seen last counts, too
            self.localization.finish(self.replay.mapping)
            self.clouds.pop()
            self._take(last, (last.cloud.stamp - first) / 1e9)

    def _take(self, step: Step, seconds: float) -> None:
        localization = self.localization
        state = localization.state
        found = localization.pose()
        self.clouds.append(
            LocalizedCloud(
                step.cloud.stamp, step.drive, localization.driven, state.status, state.probability, found
            )
        )
        change = Change(round(seconds, 3), round(localization.driven, 2), state.status, state.reason)
        if not self.changes or (self.changes[-1].status, self.changes[-1].reason) != (
            change.status,
            change.reason,
        ):
            self.changes.append(change)
        if state.status == TRACKING:
            self.first_fixes.setdefault(step.drive, localization.driven)

    @property
    def trajectory(self) -> Trajectory:
        """Where the robot was in the map, wherever that was known."""
        known = [(cloud.stamp, cloud.pose.T) for cloud in self.clouds if cloud.pose is not None]
        stamps = np.array([stamp for stamp, _ in known], dtype=np.int64)
        order = np.argsort(stamps, kind="stable")
        return Trajectory(stamps[order], np.array([T for _, T in known]).reshape(-1, 4, 4)[order])


def _fail(error: Exception) -> None:
    raise error


def write_localization(folder: RunFolder, run: LocalizeRun, summary: dict[str, Any]) -> dict[str, Any]:
    """Write everything but run.json; returns the summary with what is known now."""
    summary = {**summary, **numbers(run)}
    write_tum(folder.trajectory, run.trajectory)
    write_text(folder.path / POSES, poses_csv(run))
    write_report(folder.report, page_of(run, summary))
    return summary


def numbers(run: LocalizeRun) -> dict[str, Any]:
    """What happened, in numbers."""
    replay, counts = run.replay, Counter(cloud.status for cloud in run.clouds)
    tracked = [cloud.pose.position_std for cloud in run.clouds if cloud.pose is not None]
    return {
        "map": str(run.session.path),
        "frame": run.session.frame,
        "clouds": {
            "read": replay.metrics["clouds read"],
            "used": len(run.clouds),
            "dropped": dict(replay.metrics.dropped),
        },
        "statuses": dict(counts),
        "fixes": run.localization.localizer.fixes,
        "drives": [
            {
                "number": drive.number,
                "way_m": round(drive.odometry.length, 3),
                "first_fix_m": _rounded(run.first_fixes.get(drive.number)),
            }
            for drive in replay.drives
            if drive.stamps
        ],
        "median_std_m": _rounded(float(np.median(tracked)) if tracked else None),
        "changes": [vars(change) for change in run.changes],
        "warnings": [*run.session.warnings, *(item.sentence for item in replay.findings)],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def poses_csv(run: LocalizeRun) -> str:
    """One row for each cloud; the covariance row by row, over (x, y, z, roll, pitch, yaw)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["stamp", "drive", "driven", "status", "probability", "x", "y", "z", "qx", "qy", "qz", "qw"]
    writer.writerow([*names, *(f"c{i}{j}" for i in range(6) for j in range(6))])
    for cloud in run.clouds:
        row: list[Any] = [f"{cloud.stamp // 10**9}.{cloud.stamp % 10**9:09d}", cloud.drive]
        row += [f"{cloud.driven:.3f}", cloud.status, f"{cloud.probability:.6f}"]
        if cloud.pose is None:
            row += [""] * 43
        else:
            values = [*cloud.pose.T[:3, 3], *quaternion_of(cloud.pose.T), *cloud.pose.covariance.ravel()]
            row += [f"{value:.9g}" for value in values]
        writer.writerow(row)
    return text.getvalue()


def page_of(run: LocalizeRun, summary: dict[str, Any]) -> Content:
    """The report: the saved map with the way of the robot in it."""
    shown = None
    with contextlib.suppress(RunError, ValueError, OSError):  # a node's folder has no map, only submaps
        gpgmap, _ = RunFolder(run.session.path).read_map()
        if (
            gpgmap.frame_id == run.session.frame
        ):  # a georeferenced map stands in other coordinates than the poses
            shown = layers_of(gpgmap)
    return Content(
        title=summary["name"],
        subtitle=f"localised in {run.session.path.name}",
        abstract=abstract(summary),
        facts=facts(summary),
        map=shown,
        tracks=[track_of("localised", "corrected", run.trajectory)],
        warnings=summary["warnings"],
        settings=settings_rows(run.replay.config),
        files=[
            ("trajectory.txt", "TUM format, in the map's frame"),
            (POSES, "every cloud with status and covariance"),
            ("run.json", "the numbers of this page, and every change of the status"),
        ],
        made=describe_origin(),
    )


def abstract(summary: dict[str, Any]) -> str:
    """The result in a few sentences."""
    used, tracked = summary["clouds"]["used"], summary["statuses"].get(TRACKING, 0)
    where = f"the map of {Path(summary['map']).name}"
    if not tracked:
        last = summary["changes"][-1]["reason"] if summary["changes"] else "no cloud could be used"
        return f"The robot was not found in {where}: {last}."
    ways = [row["first_fix_m"] for row in summary["drives"] if row["first_fix_m"] is not None]
    return (
        f"{tracked} of {used} clouds are placed in {where}, the first after {ways[0]:.1f} m of way;"
        f" {summary['fixes']} submaps corrected the pose, and its median standard deviation is"
        f" {summary['median_std_m']:.2f} m."
    )


def facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    clouds = summary["clouds"]
    return [
        ("map", Path(summary["map"]).name),
        ("clouds used", f"{clouds['used']:,} of {clouds['read']:,}"),
        *((status, f"{count:,} clouds") for status, count in summary["statuses"].items()),
        ("fixes", str(summary["fixes"])),
    ]
