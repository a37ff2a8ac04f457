"""gpgmap map"""

from __future__ import annotations

import argparse
import contextlib
import errno
import shutil
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

LEAST_MEMORY = 400
LARGE, KEPT = 8 << 20, 64 << 20
"""Bytes, see `memory.keep_flat`: a run takes minutes and keeps to --memory; arrays that were freed are used again."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that is full, a quota that is used up, a file that may not grow."""

DESCRIPTION = """Map point cloud files: LAS, LAZ, PLY, PCD, XYZ (text) and NPZ (xyz or x, y, z; offset; epsg), any
number and any size.

Points are read once, piece by piece, and forgotten: memory stays below --memory whatever their number,
and what does not fit goes to the disk. A few points far from all others are left out and named.
Coordinates and their system are kept
(GeoTIFF). Resolution, length scale, relief and noise are read off a sample unless you give them. Of
classified LAS files the ground points are used."""
EXAMPLES = """examples:
  gpgmap map survey.laz
  gpgmap map tiles/*.las --set mapping.resolution=0.5 --out survey
  gpgmap map scan.ply --crs EPSG:25832 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="point cloud")
    add_output(parser, "the first file's name and _gpgmap")
    parser.add_argument(
        "--crs", metavar="EPSG:N", help="system of the coordinates, where the files do not say"
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
        help="memory to use at most; what does not fit is on disk while it runs (default: 1024)",
    )
    parser.add_argument(
        "--keep-outliers",
        action="store_true",
        help="map also points that lie far from all others (default: they are left out and named)",
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    begin = time.monotonic()
    config, given = config_from(arguments), given_settings(arguments)
    epsg, classes = epsg_from(arguments.crs), classes_from(arguments.classes)
    if arguments.memory < LEAST_MEMORY:
        raise UsageError(
            f"--memory {arguments.memory}: at least {LEAST_MEMORY} MB are needed (the program itself takes 300)"
        )
    from gpgmap_ros.io.points import open_points
    from gpgmap_ros.io.points.decoder import decoder
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.io.staged import write_json
    from gpgmap_ros.memory import keep_flat, largest_bytes
    from gpgmap_ros.offline.surveying import (
        collect,
        plan,
        remove_tiles,
        room_needed,
        survey_report,
        write_survey,
    )

    keep_flat(LARGE, KEPT)
    check_output(arguments.out)
    sources = [open_points(path, epsg, classes) for path in arguments.files]
    crs, warnings = common_crs(sources)
    with ProgressBar("looking at a sample", 1) as bar:
        planned = plan(sources, config, given)
        bar.update(1)
    for text in (*planned.guesses, *{source.note for source in sources if source.note}):
        say(arguments, f"  {text}")
    name = arguments.files[0].stem
    folder = RunFolder(output_folder(arguments.out, f"{name}_gpgmap", arguments.overwrite))
    summary: dict[str, Any] = {
        "kind": "survey", "name": name, "sources": [str(path) for path in arguments.files],
        "guesses": list(planned.guesses), "crs": crs.label, "warnings": warnings, "losses": [],
    }  # fmt: skip
    folder.begin(summary, planned.config)
    tiles, needed = folder.path / ".tiles", 0
    try:
        start = time.monotonic()
        with ProgressBar("adding points", planned.points or 1) as bar:

            def progress(count: int) -> None:
                spent = max(time.monotonic() - start, 1e-6)
                left = ((planned.points or count) - count) / (count / spent)
                bar.update(
                    count, f"{count / 1e6:.1f} M points  {count / spent / 1e6:.1f} M/s  {left:.0f} s left"
                )

            survey, spent, notes = collect(
                sources, planned, tiles, arguments.memory << 20, progress, arguments.keep_outliers
            )
        decoder.close()
        warnings += notes
        needed = room_needed(survey)
        check_room(folder.path, needed)
        with ProgressBar("solving", 1) as bar:
            solve = time.monotonic()
            numbers, overview, small = write_survey(
                folder,
                survey,
                crs,
                tiles,
                arguments.memory << 20,
                lambda done, total: bar.update((done + 1) / total, f"window {done + 1} of {total}"),
            )
            solving = time.monotonic() - solve
    except BaseException as error:
        failure = failed(folder.path, error, needed)
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(OSError):
            write_json(folder.summary, {**summary, "status": status, "error": str(failure)})
        raise failure from (None if failure is error else error)
    finally:
        remove_tiles(tiles)
    grid = survey.grid
    summary |= {
        "status": "complete",
        "points": {
            "used": survey.count,
            "per_second": round(survey.count / (spent.adding + spent.reading), 1),
            "per_processor_second": round(survey.count / spent.processors, 1),
        },
        "map": {
            "resolution_m": grid.resolution, "cells": list(grid.shape), "origin": list(grid.origin), **numbers,
        },
        "timings_s": {
            "adding": round(spent.adding, 3),
            "reading": round(spent.reading, 3),
            "solving and writing": round(solving, 3),
        },
        "largest_memory_mb": round(largest_bytes() / 2**20 + decoder.largest_mb, 1),
        "seconds": {"all": round(time.monotonic() - begin, 3)},
    }  # fmt: skip
    survey_report(folder, summary, planned.config, overview, small, crs)
    write_json(folder.summary, summary)
    if arguments.json:
        print_json(summary)
        return
    map_ = summary["map"]
    rows = [
        ("points", f"{survey.count:,} at {summary['points']['per_second'] / 1e6:.1f} million/s"),
        (
            "map",
            f"{map_['known_m2']:,.0f} m2 known, {grid.shape[1]} x {grid.shape[0]} cells of {grid.resolution:g} m",
        ),
        (
            "system",
            crs.label or "not said: the GeoTIFFs have the files' coordinates and no name for them (--crs)",
        ),
        ("memory", f"{summary['largest_memory_mb']:.0f} MB at most"),
        ("time", f"{summary['seconds']['all']:.1f} s"),
        *(("warning", text) for text in warnings),
        ("report", str(folder.report)),
    ]
    print(table(rows))


def check_room(folder: Path, needed: int) -> None:
    """RuntimeError where the results can't fit: they take at least half of what is reckoned."""
    free = shutil.disk_usage(folder).free
    if free < needed // 2:
        raise RuntimeError(
            f"{folder}: the results need about {size(needed)} of disk, {size(free)} are free: make room, name a folder"
            " elsewhere with --out, or give larger cells with --set mapping.resolution"
        )


