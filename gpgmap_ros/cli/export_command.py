"""gpgmap export"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpgmap_ros.cli.common import UsageError, add_json, print_json, say

DESCRIPTION = """Write the map of a run (or a map or submap file) for other programs.

  geotiff    one file for each layer, for QGIS and GDAL
  ply        triangle mesh with normals, colours and standard deviations, for CloudCompare, Blender, MeshLab
  grid_map   rosbag2 with a grid_map_msgs/GridMap on /grid_map
  nav2       PGM and YAML of the traversability, for nav2_map_server
  xyz        known cells as points: x y z standard_deviation
  hillshade  the light on the ground, 0 to 1, as GeoTIFF
  slope      in degrees, as GeoTIFF
  contours   contour lines with their elevation, as GeoJSON"""
EXAMPLES = """examples:
  gpgmap export my_bag_gpgmap --to ply
  gpgmap export my_bag_gpgmap --to nav2 --out maps/yard
  gpgmap export run:12 --to geotiff grid_map --out exported
"""
FORMATS = ("geotiff", "ply", "grid_map", "nav2", "xyz", "hillshade", "slope", "contours")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_name", metavar="RUN", help="run folder, submap of it (RUN:7), or map file (.npz)"
    )
    parser.add_argument(
        "--to", nargs="+", required=True, choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS)
    )
    parser.add_argument(
        "--out",
        "-o",
        type=Path,
        metavar="PATH",
        help="name without suffix (default: in the run, exports/NAME)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.apps.export import export_map
    from gpgmap_ros.io.map_products import MapError

    try:
        written = [str(path) for path in export_map(arguments.run_name, arguments.to, arguments.out)]
    except MapError as error:
        raise UsageError(str(error)) from error
    if arguments.json:
        print_json({"files": written})
    for path in written:
        say(arguments, path)
