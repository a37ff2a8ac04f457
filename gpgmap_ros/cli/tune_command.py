"""gpgmap tune"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_settings,
    add_source,
    config_from,
    given_settings,
    print_json,
    say,
    table,
    wish_from,
)
from gpgmap_ros.progress import ProgressBar

DESCRIPTION = """Learn length scale, relief and noise from a recording or from point cloud files, by the evidence
(marginal likelihood) of some points, and judge them on points held out. Prints both before and
after, and writes a settings file."""
EXAMPLES = """examples:
  gpgmap tune my_bag --out mine.yaml && gpgmap replay my_bag --config mine.yaml
  gpgmap tune survey.laz --set mapping.resolution=0.5
  gpgmap tune my_bag --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="BAG|FILE", help="one recording, or point cloud files"
    )
    parser.add_argument(
        "--out",
        "-o",
        type=Path,
        default=Path("tuned.yaml"),
        metavar="FILE",
        help="settings file (default: tuned.yaml)",
    )
    add_source(parser)
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.config_file import save_config
    from gpgmap_ros.io.points import SUFFIXES, open_points
    from gpgmap_ros.offline.tuning import points_of_files, split, tune

    config = config_from(arguments)
    if not arguments.out.parent.is_dir():
        raise UsageError(f"--out {arguments.out}: there is no folder {arguments.out.parent}")
    if arguments.out.is_dir():
        raise UsageError(f"--out {arguments.out}: is a folder: name a file")
    files = [path for path in arguments.sources if path.suffix.lower() in SUFFIXES]
    if files and len(files) < len(arguments.sources):
        raise UsageError("name recordings or point cloud files, not both")
    with ProgressBar("reading points", 1) as bar:
        if files:
            from gpgmap_ros.offline.surveying import plan

            sources = [open_points(path) for path in files]
            config = plan(sources, config, given_settings(arguments)).config
            points = split(*points_of_files(sources, config), config)
        else:
            points = split(*from_recording(arguments, config), config)
        bar.update(1, f"{len(points.xyz):,} points")
    with ProgressBar("learning", 1) as bar:
        tuned = tune(points, config, lambda done, total, what: bar.update(done / total, what))
    save_config(tuned.config, arguments.out)
    if arguments.json:
        print_json(
            {
                "settings": {
                    name: {"before": before, "after": after} for name, before, after in tuned.changed
                },
                "evidence_per_point": {"before": tuned.evidence[0], "after": tuned.evidence[1]},
                "held_out": {
                    when: dataclasses.asdict(score)
                    for when, score in zip(("before", "after"), tuned.score, strict=True)
                },
                "points": {"learned_from": tuned.points[0], "held_out": tuned.points[1]},
                "tried": tuned.tried,
                "warnings": tuned.warnings,
                "file": str(arguments.out),
            }
        )
        return
    rows: list[tuple[str, str]] = [
        (name, f"{before:.4g} -> {after:.4g}") for name, before, after in tuned.changed
    ]
    (first, last), (evidence_0, evidence_1) = tuned.score, tuned.evidence
    rows += [
        ("evidence", f"{evidence_0:.3f} -> {evidence_1:.3f} nats per point ({tuned.points[0]:,} points learned from)"),
        ("held out", f"{first.log_density:.3f} -> {last.log_density:.3f} nats per point ({tuned.points[1]:,} points)"),
        ("", f"RMSE {first.rmse:.3f} -> {last.rmse:.3f} m"),
        ("", f"within 2 std {first.within:.1%} -> {last.within:.1%} (95.4% would be right)"),
        *(("warning", text) for text in tuned.warnings),
        ("file", str(arguments.out)),
    ]  # fmt: skip
    say(arguments, table(rows))


def from_recording(arguments: argparse.Namespace, config: Any) -> Any:
    from gpgmap_ros.io.recordings import Recording
    from gpgmap_ros.offline.choosing import ChoiceError, choose
    from gpgmap_ros.offline.tuning import points_of_recording

    with Recording(arguments.sources) as recording:
        try:
            choice = choose(recording, wish_from(arguments), config.map_frame, config.base_frame)
        except ChoiceError as error:
            raise UsageError(str(error)) from error
        for text in (*choice.reasons, *choice.warnings):
            say(arguments, f"  {text}")
        return points_of_recording(recording, choice, config)
