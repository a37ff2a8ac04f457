"""gpgmap doctor"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpgmap_ros.cli.common import (
    add_json,
    add_settings,
    add_source,
    config_from,
    print_json,
    topic_request_from,
)

if TYPE_CHECKING:
    from gpgmap_ros.diagnostics import Finding

DESCRIPTION = """Find problems and name the remedy: in the installation; with BAG in a recording (topics, frames,
stamps, ranges, drives, damage); with --live in a running ROS 2 system (nodes, QoS, frames, clocks).
The output is what a bug report needs: versions, machine, changed settings, and every finding."""
EXAMPLES = """examples:
  gpgmap doctor
  gpgmap doctor my_bag
  gpgmap doctor --live --set map_frame=map
  gpgmap doctor my_bag --json | jq '.[] | select(.status == "wrong")'

exit code: 0 no problem found, 1 otherwise
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="*", type=Path, metavar="BAG", help="recording to diagnose")
    parser.add_argument("--live", action="store_true", help="diagnose the running system")
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="how long, with --live (default: 5)"
    )
    add_source(parser)
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    from gpgmap_ros.apps.installation import changed_settings, installation
    from gpgmap_ros.diagnostics import WRONG, Finding

    config = config_from(arguments)
    found: list[Finding] = [*installation(), *changed_settings(config)]
    if arguments.bags:
        from gpgmap_ros.apps.doctor import recording_findings

        found.extend(recording_findings(arguments.bags, topic_request_from(arguments), config))
    if arguments.live:
        try:
            from gpgmap_ros.nodes.system_probe import system_findings

            found.extend(system_findings(config, arguments.seconds))
        except ImportError as error:
            remedy = "`make setup`, or source your ROS installation"
            found.append(Finding("ROS 2", WRONG, f"not importable: {error}", remedy))
    if arguments.json:
        print_json([dataclasses.asdict(item) for item in found])
    else:
        print_findings(found, " ".join(["gpgmap doctor", *map(str, arguments.bags)]))
    return 1 if any(item.status == WRONG for item in found) else 0


def print_findings(found: list[Finding], call: str) -> None:
    """The findings for people, and how many need attention. call: the command as it was given"""
    from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG

    print(f"{call}, {datetime.datetime.now(datetime.UTC):%F %T} UTC")
    marks = {GOOD: "  ok   ", NOTE: "  note ", WRONG: "  WRONG"}
    width = max(len(item.subject) for item in found)
    for item in found:
        print(f"{marks[item.status]}  {item.subject:<{width}}  {item.text}")
        if item.remedy and item.status != GOOD:
            print(f"         {'':<{width}}  -> {item.remedy}")
    wrong, notes = (sum(item.status == status for item in found) for status in (WRONG, NOTE))
    noted = f", {notes} note{'s' if notes > 1 else ''}" if notes else ""
    print(f"{f'{wrong} wrong' if wrong else 'nothing is wrong'}{noted}")
