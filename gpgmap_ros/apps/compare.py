"""Two surveys by name into a folder that says what changed: `gpgmap compare`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.apps.coordinate_systems import check_units
from gpgmap_ros.apps.maps import kind_of_npz, open_map
from gpgmap_ros.apps.point_clouds import fit_resolution, read_point_cloud
from gpgmap_ros.arrays import Array
from gpgmap_ros.change import Comparison, compare_maps
from gpgmap_ros.change.alignment import PARAMETERS
from gpgmap_ros.change.comparison import DRAWS, LEVEL
from gpgmap_ros.closure import PosePrior, register
from gpgmap_ros.config import Config
from gpgmap_ros.geometry import apply
from gpgmap_ros.io.crs_units import same, unit_name, units_of
from gpgmap_ros.io.geotiff import Crs, write_geotiff
from gpgmap_ros.io.map_products import read_map_npz
from gpgmap_ros.io.points import SUFFIXES
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.report.change_page import write_change_report
from gpgmap_ros.report.content import describe_origin
from gpgmap_ros.storage.atomic import atomic_folder, write_json
from gpgmap_ros.storage.folder_lock import LOCK_FILE

UNITS = {"difference": "m", "difference_std": "m", "p_value": "", "q_value": "", "change": ""}
"""Layers that are written as GeoTIFF."""
SAME_FRAME = PosePrior(np.eye(4), np.diag([1.0, 1.0, 1.0, *np.radians([1.0, 1.0, 2.0]) ** 2]))
"""Where a run is in the frame of another one if both had their poses from outside, as from a GNSS receiver."""
Progress = Callable[[float, str], None]


class CompareError(ValueError):
    """Surveys that cannot be compared: which, why, and what to do."""


@dataclass(frozen=True, eq=False)
class Source:
    """A survey: its map, or points that are still to be mapped; crs: of its coordinates; frame: their name

    begins_anew: the frame begins where a robot was switched on, so that another one of that name may be elsewhere
    """

    name: str
    gpgmap: GPGMap | None
    points: Array | None
    crs: Crs
    frame: str
    begins_anew: bool = False
    warnings: tuple[str, ...] = ()

    def map_with(self, resolution: float, T: Array | None = None) -> GPGMap:
        """The map. T: (4, 4) takes points to another frame first; maps stay in theirs"""
        if self.gpgmap is not None:
            return self.gpgmap
        assert self.points is not None
        points = self.points if T is None else apply(T, self.points)
        return gpgmap_from_points(points, resolution)


@dataclass(frozen=True, eq=False)
class Compared:
    """comparison: what changed; crs: of its coordinates; pose: how the frames were brought together, for people
    T_before_after: (4, 4) where they were registered, None where they are one frame; warnings: for people"""

    comparison: Comparison
    crs: Crs
    pose: str
    T_before_after: Array | None
    warnings: tuple[str, ...] = ()


def compare(
    a: str | Path | GPGMap | Array,
    b: str | Path | GPGMap | Array,
    *,
    resolution: float | None = None,
    registration: str = "auto",
    level: float = LEVEL,
    align: bool = True,
    draws: int = DRAWS,
    config: Config | None = None,
    progress: Progress | None = None,
) -> Compared:
    """What changed from survey a to survey b.

    a, b: runs, map or point files by name; maps; or points (N, 3)
    resolution: edge of a cell where both are points; by their density unless given
    registration: "auto" takes one frame as it is, others are registered, also two runs whose frames are named alike;
        "never"; "always"
    level, align, draws, progress: as of `compare_maps`
    """
    config, tell = config or Config(), progress or (lambda share, text: None)
    if registration not in ("auto", "never", "always"):
        raise ValueError(f"registration must be auto, never or always, got {registration!r}")
    tell(0.0, "reading")
    before, after = (open_source(item, config) for item in (a, b))
    check_same_units(before, after)
    edge = choose_resolution(before, after, resolution)
    tell(0.05, "mapping")
    first, second = before.map_with(edge), after.map_with(edge)
    tell(0.2, "registering")
    T, pose = bring_together((before, after), first, second, registration, config)
    if T is not None and after.points is not None:
        second = after.map_with(edge, T)
    moved = None if T is None or after.points is not None else T
    found = compare_maps(
        first, second, moved, level=level, align=align, draws=draws,
        progress=lambda share, text: tell(0.25 + 0.75 * share, text),
    )  # fmt: skip
    return Compared(found, before.crs, pose, T, tuple(dict.fromkeys((*before.warnings, *after.warnings))))


def open_source(item: str | Path | GPGMap | Array, config: Config) -> Source:
    """A survey by name, or as it is. MapError, RunError or CompareError with the reason where it is none."""
    if isinstance(item, GPGMap):
        return Source("map", item, None, Crs(name=f"local frame '{item.frame_id}'"), item.frame_id)
    if isinstance(item, np.ndarray):
        return Source("points", None, item.astype(np.float64), Crs(), "")
    name, path = str(item), Path(item)
    if path.is_dir():
        check_run(RunFolder(path))
        gpgmap, crs = RunFolder(path).read_map()
        warnings = tuple(check_units(crs))
        return Source(name, gpgmap, None, crs, gpgmap.frame_id, begins_anew=not crs.epsg, warnings=warnings)
    if path.is_file() and path.suffix.lower() in SUFFIXES and not kind_of_npz(path):
        cloud = read_point_cloud([path])
        return Source(name, None, cloud.points, cloud.crs, "", warnings=cloud.warnings)
    if path.is_file() and path.suffix == ".npz" and kind_of_npz(path) == "map":
        gpgmap, crs = read_map_npz(path, config)
        return Source(name, gpgmap, None, crs, gpgmap.frame_id, warnings=tuple(check_units(crs)))
    gpgmap = open_map(name, config, None)  # a submap
    crs = Crs(name=f"local frame '{gpgmap.frame_id}'")
    return Source(name, gpgmap, None, crs, gpgmap.frame_id, begins_anew=True)


def check_run(run: RunFolder) -> None:
    """CompareError where a run is still being written, or ended before its map was made."""
    summary = run.read_summary()
    lock = run.path / LOCK_FILE
    if lock.is_file() and is_locked(lock):
        raise CompareError(f"{run.path}: is being written: wait until it has ended")
    if not run.map.exists():
        status = summary.get("status", "unknown")
        raise CompareError(f"{run.path}: has no map (its status is '{status}'): run it again to its end")


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def choose_resolution(before: Source, after: Source, wanted: float | None) -> float:
    """Edge of a cell: that of the maps; for two point clouds the one wanted, or by the sparser of them."""
    given = [item.gpgmap.grid.resolution for item in (before, after) if item.gpgmap is not None]
    if given:
        if wanted is not None and abs(np.log(wanted / given[0])) > 1e-3:
            raise CompareError(
                f"--resolution {wanted:g}: the map has cells of {given[0]:g} m, which points are mapped with as well"
            )
        return float(given[0])
    if wanted is not None:
        return wanted
    return max(fit_resolution(item.points, item.name) for item in (before, after) if item.points is not None)


def check_same_units(before: Source, after: Source) -> None:
    """CompareError where positions are known to be in different units."""
    units = [units_of(item.crs).horizontal for item in (before, after)]
    if units[0] and units[1] and not same(*units):
        raise CompareError(
            f"{before.name} is in {unit_name(units[0])} and {after.name} in {unit_name(units[1])}:"
            " convert one of them first"
        )


def frames_differ(before: Source, after: Source) -> bool:
    """Whether the two are known to be in different frames: another EPSG code, or another frame of a robot's map."""
    if before.crs.epsg and after.crs.epsg:
        if before.crs.epsg != after.crs.epsg:
            raise CompareError(
                f"{before.name} is in EPSG:{before.crs.epsg} and {after.name} in EPSG:{after.crs.epsg}: "
                "transform one of them first"
            )
        return False
    return bool(before.frame and after.frame and before.frame != after.frame)


