"""gpgmap export"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import UsageError, add_json, print_json, say

DESCRIPTION = """Write the map of a run (or a map or submap file) for other programs.

  geotiff    one file for each layer, for QGIS and GDAL
  ply        triangle mesh with normals, colours and standard deviations, for CloudCompare, Blender, MeshLab
  grid_map   rosbag2 with a grid_map_msgs/GridMap on /grid_map
  nav2       PGM and YAML of the traversability, for nav2_map_server
  xyz        known cells as points: x y z standard_deviation"""
EXAMPLES = """examples:
  gpgmap export my_bag_gpgmap --to ply
  gpgmap export my_bag_gpgmap --to nav2 --out maps/yard
  gpgmap export run:12 --to geotiff grid_map --out exported
"""
FORMATS = ("geotiff", "ply", "grid_map", "nav2", "xyz")
GRID_MAP_LAYERS = (
    "elevation",
    "variance",
    "gradient_x",
    "gradient_y",
    "gradient_magnitude",
    "slope",
    "traversability",
)


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
    from gpgmap_ros.config import Config
    from gpgmap_ros.io.geotiff import Crs
    from gpgmap_ros.io.map_products import MapError
    from gpgmap_ros.io.run_folder import RunFolder
    from gpgmap_ros.offline.maps import open_map

    path = Path(arguments.run_name)
    try:
        gpgmap = open_map(arguments.run_name, Config(), None)
        crs = RunFolder(path).read_map()[1] if path.is_dir() else Crs(name=f"local frame '{gpgmap.frame_id}'")
    except MapError as error:
        raise UsageError(str(error)) from error
    if not gpgmap.known.any():
        raise RuntimeError(f"{arguments.run_name}: nothing is known in this map")
    out = arguments.out or default_out(path, arguments.run_name)
    out.parent.mkdir(parents=True, exist_ok=True)
    written = [str(item) for kind in arguments.to for item in WRITERS[kind](out, gpgmap, crs)]
    if arguments.json:
        print_json({"files": written})
    for item in written:
        say(arguments, item)


def default_out(path: Path, name: str) -> Path:
    folder = (
        path if path.is_dir() else Path(name.rpartition(":")[0] or ".") if not path.exists() else path.parent
    )
    stem = path.resolve().name if path.is_dir() else Path(name).stem.replace(":", "_")
    return folder / "exports" / stem


def geotiff(out: Path, gpgmap: Any, crs: Any) -> list[Path]:
    from gpgmap_ros.io.map_products import write_geotiffs

    return write_geotiffs(out.with_name(f"{out.name}_layers"), gpgmap, crs)


def ply(out: Path, gpgmap: Any, crs: Any) -> list[Path]:
    from gpgmap_ros.io.mesh import write_mesh
    from gpgmap_ros.viz.rendering import STYLES, coloured

    path = out.with_name(f"{out.name}.ply")
    write_mesh(path, gpgmap, coloured(gpgmap["elevation"], STYLES["elevation"]))
    return [path]


def grid_map(out: Path, gpgmap: Any, crs: Any) -> list[Path]:
    from gpgmap_ros.io.grid_map_bag import write_grid_map_bag

    path = out.with_name(f"{out.name}_grid_map")
    write_grid_map_bag(path, gpgmap, GRID_MAP_LAYERS)
    return [path]


def nav2(out: Path, gpgmap: Any, crs: Any) -> list[Path]:
    from gpgmap_ros.io.nav2_map import write_nav2_map

    yaml = write_nav2_map(out.with_name(f"{out.name}.yaml"), gpgmap)
    return [yaml, yaml.with_suffix(".pgm")]


def xyz(out: Path, gpgmap: Any, crs: Any) -> list[Path]:
    import numpy as np

    from gpgmap_ros.io.staged import staged

    path = out.with_name(f"{out.name}.xyz")
    iy, ix = np.nonzero(gpgmap.known)
    values = [
        gpgmap.grid.x[ix],
        gpgmap.grid.y[iy],
        gpgmap["elevation"][iy, ix],
        np.sqrt(gpgmap["variance"][iy, ix]),
    ]
    with staged(path) as beside:
        np.savetxt(
            beside, np.column_stack(values), fmt="%.4f", header="x y z standard_deviation", comments="# "
        )
    return [path]


WRITERS: dict[str, Callable[[Path, Any, Any], list[Path]]] = {
    "geotiff": geotiff, "ply": ply, "grid_map": grid_map, "nav2": nav2, "xyz": xyz,
}  # fmt: skip
