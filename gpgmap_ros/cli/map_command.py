"""gpgmap map"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_output,
    add_settings,
    check_output,
    config_from,
    given_settings,
    output_folder,
    print_json,
    say,
    table,
)
from gpgmap_ros.progress import ProgressBar

MIN_MEMORY = 400
LARGE, KEPT = 8 << 20, 64 << 20
"""Bytes, see `memory.limit_malloc_arenas`: a run takes minutes, keeps to --memory, and uses freed arrays again."""

DESCRIPTION = """Map point cloud files: LAS, LAZ, PLY, PCD, XYZ (text) and NPZ (xyz or x, y, z; offset; epsg), any
number and any size.

Points are read once, piece by piece, and not kept: memory stays below --memory whatever their number, and
what does not fit goes to disk. A few points far from all others are left out and listed. Coordinates and
their reference system are kept (GeoTIFF). Resolution, length scale, relief and noise are estimated from a
sample unless you set them. Of classified LAS files the ground points are used."""
EXAMPLES = """examples:
  gpgmap map survey.laz
  gpgmap map tiles/*.las --set mapping.resolution=0.5 --out survey
  gpgmap map scan.ply --crs EPSG:25832 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="point cloud")
    add_output(parser, "the first file's name and _gpgmap")
    parser.add_argument(
        "--crs", metavar="EPSG:N", help="coordinate reference system, where the files do not name one"
    )
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="N,N",
        help="LAS classes to use, or 'all' (default: 2, ground, where there is any)",
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=1024,
        metavar="MB",
        help="most memory to use; what does not fit goes to disk while it runs (default: 1024)",
    )
    parser.add_argument(
        "--keep-outliers",
        action="store_true",
        help="also map points that lie far from all others (default: they are left out and listed)",
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    begin = time.monotonic()
    config, given = config_from(arguments), given_settings(arguments)
    epsg, classes = epsg_from(arguments.crs), classes_from(arguments.classes)
    if arguments.memory < MIN_MEMORY:
        raise UsageError(
            f"--memory {arguments.memory}: at least {MIN_MEMORY} MB are needed (the program itself takes 300)"
        )
    from gpgmap_ros.apps.survey import SurveyJob, run_survey
    from gpgmap_ros.apps.survey_plan import plan
    from gpgmap_ros.io.points import open_points
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.memory import limit_malloc_arenas

    limit_malloc_arenas(LARGE, KEPT)
    check_output(arguments.out)
    sources = [open_points(path, epsg, classes) for path in arguments.files]
    crs, warnings = common_crs(sources)
    with ProgressBar("reading a sample", 1) as bar:
        planned = plan(sources, config, given)
        bar.update(1)
    for text in (*planned.guesses, *{source.note for source in sources if source.note}):
        say(arguments, f"  {text}")
    name = arguments.files[0].stem
    folder = RunFolder(output_folder(arguments.out, f"{name}_gpgmap", arguments.overwrite))
    job = SurveyJob(
        name, sources, planned, crs, folder, arguments.memory << 20, arguments.keep_outliers, warnings
    )
    summary = run_survey(job, begin)
    if arguments.json:
        print_json(summary)
    else:
        print(table(result_rows(summary, folder.report)))


def result_rows(summary: dict[str, Any], report: Path) -> list[tuple[str, str]]:
    """The result for the terminal."""
    points, map_ = summary["points"], summary["map"]
    rows, columns = map_["cells"]
    return [
        ("points", f"{points['used']:,} at {points['per_second'] / 1e6:.1f} million/s"),
        ("map", f"{map_['known_m2']:,.0f} m2 known, {columns} x {rows} cells of {map_['resolution_m']:g} m"),
        ("coordinates", summary["crs"] or "no coordinate system given; set one with --crs"),
        ("memory", f"{summary['largest_memory_mb']:.0f} MB at most"),
        ("time", f"{summary['seconds']['all']:.1f} s"),
        *(("warning", text) for text in summary["warnings"]),
        ("report", str(report)),
    ]


def epsg_from(text: str | None) -> int:
    if text is None:
        return 0
    code = text.upper().removeprefix("EPSG:")
    if not code.isdigit() or not 1024 <= int(code) <= 32766:
        raise UsageError(
            f"--crs {text}: expected the code of a projected coordinate system, as in EPSG:32611"
        )
    return int(code)


def classes_from(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if text == "all":
        return tuple(range(256))
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) < 256 for part in parts):
        raise UsageError(f"--class {text}: expected numbers, as in --class 2,8, or 'all'")
    return tuple(int(part) for part in parts)


def common_crs(sources: list[Any]) -> tuple[Any, list[str]]:
    """The coordinate system of all files; UsageError where they differ."""
    from gpgmap_ros.io.geotiff import Crs

    known = {source.crs.label: source for source in sources if source.crs.label}
    if len(known) > 1:
        named = ", ".join(f"{source.path} in {label}" for label, source in known.items())
        raise UsageError(
            f"the files have different coordinate systems: {named}. Convert them first, or set one with --crs"
        )
    silent = [str(source.path) for source in sources if not source.crs.label]
    warnings = [f"assumed to be in {next(iter(known))}: {', '.join(silent)}"] if known and silent else []
    return (next(iter(known.values())).crs if known else Crs()), warnings