def share_nothing(first: GPGMap, second: GPGMap) -> bool:
    """Whether the boxes of two maps are apart."""
    a, b = first.grid.bounds, second.grid.bounds
    return a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]


def bring_together(
    sources: tuple[Source, Source], first: GPGMap, second: GPGMap, registration: str, config: Config
) -> tuple[Array | None, str]:
    """T_before_after, None where both are in one frame, and how that is known, for people.

    registration: as of `compare`. CompareError where it is needed and refused.
    """
    before, after = sources
    if registration == "never":
        return None, "one frame"
    anew = False
    if registration == "auto" and not frames_differ(before, after) and not share_nothing(first, second):
        anew = before.begins_anew and after.begins_anew
        if not anew:
            return None, "one frame"
    found = register(second, first, config.closure, SAME_FRAME) if anew else None
    if found is None or not found.accepted:
        found = register(second, first, config.closure)
    if not found.accepted:
        raise CompareError(
            f"{before.name} and {after.name} are in different frames, and could not be registered: {found.reason}"
            + ("; --keep-frames compares their coordinates as they are" if anew else "")
        )
    T = found.T_target_source
    if anew and (off := largest_shift(T, second)) < first.grid.resolution:
        return None, f"one frame: registered, and off by at most {off:.2f} m"
    x, y, z = T[:3, 3]
    yaw = np.degrees(np.arctan2(T[1, 0], T[0, 0]))
    return T, (
        f"registered: x {x:.2f} m, y {y:.2f} m, z {z:.2f} m, yaw {yaw:.2f}°, probability {found.probability:.4f}"
    )


