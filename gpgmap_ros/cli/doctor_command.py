"""gpgmap doctor"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import add_json, add_settings, add_source, config_from, print_json, wish_from

DESCRIPTION = """Look for what is wrong and name the remedy: the installation; with BAG a recording (topics, frames,
stamps, ranges, drives, damage); with --live a running ROS 2 system (nodes, QoS, frames, clocks).
The output is what a bug report needs: versions, machine, changed settings, and every finding."""
EXAMPLES = """examples:
  gpgmap doctor
  gpgmap doctor my_bag
  gpgmap doctor --live --set map_frame=map
  gpgmap doctor my_bag --json | jq '.[] | select(.status == "wrong")'

exit code: 0 nothing is wrong, 1 something is
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="*", type=Path, metavar="BAG", help="recording to look at")
    parser.add_argument("--live", action="store_true", help="look at the running system")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="how long, with --live (default: 5)"
    )
    add_source(parser)
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    from gpgmap_ros.config import settings
    from gpgmap_ros.findings import GOOD, NOTE, WRONG, Finding
    from gpgmap_ros.offline.checkup import installation, recording_findings

    config = config_from(arguments)
    found: list[Any] = []
    found.extend(installation())
    found.extend(
        Finding(
            "setting", GOOD, f"{item.name} = {item.value} {item.unit}".rstrip() + f" (default {item.default})"
        )
        for item in settings(config)
        if item.value != item.default
    )
    if arguments.bags:
        found.extend(recording_findings(arguments.bags, wish_from(arguments), config))
    if arguments.live:
        try:
            from gpgmap_ros.nodes.system_probe import system_findings

            found.extend(system_findings(config, arguments.seconds))
        except ImportError as error:
            found.append(
                Finding(
                    "ROS 2",
                    WRONG,
                    f"not importable: {error}",
                    "`make setup`, or source your ROS installation",
                )
            )
    wrong = sum(item.status == WRONG for item in found)
    if arguments.json:
        print_json([dataclasses.asdict(item) for item in found])
        return 1 if wrong else 0
    looked_at = " ".join(["gpgmap doctor", *map(str, arguments.bags)])
    print(f"{looked_at}, {datetime.datetime.now(datetime.UTC):%F %T} UTC")
    marks = {GOOD: "  ok   ", NOTE: "  note ", WRONG: "  WRONG"}
    width = max(len(item.subject) for item in found)
    for item in found:
        print(f"{marks[item.status]}  {item.subject:<{width}}  {item.text}")
        if item.remedy and item.status != GOOD:
            print(f"         {'':<{width}}  -> {item.remedy}")
    notes = sum(item.status == NOTE for item in found)
    noted = f", {notes} note{'s' if notes > 1 else ''}" if notes else ""
    print(f"{f'{wrong} wrong' if wrong else 'nothing is wrong'}{noted}")
    return 1 if wrong else 0
