"""The second half of the NCLT loop localised in a map of the first, with the commands a user would type."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kept_results import make_once


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


def gpgmap(*arguments: str) -> dict:
    command = [sys.executable, "-m", "gpgmap_ros.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