def largest_shift(T: Array, gpgmap: GPGMap) -> float:
    """Metres by which a pose moves the corners of a map in the plane, at most."""
    x_min, y_min, x_max, y_max = gpgmap.grid.bounds
    corners = np.array([[x, y, 0.0] for x in (x_min, x_max) for y in (y_min, y_max)])
    return float(np.linalg.norm((apply(T, corners) - corners)[:, :2], axis=1).max())


def summarise(found: Compared, names: tuple[str, str]) -> dict[str, Any]:
    """What run.json says."""
    c = found.comparison
    area = c.grid.resolution**2
    return {
        "kind": "comparison",
        "status": "complete",
        "before": names[0],
        "after": names[1],
        "warnings": list(found.warnings),
        "pose": found.pose,
        "T_before_after": None if found.T_before_after is None else found.T_before_after.tolist(),
        "aligned": c.aligned,
        "motion": dict(zip(PARAMETERS, c.motion.tolist(), strict=True)),
        "motion_std": dict(zip(PARAMETERS, c.motion_std.tolist(), strict=True)),
        "motion_about": c.centre.tolist(),
        "level": c.level,
        "resolution_m": c.grid.resolution,
        "compared_m2": int(c.compared.sum()) * area,
        "share_significant_alone": c.share_at_level,
        "median_std_m": float(np.nanmedian(c.std)),
        "floor_std_m": c.floor_std,
        "correlated_m2": c.correlated_area,
        "volume_std_ratio": c.independent_ratio,
        "fill_m3": c.fill,
        "cut_m3": c.cut,
        "net_m3": c.net,
        "patches": [asdict(patch) for patch in c.patches],
        "made": describe_origin(),
    }


def write_comparison(folder: Path, found: Compared, names: tuple[str, str]) -> dict[str, Any]:
    """Write layers, numbers and the page; the folder appears when it is complete, and replaces an earlier one then."""
    summary = summarise(found, names)
    c = found.comparison
    layers = {
        "difference": c.difference, "difference_std": c.std, "p_value": c.p_value, "q_value": c.q_value,
        "change": c.change,
    }  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder) as staged:
        (staged / "layers").mkdir(parents=True)
        for name, layer in layers.items():
            write_geotiff(
                staged / "layers" / f"{name}.tif", layer.astype(np.float32), c.grid.origin, c.grid.resolution,
                found.crs, name, UNITS[name],
            )  # fmt: skip
        write_change_report(staged / "report.html", c, summary)
        write_json(staged / "run.json", summary)
    return summary
