"""gpgmap evaluate"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import UsageError, add_json, print_json, table

DESCRIPTION = """Compare a run of `gpgmap replay` with the true trajectory (TUM format: time x y z qx qy qz qw).

ATE: position errors after the best rigid alignment. RPE: error of the motion over a distance. Closures: the truth puts
the maps of two submaps on each other; their overlap is the ground that both know, as a share of the smaller map. An
accepted closure is right if the maps overlap and its pose is within --right-m and --right-deg of the true one:
precision = right / accepted. A submap that overlaps with one from which the robot had gone away is a revisit: recall =
revisits with a right closure / revisits, for several least overlaps and as a mean over all. Truth is interpolated;
poses without truth within --gap seconds are left out."""
EXAMPLES = """examples:
  gpgmap evaluate my_bag_gpgmap --truth groundtruth.txt
  gpgmap evaluate run --truth gt.txt --yaw-only --json > scores.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a replay")
    parser.add_argument(
        "--truth", type=Path, required=True, metavar="FILE", help="true trajectory, TUM format"
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=1.0,
        metavar="S",
        help="largest gap in the truth to interpolate over (default: 1)",
    )
    parser.add_argument(
        "--distance",
        type=float,
        default=10.0,
        metavar="M",
        help="distance travelled between the poses of RPE (default: 10)",
    )
    parser.add_argument(
        "--right-m",
        type=float,
        default=1.0,
        metavar="M",
        help="largest position error of a right closure (default: 1)",
    )
    parser.add_argument(
        "--right-deg",
        type=float,
        default=3.0,
        metavar="DEG",
        help="largest orientation error of a right closure (default: 3)",
    )
    parser.add_argument(
        "--yaw-only", action="store_true", help="fit yaw and translation only: both are gravity-aligned"
    )
    parser.add_argument("--reach", type=float, help=argparse.SUPPRESS)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.apps.evaluation import Rules, evaluate_run
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.io.trajectory import read_tum

    if arguments.reach is not None:
        print("gpgmap evaluate: --reach has no effect: revisits are counted by overlap now", file=sys.stderr)
    folder = RunFolder(arguments.run_folder)
    summary = folder.read_summary()
    rules = Rules(
        arguments.gap, arguments.distance, arguments.right_m, arguments.right_deg, arguments.yaw_only
    )
    for name in ("gap", "distance", "right_m", "right_deg"):
        if getattr(rules, name) <= 0.0:
            raise UsageError(f"--{name.replace('_', '-')} must be positive")
    if summary["kind"] != "replay":
        raise UsageError(f"{folder.path} is not a replay: it has no trajectory")
    result = evaluate_run(folder, summary, read_tum(arguments.truth), rules)
    if arguments.json:
        print_json(result)
    else:
        print(table(result_rows(result)))


def result_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The errors for the terminal."""
    rows = []
    for name in ("odometry", "corrected"):
        item = result[name]
        if item is None:
            rows.append((name, "several drives, each in its own frame: not comparable"))
            continue
        ate, rpe = item["ate_m"], item["rpe"]
        errors = f"{ate['rmse']:.3f} m rmse, {ate['median']:.3f} median, {ate['max']:.3f} largest"
        rows.append((name, f"ATE {errors} ({item['poses']} poses)"))
        if rpe is not None:
            errors = f"{rpe['translation_percent']:.2f} %, {rpe['rotation_deg_per_m']:.4f} deg/m"
            rows.append(("", f"RPE over {rpe['distance_m']:g} m: {errors}"))
    found = result["closures"]
    if found is not None:
        right, precision = found["right"], share(found["precision"])
        rows.append(
            ("closures", f"precision {precision} ({right} of {found['accepted']} accepted are right)")
        )
        for level in found["by_overlap"]:
            counts = f"{level['closed']} of {level['revisits']} revisits closed"
            rows.append(
                ("", f"recall {share(level['recall'])} from {level['overlap']:.0%} overlap on ({counts})")
            )
        rows.append(("", f"recall {share(found['mean_recall'])} as the mean over overlaps"))
        if found["median_error_m"] is not None:
            errors = f"{found['median_error_m']:.3f} m, {found['median_error_deg']:.3f} deg"
            rows.append(("", f"right ones: {errors} median error"))
        if found["without_truth"]:
            rows.append(("", f"{found['without_truth']} comparisons without truth were left out"))
    return rows


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
