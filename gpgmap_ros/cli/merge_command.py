"""gpgmap merge"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import UsageError, add_json, check_output_folder, print_json, table
from gpgmap_ros.cli.localize_command import session_errors
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.storage.folder_lock import FolderLock

DESCRIPTION = """Bring runs of several days or robots into one frame: their submaps are compared with each other,
one pose graph is solved, and one map is stitched from all statistics. Runs that share no ground
with the others stay out of it and are named.

Writes a run folder like that of a replay; its report has one colour for each session. The runs are
only read."""
EXAMPLES = """examples:
  gpgmap merge monday tuesday --out week                 two runs, one map
  gpgmap merge robot_a robot_b robot_c --out team --json
  gpgmap localize friday.mcap --in week                  and use it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--out", "-o", type=Path, metavar="FOLDER", default=Path("merged_gpgmap"),
        help="folder for the result (default: merged_gpgmap)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in that folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from gpgmap_ros.apps.merge import abstract, check_output, write_merge
    from gpgmap_ros.apps.sessions import merge

    objection = check_output(arguments.out, arguments.runs, arguments.overwrite)
    if objection:
        raise UsageError(objection)
    check_output_folder(arguments.out)
    with session_errors():
        with ProgressBar("comparing submaps", 1.0) as bar:
            merged = merge(arguments.runs, lambda done, total: bar.update(done, f"{done} of {total}", total))
        if arguments.out.exists():  # a run that is still writing is not replaced
            FolderLock(arguments.out, "gpgmap", "name another folder with --out").release()
        arguments.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        with ProgressBar("writing the results", 3) as bar:
            summary = write_merge(arguments.out, merged, lambda stage: bar.advance(1, stage))
    if arguments.json:
        print_json(summary)
    else:
        print(format_result(summary, abstract(summary), arguments.out))
    return 0


def format_result(summary: dict[str, Any], text: str, folder: Path) -> str:
    """The result for people."""
    rows = [("result", text)]
    rows += [(row["name"], f"{row['submaps']} submaps, {row['way_m']:.1f} m") for row in summary["sessions"]]
    rows += [("warning", warning) for warning in summary["warnings"]]
    return table([*rows, ("report", str(folder / "report.html"))])
