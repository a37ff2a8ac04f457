"""gpgmap map"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_output,
    add_settings,
    check_output_folder,
    config_from,
    given_settings,
    output_folder,
    print_json,
    say,
    table,
    unfinished_folder,
)
from gpgmap_ros.progress import ProgressBar

if TYPE_CHECKING:
    from gpgmap_ros.apps.survey_files import SurveyRequest
    from gpgmap_ros.io.points import Window

MIN_MEMORY = 400
OBJECT_WIDTH, LEAST_WIDTH, MOST_WIDTH = 20.0, 0.1, 500.0
"""Metres: of the widest object that is told from ground, unless given, and the limits of what may be given."""
NOISE_CLASSES = (7, 18)
"""Of LAS: low and high noise."""

DESCRIPTION = """Map point cloud files: LAS, LAZ, PLY, PCD, XYZ (text) and NPZ (xyz or x, y, z; offset; epsg), any
number and any size.

Points are read once, piece by piece, and not kept: memory stays below --memory whatever their number, and
what does not fit goes to disk. A few points far from all others are left out and listed. Coordinates and
their reference system are kept (GeoTIFF). Resolution, length scale, relief and noise are estimated from a
sample unless you set them. Of classified LAS files the ground points are used."""
EXAMPLES = """examples:
  gpgmap map survey.laz
  gpgmap map tiles/*.las --set mapping.resolution=0.5 --out survey
  gpgmap map unclassified.laz --ground
  gpgmap map scan.ply --crs EPSG:25832 --json
  gpgmap map county/*.laz --scheduler tcp://head:8786 --out county
  gpgmap map county/*.laz --scheduler tcp://head:8786 --out county --resume
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
        "--ground",
        action="store_true",
        help="find the ground among points of everything: buildings, trees, wires and stray points are left out; of"
        " LAS files all classes but noise are read",
    )
    parser.add_argument(
        "--object-width",
        type=float,
        metavar="METRES",
        help=f"of the widest building or tree, with --ground (default: {OBJECT_WIDTH:g})",
    )
    parser.add_argument(
        "--bounds",
        metavar="X,Y,X,Y",
        help="only the points in this box: smallest x and y, largest x and y; of COPC files only what is there is read",
    )
    parser.add_argument(
        "--spacing",
        type=float,
        metavar="METRES",
        help="of COPC files only the levels with points this far apart or farther",
    )
    parser.add_argument(
        "--memory",
        type=int,
        default=1024,
        metavar="MB",
        help="most memory of each process; what does not fit goes to disk while it runs (default: 1024)",
    )
    parser.add_argument(
        "--keep-outliers",
        action="store_true",
        help="also map points that lie far from all others (default: they are left out and listed)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="WHERE",
        help="local (this process), processes (one per core), or the address of a Dask cluster, tcp://HOST:8786"
        " (default: by the size of the files)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an unfinished run in the folder --out, from what it has finished",
    )
    parser.add_argument(
        "--bad-files",
        choices=("refuse", "leave-out"),
        default="refuse",
        help="files that are damaged, change while they are read, have a wrong header, are there twice or lie far"
        " from the others: end the run (default), or go on without them and list them",
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    begin = time.monotonic()
    from gpgmap_ros.apps.coordinate_systems import MixedSystemsError
    from gpgmap_ros.apps.survey_cluster import choose_scheduler, open_runner
    from gpgmap_ros.apps.survey_files import prepare
    from gpgmap_ros.apps.survey_job import SurveyJob
    from gpgmap_ros.apps.survey_run import resume_plan, run_survey
    from gpgmap_ros.apps.survey_runner import prepare_process
    from gpgmap_ros.io.points import check_kind
    from gpgmap_ros.io.run_folder import RunFolder

    request = request_from(arguments)
    if not request.leave_out:
        for path in request.files:
            check_kind(path)  # before anything is started
    memory = arguments.memory << 20
    prepare_process()
    scheduler = arguments.scheduler or choose_scheduler(request.files, memory)
    with open_runner(scheduler, memory) as runner:
        say(arguments, f"  on {runner.description}")
        if arguments.resume:
            folder = RunFolder(unfinished_folder(arguments.out))
            prepared = resume_plan(folder, request, runner)
        else:
            with ProgressBar("reading headers and a sample", 1) as bar:
                try:
                    prepared = prepare(request, runner, bar.update)
                except MixedSystemsError as error:
                    raise UsageError(str(error)) from error
            name = f"{request.files[0].stem}_gpgmap"
            folder = RunFolder(output_folder(arguments.out, name, arguments.overwrite))
        for text in (*prepared.plan.guesses, *prepared.notes):
            say(arguments, f"  {text}")
        job = SurveyJob(request.files[0].stem, request, prepared, folder, memory, runner)
        summary = run_survey(job, begin)
    if arguments.json:
        print_json(summary)
    else:
        print(table(result_rows(summary, folder.report)))


def request_from(arguments: argparse.Namespace) -> SurveyRequest:
    """What the call asks for; UsageError where it can't be."""
    from gpgmap_ros.apps.survey_cluster import is_scheduler
    from gpgmap_ros.apps.survey_files import SurveyRequest

    config, given = config_from(arguments), given_settings(arguments)
    epsg, classes = epsg_from(arguments.crs), classes_from(arguments.classes)
    if arguments.memory < MIN_MEMORY:
        raise UsageError(
            f"--memory {arguments.memory}: at least {MIN_MEMORY} MB are needed (the program itself takes 300)"
        )
    if arguments.scheduler and not is_scheduler(arguments.scheduler):
        raise UsageError(
            f"--scheduler {arguments.scheduler}: expected local, processes, or an address as tcp://HOST:8786"
        )
    if arguments.resume and (arguments.out is None or arguments.overwrite):
        raise UsageError("--resume needs --out with the folder of the unfinished run, and no --overwrite")
    width = object_width_from(arguments.ground, arguments.object_width)
    if width and classes is None:
        classes = tuple(number for number in range(256) if number not in NOISE_CLASSES)
    check_output_folder(arguments.out)
    return SurveyRequest(
        tuple(arguments.files), config, frozenset(given), epsg, classes, arguments.keep_outliers,
        arguments.bad_files == "leave-out", width, window_from(arguments.bounds, arguments.spacing),
    )  # fmt: skip


def result_rows(summary: dict[str, Any], report: Path) -> list[tuple[str, str]]:
    """The result for the terminal."""
    points, map_ = summary["points"], summary["map"]
    rows, columns = map_["cells"]
    return [
        ("points", f"{points['used']:,} at {points['per_second'] / 1e6:.2g} million/s"),
        *([("not ground", f"{points['objects']:,} points left out")] if points["objects"] else []),
        ("map", f"{map_['known_m2']:,.0f} m2 known, {columns} x {rows} cells of {map_['resolution_m']:g} m"),
        ("coordinates", summary["crs"] or "no coordinate system given; set one with --crs"),
        ("memory", f"{summary['largest_memory_mb']:.0f} MB at most"),
        ("time", f"{summary['seconds']['all']:.1f} s"),
        *(("warning", text) for text in summary["warnings"]),
        *(("left out", text) for text in summary["missing"]),
        ("report", str(report)),
    ]


def object_width_from(ground: bool, width: float | None) -> float:
    """Metres; 0 where no ground is to be found."""
    if not ground and width is not None:
        raise UsageError("--object-width is for --ground: give both")
    if width is not None and not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise UsageError(f"--object-width {width:g}: expected {LEAST_WIDTH:g} to {MOST_WIDTH:g} m")
    return (width or OBJECT_WIDTH) if ground else 0.0


def window_from(bounds: str | None, spacing: float | None) -> Window:
    from gpgmap_ros.io.points import Window

    if spacing is not None and not 0.0 < spacing < float("inf"):
        raise UsageError(f"--spacing {spacing:g}: expected a distance in metres")
    if bounds is None:
        return Window(None, spacing)
    try:
        west, south, east, north = (float(part) for part in bounds.split(","))
    except ValueError:
        raise UsageError(f"--bounds {bounds}: expected four numbers, as in 4000,2000,5000,2500") from None
    if not (west < east and south < north):
        raise UsageError(f"--bounds {bounds}: the smallest x and y come first, then the largest")
    return Window((west, south, east, north), spacing)


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
