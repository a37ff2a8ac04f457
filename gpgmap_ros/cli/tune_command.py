"""gpgmap tune"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_settings,
    add_source,
    check_output_file,
    config_from,
    given_settings,
    print_json,
    say,
    table,
    topic_request_from,
)
from gpgmap_ros.progress import ProgressBar

if TYPE_CHECKING:
    from gpgmap_ros.apps.tuning import RecordedPoints, Tuned
    from gpgmap_ros.config import Config

DESCRIPTION = """Choose the kernel and learn length scale, relief and noise from a recording or from point cloud
files, by the evidence (marginal likelihood) of some points, and judge them on points held out. Prints both before and
after, and writes a settings file. Settings that are not better on the points held out stay."""
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
    from gpgmap_ros.apps.tuning import points_of_files, split, tune
    from gpgmap_ros.config.yaml import save_config
    from gpgmap_ros.io.points import SUFFIXES, open_points

    config = config_from(arguments)
    check_output_file(arguments.out)
    files = [path for path in arguments.sources if path.suffix.lower() in SUFFIXES]
    if files and len(files) < len(arguments.sources):
        raise UsageError("name recordings or point cloud files, not both")
    with ProgressBar("reading points", 1) as bar:
        if files:
            from gpgmap_ros.apps.coordinate_systems import common_crs
            from gpgmap_ros.apps.survey_plan import plan

            sources = [open_points(path) for path in files]
            for text in common_crs([(str(source.path), source.crs) for source in sources])[1]:
                say(arguments, f"  warning: {text}")
            planned = plan(sources, config, given_settings(arguments))
            points = split(*points_of_files(sources, planned), planned.config)
        else:
            points = split(*from_recording(arguments, config), config)
        bar.update(1, f"{len(points.xyz):,} points")
    with ProgressBar("learning", 1) as bar:
        tuned = tune(points, config, lambda done, total, what: bar.update(done / total, what))
    save_config(tuned.config, arguments.out)
    if arguments.json:
        print_json(result_values(tuned, arguments.out))
    else:
        print(table(result_rows(tuned, arguments.out)))


def result_values(tuned: Tuned, path: Path) -> dict[str, Any]:
    """The result for programs."""
    return {
        "settings": {name: {"before": before, "after": after} for name, before, after in tuned.changed},
        "evidence_per_point": {"before": tuned.evidence[0], "after": tuned.evidence[1]},
        "held_out": {
            when: dataclasses.asdict(score)
            for when, score in zip(("before", "after"), tuned.score, strict=True)
        },
        "points": {"learned_from": tuned.points[0], "held_out": tuned.points[1]},
        "tried": tuned.tried,
        "warnings": tuned.warnings,
        "file": str(path),
    }


def result_rows(tuned: Tuned, path: Path) -> list[tuple[str, str]]:
    """The result for people."""
    (first, last), (evidence_0, evidence_1) = tuned.score, tuned.evidence
    return [
        *((name, f"{short(before)} -> {short(after)}") for name, before, after in tuned.changed),
        ("evidence", f"{evidence_0:.3f} -> {evidence_1:.3f} nats per point ({tuned.points[0]:,} training points)"),
        ("held out", f"{first.log_density:.3f} -> {last.log_density:.3f} nats per point ({tuned.points[1]:,} points)"),
        ("", f"RMSE {first.rmse:.3f} -> {last.rmse:.3f} m"),
        ("", f"within 2 std {first.within:.1%} -> {last.within:.1%} (95.4% if calibrated)"),
        *(("warning", text) for text in tuned.warnings),
        ("file", str(path)),
    ]  # fmt: skip


def short(value: Any) -> str:
    """A setting for people: a name, or a number of four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def from_recording(arguments: argparse.Namespace, config: Config) -> RecordedPoints:
    """Ground points of the recording that the options name."""
    from gpgmap_ros.apps.topic_selection import TopicSelectionError, select_topics
    from gpgmap_ros.apps.tuning import points_of_recording
    from gpgmap_ros.io.recordings import Recording

    with Recording(arguments.sources) as recording:
        try:
            choice = select_topics(
                recording, topic_request_from(arguments), config.map_frame, config.base_frame
            )
        except TopicSelectionError as error:
            raise UsageError(str(error)) from error
        for text in (*choice.reasons, *choice.warnings):
            say(arguments, f"  {text}")
        return points_of_recording(recording, choice, config)
