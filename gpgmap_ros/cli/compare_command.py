"""gpgmap compare"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import (
    MARK,
    UsageError,
    add_json,
    add_output,
    check_output_folder,
    print_json,
    say,
    table,
)

DESCRIPTION = """Say what changed from survey A to survey B: the difference with its standard deviation, patches of cut
and fill with their volumes, and how certain each is. The false discovery rate is held over the whole map.

A survey is a run folder, one of its submaps (RUN:7), a map file (.npz) or a point cloud. Surveys in one
frame are compared as they are; the small rigid motion that unchanged ground shows is removed. Others are
registered first."""
EXAMPLES = """examples:
  gpgmap compare april.laz july.laz --resolution 0.5
  gpgmap compare monday_gpgmap friday_gpgmap --out week
  gpgmap compare a.laz b.laz --register          their frames have nothing in common
  gpgmap compare a.laz b.laz --keep-frames       the whole area may have moved: that is change, too
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="the earlier survey")
    parser.add_argument("after", metavar="B", help="the later survey")
    parser.add_argument(
        "--resolution",
        type=float,
        metavar="M",
        help="cell size where both are point clouds (by their density)",
    )
    parser.add_argument(
        "--level", type=float, default=0.05, metavar="P", help="false discovery rate (default: 0.05)"
    )
    poses = parser.add_mutually_exclusive_group()
    poses.add_argument(
        "--register", action="store_true", help="find the pose of B in A, whatever frames they name"
    )
    poses.add_argument("--keep-frames", action="store_true", help="compare the coordinates as they are")
    parser.add_argument(
        "--draws", type=int, default=200, metavar="N", help="error fields for the volumes (default: 200)"
    )
    add_output(parser, "A_B_change")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.apps.compare import CompareError, compare, write_comparison
    from gpgmap_ros.change import NoCommonGround
    from gpgmap_ros.io.map_products import MapError
    from gpgmap_ros.io.run_folder import RunError
    from gpgmap_ros.progress import ProgressBar

    check_arguments(arguments)
    out = arguments.out or free_folder(f"{stem(arguments.before)}_{stem(arguments.after)}_change")
    check_target(out, arguments.overwrite)
    registration = "always" if arguments.register else "never" if arguments.keep_frames else "auto"
    try:
        with ProgressBar("comparing", 1.0) as bar:
            found = compare(
                arguments.before, arguments.after, resolution=arguments.resolution, registration=registration,
                level=arguments.level, align=not arguments.keep_frames, draws=arguments.draws, progress=bar.update,
            )  # fmt: skip
    except (MapError, RunError, CompareError, NoCommonGround) as error:
        raise UsageError(str(error)) from error
    summary = write_comparison(out, found, (arguments.before, arguments.after))
    if arguments.json:
        print_json({**summary, "folder": str(out)})
    say(arguments, format_summary(summary, out))


def check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.resolution is not None and not 0.001 <= arguments.resolution <= 100.0:
        raise UsageError(f"--resolution {arguments.resolution:g}: expected metres from 0.001 to 100")
    if not 0.0 < arguments.level < 1.0:
        raise UsageError(f"--level {arguments.level:g}: expected a probability between 0 and 1")
    if not 20 <= arguments.draws <= 100_000:
        raise UsageError(f"--draws {arguments.draws}: expected 20 to 100000")


def stem(name: str) -> str:
    return Path(name.replace(":", "_")).resolve().stem


def free_folder(name: str) -> Path:
    """A folder of that name, with a number behind it where that exists."""
    wanted, number = Path(name), 2
    while wanted.exists():
        wanted, number = Path(f"{name}_{number}"), number + 1
    return wanted


def check_target(out: Path, overwrite: bool) -> None:
    """UsageError where the folder must not be written, before the work begins."""
    check_output_folder(out)
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / MARK).exists():
        raise UsageError(f"{out} contains other files: choose an empty or a new folder with --out")
    if not overwrite:
        raise UsageError(
            f"{out} contains an earlier run: choose another folder with --out, or use --overwrite"
        )


def format_summary(summary: dict[str, Any], out: Path) -> str:
    def volume(name: str) -> str:
        value, low, high = summary[name]
        return f"{value:.3g} m³  (95 %: {low:.3g} to {high:.3g})"

    motion, std = summary["motion"], summary["motion_std"]
    rows = [
        ("frames", summary["pose"]),
        (
            "motion removed" if summary["aligned"] else "motion kept",
            "  ".join(f"{axis} {motion[axis]:.3f} ± {std[axis]:.3f}" for axis in "xyz") + " m"
            if summary["aligned"]
            else "the coordinates were compared as they are",
        ),
        ("compared", f"{summary['compared_m2']:,.0f} m² in cells of {summary['resolution_m']:g} m"),
        ("difference", f"± {summary['median_std_m']:.3f} m (median), alike over {summary['correlated_m2']:.3g} m²"),
        ("patches", f"{len(summary['patches'])} at a false discovery rate of {summary['level']:g}"),
        ("fill", volume("fill_m3")),
        ("cut", volume("cut_m3")),
        *(("warning", text) for text in summary["warnings"]),
        ("report", str(out / "report.html")),
    ]  # fmt: skip
    return table(rows)
