"""gpgmap demo"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from gpgmap_ros.cli.common import add_json, print_json

DESCRIPTION = """Drive a simulated rover around a loop over real relief with drifting odometry, map it live with the
real node over ROS 2, close the loop, and show the drift before and after.

Leaves a run folder as `gpgmap replay` does: report.html, the map, trajectories, pictures, the recording, logs and
summary.json."""
EXAMPLES = """examples:
  gpgmap demo
  gpgmap demo --out /tmp/demo --json
  gpgmap demo --animation demo.gif
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="FOLDER",
        help="folder for the results (default: out/demo)",
    )
    parser.add_argument(
        "--animation",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="FILE",
        help="also write a GIF of the map as it grows and the loop as it closes (default: demo.gif in the folder)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.demo.run import run_demo
    from gpgmap_ros.demo.summary import describe_summary

    animation = arguments.animation
    if animation == Path():
        animation = arguments.out / "demo.gif"
    summary = run_demo(arguments.out, animation)
    if arguments.json:
        print_json(asdict(summary))
    else:
        print(describe_summary(summary))
