"""gpgmap demo"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from gpgmap_ros.cli.common import add_json, print_json

DESCRIPTION = """Make a rover drive over real relief, let the real node map it over ROS 2, and draw the result.

Leaves pictures, the last map (NPZ), the drive (a rosbag2), logs and summary.json."""
EXAMPLES = """examples:
  gpgmap demo
  gpgmap demo --out /tmp/demo --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="FOLDER",
        help="folder for the results (default: out/demo)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.demo.run import report, run_demo

    summary = run_demo(arguments.out)
    if arguments.json:
        print_json(asdict(summary))
    else:
        print(report(summary))
