"""The map of a run, or a map file, written for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from gpgmap_ros.apps.export_sheets import export_sheets, is_in_sheets
from gpgmap_ros.apps.maps import open_map
from gpgmap_ros.config import Config
from gpgmap_ros.io.contours import write_contours
from gpgmap_ros.io.geotiff import Crs, write_geotiff
from gpgmap_ros.io.map_products import write_geotiffs
from gpgmap_ros.io.mesh import write_mesh
from gpgmap_ros.io.nav2_map import write_nav2_map
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import exported_layers
from gpgmap_ros.storage.atomic import atomic_path
from gpgmap_ros.viz.rendering import STYLES, colour_layer, relief_shade


def export_map(name: str, formats: Iterable[str], out: Path | None) -> list[Path]:
    """Write the map called `name` (see `open_map`) in some formats (keys of `WRITERS`); the files that were written.

    out: name without suffix; in the run's folder `exports` unless given
    """
    path = Path(name)
    if path.is_dir() and is_in_sheets(RunFolder(path)):
        return export_sheets(RunFolder(path), formats, out or default_out(path, name))
    gpgmap = open_map(name, Config(), None)
    crs = RunFolder(path).read_map()[1] if path.is_dir() else Crs(name=f"local frame '{gpgmap.frame_id}'")
    if not gpgmap.known.any():
        raise RuntimeError(f"{name}: the map has no known cells")
    out = out or default_out(path, name)
    out.parent.mkdir(parents=True, exist_ok=True)
    return [item for kind in formats for item in WRITERS[kind](out, gpgmap, crs)]


def default_out(path: Path, name: str) -> Path:
    """Where a map is exported to unless the user says so: exports/NAME, in its run or beside its file."""
    folder = (
        path if path.is_dir() else Path(name.rpartition(":")[0] or ".") if not path.exists() else path.parent
    )
    stem = path.resolve().name if path.is_dir() else Path(name).stem.replace(":", "_")
    return folder / "exports" / stem


def write_layers(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """A folder of GeoTIFFs, one for each exported layer."""
    return write_geotiffs(out.with_name(f"{out.name}_layers"), gpgmap, crs)


def write_ply(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """A triangle mesh, coloured by height."""
    path = out.with_name(f"{out.name}.ply")
    write_mesh(path, gpgmap, colour_layer(gpgmap["elevation"], STYLES["elevation"]))
    return [path]


def write_grid_map(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """A rosbag2 with one GridMap."""
    from gpgmap_ros.io.grid_map_bag import write_grid_map_bag  # needs rosbags, which is optional

    path = out.with_name(f"{out.name}_grid_map")
    write_grid_map_bag(path, gpgmap, exported_layers())
    return [path]


def write_nav2(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """A PGM and its YAML of the traversability."""
    yaml = write_nav2_map(out.with_name(f"{out.name}.yaml"), gpgmap)
    return [yaml, yaml.with_suffix(".pgm")]


def write_xyz(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """The known cells as lines of text: x y z standard_deviation."""
    path = out.with_name(f"{out.name}.xyz")
    iy, ix = np.nonzero(gpgmap.known)
    values = [
        gpgmap.grid.x[ix],
        gpgmap.grid.y[iy],
        gpgmap["elevation"][iy, ix],
        np.sqrt(gpgmap["variance"][iy, ix]),
    ]
    with atomic_path(path) as staged:
        np.savetxt(
            staged, np.column_stack(values), fmt="%.4f", header="x y z standard_deviation", comments="# "
        )
    return [path]


def write_hillshade(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """The light on the ground, 0 to 1, from the map's own gradients, as GeoTIFF."""
    path = out.with_name(f"{out.name}_hillshade.tif")
    shade = relief_shade(gpgmap["gradient_x"], gpgmap["gradient_y"], exaggeration=1.0)
    write_geotiff(path, shade, gpgmap.grid.origin, gpgmap.grid.resolution, crs, "hillshade")
    return [path]


def write_slope(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """The angle of the ground against the horizontal in degrees, as GeoTIFF."""
    path = out.with_name(f"{out.name}_slope.tif")
    degrees = np.degrees(gpgmap["slope"])
    write_geotiff(path, degrees, gpgmap.grid.origin, gpgmap.grid.resolution, crs, "slope", "degree")
    return [path]


def write_contour_lines(out: Path, gpgmap: GPGMap, crs: Crs) -> list[Path]:
    """Contour lines as GeoJSON."""
    path = out.with_name(f"{out.name}_contours.geojson")
    write_contours(path, gpgmap["elevation"], gpgmap.grid, crs)
    return [path]


WRITERS: dict[str, Callable[[Path, GPGMap, Crs], list[Path]]] = {
    "geotiff": write_layers, "ply": write_ply, "grid_map": write_grid_map, "nav2": write_nav2, "xyz": write_xyz,
    "hillshade": write_hillshade, "slope": write_slope, "contours": write_contour_lines,
}  # fmt: skip
