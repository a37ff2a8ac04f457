"""gpgmap view"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_settings,
    check_output_file,
    config_from,
    print_json,
    say,
)

DESCRIPTION = """Look at a map in 3D: a run, a map file, a submap of a run, or point cloud files, mapped first.

Opens a window of Open3D. Where there is no screen, or with --png, it renders to a PNG; where Open3D can't render
either, our own renderer draws the picture, and the output says so."""
EXAMPLES = """examples:
  gpgmap view my_bag_gpgmap                           the map of a run
  gpgmap view my_bag_gpgmap:7 --colour uncertainty    one of its submaps
  gpgmap view scan1.ply scan2.pts --resolution 0.1    point clouds, as one map
  gpgmap view out/demo --png demo.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="+",
        metavar="RUN|MAP|FILE",
        help="a run folder, RUN:7 for a submap, a map or submap (.npz), or point cloud files",
    )
    parser.add_argument(
        "--colour",
        choices=("height", "uncertainty"),
        default="height",
        help="what the colours show (default: height)",
    )
    parser.add_argument(
        "--resolution",
        type=float,
        metavar="METRES",
        help="cells for point clouds (default: by their density)",
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="render to this file instead of a window")
    parser.add_argument(
        "--width", type=int, default=1280, metavar="PIXELS", help="of the PNG (default: 1280)"
    )
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    if not 16 <= arguments.width <= 16_384:
        raise UsageError(f"--width {arguments.width}: must be between 16 and 16384 pixels")
    if arguments.resolution is not None and not arguments.resolution > 0.0:
        raise UsageError(f"--resolution {arguments.resolution}: must be positive")
    from gpgmap_ros.viz.open3d_window import has_screen

    picture = None
    if arguments.png is not None or not has_screen():
        name = arguments.names[0].replace(":", "_")  # RUN:7, as of compare
        picture = arguments.png or Path(f"{Path(name).stem or 'map'}_view.png")
        check_output_file(picture, "--png")
    gpgmap, source = open_for_view(arguments)
    if not gpgmap.known.any():
        raise RuntimeError(f"{source}: no ground is known in this map: there is nothing to show")
    if picture is None:
        show(gpgmap, source, arguments)
        return
    renderer = render(gpgmap, picture, arguments)
    if arguments.json:
        print_json({"png": str(picture), "renderer": renderer, "cells": list(gpgmap.grid.shape)})
    else:
        print(f"  {picture}: rendered by {renderer}")


def open_for_view(arguments: argparse.Namespace) -> tuple[Any, str]:
    """The map to show, and what to call it."""
    from gpgmap_ros.apps.maps import kind_of_npz, map_point_clouds, open_map
    from gpgmap_ros.io.points import SUFFIXES

    names = arguments.names
    config = config_from(arguments)
    files = [Path(name) for name in names]
    if len(names) == 1 and (files[0].suffix.lower() not in SUFFIXES or kind_of_npz(files[0])):
        return open_map(names[0], config, arguments.resolution), names[0]
    if strange := [
        name for name, path in zip(names, files, strict=True) if path.suffix.lower() not in SUFFIXES
    ]:
        raise UsageError(f"{strange[0]}: only point clouds can be shown together: name one run or map")
    gpgmap = map_point_clouds(files, arguments.resolution, lambda text: say(arguments, f"  warning: {text}"))
    say(arguments, f"  {', '.join(names)}: mapped in cells of {gpgmap.grid.resolution:g} m")
    return gpgmap, names[0]


def show(gpgmap: Any, source: str, arguments: argparse.Namespace) -> None:
    from gpgmap_ros.viz.open3d_window import RenderingFailed, show_window

    try:
        show_window(gpgmap.to_open3d(arguments.colour), f"{source} ({arguments.colour})")
    except RenderingFailed as error:
        raise RuntimeError(f"{error}: render to a file with --png FILE") from error


def render(gpgmap: Any, path: Path, arguments: argparse.Namespace) -> str:
    """Write the picture; returns which renderer drew it."""
    from gpgmap_ros.open3d_import import Open3DMissing
    from gpgmap_ros.viz.open3d_window import RenderingFailed, render_png

    try:
        render_png(gpgmap.to_open3d(arguments.colour), path, arguments.width, arguments.width * 5 // 8)
    except (Open3DMissing, RenderingFailed) as error:
        from gpgmap_ros.viz.oblique import oblique_view
        from gpgmap_ros.viz.rendering import png

        png(oblique_view(gpgmap, arguments.colour, arguments.width)[::-1], path)
        return f"gpgmap's own renderer ({error})"
    return "Open3D"
