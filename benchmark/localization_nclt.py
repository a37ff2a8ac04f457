"""The second half of the NCLT loop localised in a map of the first, with the commands a user would type.

Its poses are checked against what takes no part in them: the first fix against the odometry, which goes on from the
end of the mapped half and has hardly drifted there; the last pose against the reference of closure_nclt.py.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from closure_nclt import difference, read_loop, reference
from kept_results import make_once
from scipy.spatial.transform import Rotation


def report_nclt(bag: Path, scratch: Path) -> None:
    """The robot leaves the mapped half at once, and comes back to where it began only at the end of the loop."""
    half = "150"
    first, second = scratch / "first", scratch / "second"
    make_once(first, lambda part: gpgmap("replay", str(bag), "--to", half, "--overwrite", "--out", str(part)))
    arguments = ("--from", half, "--in", str(first), "--overwrite", "--out", str(second))
    found = gpgmap("localize", str(bag), *arguments)
    (drive,) = found["drives"]
    print(f"second half: {drive['way_m']:.0f} m, {found['clouds']['used']} clouds")
    print(f"first fix after {drive['first_fix_m']} m; statuses {found['statuses']}; {found['fixes']} fixes")
    for change in found["changes"][-3:]:
        print(f"    at {change['driven']:.0f} m: {change['status']}: {change['reason']}")
    report_errors(bag, second)


def report_errors(bag: Path, found: Path) -> None:
    """Errors of the poses right after the first fix and at the end."""
    odometry = {stamp: T for stamp, _, T in read_loop(bag)}
    with (found / "poses.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "tracking"]
    begin, end = next(iter(odometry.values())), list(odometry.values())[-1]
    for name, row, correction in (("first fix", rows[0], np.eye(4)), ("end", rows[-1], reference(end))):
        stamp = min(odometry, key=lambda stamp: abs(stamp - int(row["stamp"].replace(".", ""))))
        T = np.eye(4)
        T[:3, :3] = Rotation.from_quat([float(row[key]) for key in ("qx", "qy", "qz", "qw")]).as_matrix()
        T[:3, 3] = [float(row[key]) for key in "xyz"]
        metres, degrees = difference(begin @ T, correction @ odometry[stamp])
        spread = np.sqrt(sum(float(row[f"c{k}{k}"]) for k in range(3)))
        print(f"{name}: {metres:.2f} m and {degrees:.1f} deg off, {spread:.2f} m standard deviation stated")


def gpgmap(*arguments: str) -> dict:
    command = [sys.executable, "-m", "gpgmap_ros.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
