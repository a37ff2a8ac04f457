"""A long drive with several loops: are all revisits closed, is any closure false, what drift is left, what is spent?

python benchmark/long_drive.py [--terrain gabilan] [--length 2300] [--seed 1] [--settings NAME=VALUE ...]

Simulates the drive (drive_simulation.py), records it as a bag, and runs `gpgmap replay` on it with the default
settings, in a process of its own. A submap is a revisit if, by the truth, the robot was in its middle within half a
submap of the middle of an earlier one, and had driven at least 1.5 submaps in between; it is closed by a right closure
with any earlier submap. A closure is false beyond 1 m or 3 deg. Prints errors of odometry and of the corrected
trajectory, resident memory against the number of submaps, CPU time, and the size of the report.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from closure_terrain import data_folder
from drive_simulation import LIDAR, RELIEFS, SPEED, Drift, Drive, make_drive, make_ground

from gpgmap_ros.apps.evaluation import Rules, evaluate_run
from gpgmap_ros.demo.recording import START, drive_messages
from gpgmap_ros.io.bags import write_bag
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.slam.trajectory import Trajectory


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--terrain", choices=list(RELIEFS), default="gabilan")
    parser.add_argument("--length", type=float, default=2300.0, help="metres")
    parser.add_argument("--radius", type=float, default=70.0, help="metres: of the ring")
    parser.add_argument("--step", type=float, default=1.0, help="metres between two clouds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", nargs="*", default=[], metavar="NAME=VALUE", help="of the replay")
    parser.add_argument("--keep", type=Path, help="folder for bag and run: a bag there is used again")
    args = parser.parse_args()
    data = data_folder()
    if data is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    rng = np.random.default_rng(args.seed)
    drive = make_drive(
        make_ground(args.terrain, data, rng), args.length, args.radius, args.step, Drift(), rng
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "bag").exists():
            write_bag(folder / "bag", drive_messages(drive.frames(LIDAR, rng)))
        truth = truth_of(drive)
        del drive
        spent = replay(folder / "bag", folder / "run", args.settings)
        report(RunFolder(folder / "run"), truth, spent)
    return 0


def truth_of(drive: Drive) -> Trajectory:
    stamps = START + np.round(np.arange(len(drive.true)) * drive.step / SPEED * 1e9).astype(np.int64)
    return Trajectory(stamps, drive.true)


@dataclass
class Spent:
    """seconds: CPU; peak: bytes resident; samples: submaps so far, bytes resident and CPU seconds, over time"""

    seconds: float = 0.0
    peak: int = 0
    samples: list[tuple[int, int, float]] = field(default_factory=list)


def replay(bag: Path, out: Path, settings: list[str]) -> Spent:
    """Run the command, and watch what it takes."""
    command = [sys.executable, "-m", "gpgmap_ros.cli", "replay", str(bag), "--out", str(out), "--overwrite"]
    for item in settings:
        command += ["--set", item]
    spent = Spent()
    shutil.rmtree(out, ignore_errors=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            submaps = len(list((out / "submaps").glob("submap_*.npz"))) if out.exists() else 0
            if (sample := resident(process.pid)) is not None:
                spent.samples.append((submaps, sample, cpu_seconds(process.pid)))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    used = os.times()
    spent.seconds = used.children_user + used.children_system
    spent.peak = max(sample[1] for sample in spent.samples)
    return spent


def resident(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), None)


def cpu_seconds(pid: int) -> float:
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def report(folder: RunFolder, truth: Trajectory, spent: Spent) -> None:
    size = folder.read_config().submap.size
    summary = folder.read_summary()
    result = evaluate_run(folder, summary, truth, Rules(yaw_only=True))
    closures = result["closures"]
    revisits, closed, missed = count_revisits(folder, truth, closures["each"], size)
    false = [item for item in closures["each"] if item["accepted"] and not item["right"]]
    print(f"{truth.length:.0f} m, {summary['submaps']} submaps; {closures['compared']} pairs were compared")
    print(f"revisits closed: {closed} of {revisits}; closures: {closures['accepted']}, false: {len(false)}")
    for item in false:
        print(f"  FALSE {item['a']}-{item['b']}: {item['error_m']:.2f} m, {item['error_deg']:.2f} deg")
    reasons = {(row["a"], row["b"]): row["reason"] for row in json.loads(folder.closures.read_text())}
    for id, earlier in missed.items():
        compared = [(a, reasons[a, id]) for a in earlier if (a, id) in reasons]
        print(f"  missed: {id} near {earlier}: {compared or 'not compared'}")
    for name in ("odometry", "corrected"):
        ate, rpe = result[name]["ate_m"], result[name]["rpe"]
        print(
            f"{name:10s} ATE {ate['rmse']:.3f} m (largest {ate['max']:.2f}),"
            f" RPE over 10 m {rpe['translation_percent']:.3f} %, {rpe['rotation_deg_per_m']:.4f} deg/m"
        )
    print(f"CPU {spent.seconds:.0f} s, {spent.seconds / truth.length * 1e3:.0f} s per km; ", end="")
    print(f"resident {spent.peak / 1e6:.0f} MB at most; report {folder.report.stat().st_size / 1e6:.2f} MB")
    for part in quarters(spent):
        print(f"  {part}")


def count_revisits(
    folder: RunFolder, truth: Trajectory, each: list[dict[str, Any]], size: float
) -> tuple[int, int, dict[int, list[int]]]:
    """How many submaps see ground of earlier ones, how many of these are closed, and those that are not."""
    infos = folder.open_submaps().infos()
    middles = {info.id: truth.at((info.first_stamp + info.last_stamp) // 2) for info in infos}
    way = np.cumsum([info.distance for info in infos])
    closed = {item["b"] for item in each if item["accepted"] and item["right"]}
    near: dict[int, list[int]] = {}
    for k, info in enumerate(infos):
        for j, other in enumerate(infos[:k]):
            one, two = middles[info.id], middles[other.id]
            if one is None or two is None or way[k] - way[j] < 1.5 * size:
                continue
            if np.hypot(*(one - two)[:2, 3]) <= 0.5 * size:
                near.setdefault(info.id, []).append(other.id)
    missed = {id: earlier for id, earlier in near.items() if id not in closed}
    return len(near), len(near) - len(missed), missed


def quarters(spent: Spent) -> list[str]:
    """Memory and CPU per submap in each quarter of the drive."""
    samples = np.array(spent.samples, dtype=float)
    count = int(samples[:, 0].max())
    out = []
    for k in range(4):
        low, high = count * k // 4, count * (k + 1) // 4
        inside = samples[(samples[:, 0] >= low) & (samples[:, 0] <= high)]
        if high > low and len(inside) > 1:
            cpu = (inside[-1, 2] - inside[0, 2]) / max(high - low, 1)
            out.append(
                f"submaps {low}-{high}: {cpu:.2f} s of CPU each, {inside[-1, 1] / 1e6:.0f} MB resident"
            )
    return out


if __name__ == "__main__":
    sys.exit(main())