def failed(folder: Path, error: BaseException, needed: int) -> BaseException:
    """The error; of a full disk with what is needed (bytes, 0 where not known yet), what is free and what to do."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return error
    reckoned = f"about {size(needed)} are needed in all, " if needed else ""
    free = shutil.disk_usage(folder).free
    return RuntimeError(
        f"{folder}: can't be written ({error.strerror}): {reckoned}{size(free)} are free: make room, or name a folder"
        " elsewhere with --out"
    )


def size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.0f} MB"


def epsg_from(text: str | None) -> int:
    if text is None:
        return 0
    code = text.upper().removeprefix("EPSG:")
    if not code.isdigit() or not 1024 <= int(code) <= 32766:
        raise UsageError(f"--crs {text}: expected the code of a projected system, as in EPSG:32611")
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
    """The system of all files; UsageError where they differ."""
    from gpgmap_ros.io.geotiff import Crs

    known = {source.crs.label: source for source in sources if source.crs.label}
    if len(known) > 1:
        named = ", ".join(f"{source.path} in {label}" for label, source in known.items())
        raise UsageError(f"the files have different coordinates: {named}. Convert them first, or say --crs")
    silent = [str(source.path) for source in sources if not source.crs.label]
    warnings = [f"taken to be in {next(iter(known))}: {', '.join(silent)}"] if known and silent else []
    return (next(iter(known.values())).crs if known else Crs()), warnings
