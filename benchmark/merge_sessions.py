"""Five sessions over one place, merged: error of all trajectories in one frame, against that of one session alone.

    python benchmark/merge_sessions.py [--sessions 5] [--folder results]

With `--folder`, the sessions are kept there, and the same call goes on where the last one was interrupted.

The ground is that of benchmark/localization.py davos; each session drives lanes of its own with its own drift. The
absolute trajectory error (ATE) is the root mean square of horizontal distances after one rigid alignment: of each
session alone, and of all sessions together after the merge.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from closure_terrain import data_folder
from kept_results import KeptResults, kept_folder, make_once
from localization import davos
from localization_drives import SECOND, Array, Drive, lanes, save_run

from gpgmap_ros.config import Config
from gpgmap_ros.slam import Session, merge


def ate(found: Array, truth: Array) -> float:
    """Of positions (N, 2), after the rotation and shift that fit best (Kabsch)."""
    a, b = found - found.mean(0), truth - truth.mean(0)
    U, _, Vt = np.linalg.svd(a.T @ b)
    D = np.diag([1.0, np.sign(np.linalg.det(U @ Vt))])
    return float(np.sqrt(np.mean(np.sum((a @ (U @ D @ Vt) - b) ** 2, axis=1))))


def save_session(run: Path, drive: Drive, config: Config) -> float:
    """Map a drive; the largest error of its odometry, metres."""
    worst = []
    make_once(run, lambda part: worst.append(save_run(part, drive, config).drift))
    return worst[0] if worst else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the sessions are kept")
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    place = davos(folder)
    truths: list[dict[int, Array]] = []
    alone, drifts = [], []
    with kept_folder(args.folder) as kept:
        drift_of = KeptResults(kept / "drifts.jsonl")
        runs = [kept / f"session_{number}" for number in range(args.sessions)]
        for number, run in enumerate(runs):
            corner = place.low + np.array([2.0, 3.0]) * number
            way = lanes(place.mapped, corner, corner + np.array([24.0, 30.0]), 8.0, place.step)
            drive = Drive(place.mapped, way, 50 + number, lidar=place.lidar)
            drifts.append(drift_of.get(run.name, partial(save_session, run, drive, place.config)))
            truths.append({drive.start + k * SECOND: T[:2, 3] for k, T in enumerate(way)})
            session = Session.load(run)
            stamps, poses = session.closer.recorded()
            found = np.array(session.closer.correct(stamps, poses))[:, :2, 3]
            alone.append(ate(found, np.array([truths[-1][int(stamp)] for stamp in stamps])))
            print(
                f"{run.name}: {len(way)} m, drift {drifts[-1]:.1f} m, ATE alone {alone[-1]:.3f} m", flush=True
            )
        merged = merge(runs)
        found, truth = [], []
        for member in merged.members:
            trajectory = merged.trajectory(member)
            found.append(trajectory.positions[:, :2])
            own = truths[int(member.name.rpartition("_")[2])]
            truth.append(np.array([own[int(stamp)] for stamp in trajectory.stamps]))
        together = ate(np.concatenate(found), np.concatenate(truth))
        print(f"{len(merged.members)} of {args.sessions} sessions in one frame, apart: {len(merged.apart)}")
        print(f"ATE together {together:.3f} m, {together / np.mean(alone):.2f} x the mean of one alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
