"""A real loop, driven by a real robot: is the return to the start found, is anything false found, what drift is left?

python benchmark/closure_loop.py [--settings mapping.resolution=0.3 ...] [--check-reference]

Replays bag_nclt_loop (NCLT: a Segway with an HDL-32E, 558 m on a campus, scans thinned to voxels of 0.5 m) through the
mapping pipeline, hands each finished submap to the LoopCloser, and compares with the reference below.

The truth of this loop is what the walls and trees of the unfiltered scans say: the last scans registered with the first
ones by GICP, which our maps take no part in (`--check-reference` repeats that where small_gicp is installed: 70
combinations of first and last scans and of voxel sizes; 68 % of them lie within 0.05 m, 0.3 degrees of yaw and 0.15
degrees of tilt of their median, which is the reference). A closure is false if it contradicts the odometry, corrected
by the reference in proportion to the way, by more than 2 m or 5 degrees.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from closure_terrain import data_folder
from numpy.typing import NDArray
from rosbags.typesys import get_typestore
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import interpolate, inverse
from gpgmap_ros.io.bags import STORE, read_raw
from gpgmap_ros.io.pointcloud2 import read_xyz
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.pipeline import MappingPipeline

Array = NDArray[np.float64]

SETTINGS = {
    "mapping.resolution": 0.3,
    "mapping.length_scale": 1.0,
    "submap.size": 60.0,
    "submap.max_distance": 25.0,
}
"""For scans thinned to 0.5 m: cells and length scale to match, and submaps large enough to share ground."""
REFERENCE_SHIFT = (3.423, 0.848, 1.144)
"""Metres by which the odometry's last position must be moved."""
REFERENCE_TURN = (0.72, -0.29, -1.62)
"""Degrees, as a rotation vector, by which its last orientation must be turned."""
FALSE_SHIFT, FALSE_TURN = 2.0, 5.0


def read_loop(folder: Path) -> list[tuple[int, Array, Array]]:
    """(stamp, points, T_odom_velodyne) of every scan."""
    store = get_typestore(STORE)
    points: dict[int, Array] = {}
    poses: dict[int, Array] = {}
    for raw in read_raw(folder):
        if raw.topic not in ("/points", "/odom"):
            continue
        message = store.deserialize_cdr(raw.data, raw.type_name)
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        if raw.topic == "/points":
            points[stamp] = read_xyz(message)
            continue
        p, q = message.pose.pose.position, message.pose.pose.orientation
        T = np.eye(4)
        T[:3, :3] = Rotation.from_quat([q.x, q.y, q.z, q.w]).as_matrix()
        T[:3, 3] = p.x, p.y, p.z
        poses[stamp] = T
    return [(stamp, points[stamp], poses[stamp]) for stamp in sorted(points) if stamp in poses]


def submaps_of(scans: list[tuple[int, Array, Array]], config: Config) -> list[Submap]:
    pipeline = MappingPipeline(config)
    reports = [pipeline.add_cloud(points, T, stamp) for stamp, points, T in scans]
    return [submap for submap in (*(r.submap for r in reports), pipeline.finish_submap()) if submap]


def reference(last: Array) -> Array:
    """(4, 4) takes odometry's poses at the end of the loop to where they belong. last: odometry's last pose."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(np.deg2rad(REFERENCE_TURN)).as_matrix()
    T[:3, 3] = last[:3, 3] + REFERENCE_SHIFT - T[:3, :3] @ last[:3, 3]
    return T


def difference(a: Array, b: Array) -> tuple[float, float]:
    """Metres and degrees between two poses."""
    turn = Rotation.from_matrix(a[:3, :3] @ b[:3, :3].T).magnitude()
    return float(np.linalg.norm(a[:3, 3] - b[:3, 3])), float(np.rad2deg(turn))


def check_reference(scans: list[tuple[int, Array, Array]]) -> None:
    """The reference anew, by GICP between all points of the last and of the first scans."""
    import small_gicp

    end = scans[-1][2][:3, 3]
    world = [points @ T[:3, :3].T + T[:3, 3] for _, points, T in scans]
    found = []
    for first in (1, 3, 6, 10, 15):
        for last in ([-1], [-2], [-3], [-2, -1], range(-4, 0), range(-7, 0), range(-11, 0)):
            for voxel in (0.2, 0.5):
                T = reference(scans[-1][2])
                for reach in (1.0, 0.5):
                    T = small_gicp.align(
                        np.concatenate(world[:first]), np.concatenate([world[k] for k in last]),
                        init_T_target_source=T, registration_type="GICP", downsampling_resolution=voxel,
                        max_correspondence_distance=reach,
                    ).T_target_source  # fmt: skip
                turn = Rotation.from_matrix(T[:3, :3]).as_rotvec(degrees=True)
                found.append([*(T[:3, :3] @ end + T[:3, 3] - end), *turn])
    low, middle, high = np.percentile(found, [16, 50, 84], axis=0).round(3)
    print(f"reference by GICP, x y z (m), rotation vector (deg): {middle}, 68 % in {low} to {high}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="*", default=[], help="name=value, on top of those for this bag")
    parser.add_argument("--check-reference", action="store_true", help="repeat the reference by GICP")
    args = parser.parse_args()
    folder = data_folder()
    if folder is None or not (folder / "bag_nclt_loop").is_dir():
        print("skipped: no data folder with bag_nclt_loop; set GPGMAP_DATA")
        return 0
    scans = read_loop(folder / "bag_nclt_loop")
    if args.check_reference:
        check_reference(scans)
    changes = SETTINGS | {name: float(value) for name, value in (item.split("=") for item in args.settings)}
    config = with_settings(Config(), changes)
    start = time.process_time()
    submaps = submaps_of(scans, config)
    mapped = time.process_time()
    closer = LoopCloser(config.closure)
    compared = [closure for submap in submaps for closure in closer.add(submap)]
    closed = time.process_time()

    last = scans[-1][2]
    T_end = reference(last)
    begin, end = scans[0][0], scans[-1][0]
    by_id = {submap.id: submap for submap in submaps}

    def truth(submap: Submap) -> Array:
        """Odometry with the drift taken out in proportion to time: right at both ends, nearly so between them."""
        share = (submap.first_stamp - begin) / (end - begin)
        return interpolate(submap.T_map_submap, T_end @ submap.T_map_submap, share)

    false = 0
    print(
        f"{len(submaps)} submaps ({mapped - start:.1f} s of CPU), {len(compared)} compared in full ", end=""
    )
    print(f"({closed - mapped:.1f} s of CPU); accepted:")
    for closure in closer.closures:
        if not closure.accepted:
            continue
        expected = inverse(truth(by_id[closure.a])) @ truth(by_id[closure.b])
        metres, degrees = difference(closure.T_a_b, expected)
        wrong = metres > FALSE_SHIFT or degrees > FALSE_TURN
        false += wrong
        std = np.sqrt(np.diag(closure.covariance))
        print(
            f"  {closure.a} - {closure.b}: probability {closure.probability:.4f}, overlap {closure.overlap:.0%}, "
            f"{metres:.2f} m and {degrees:.2f} deg from the truth, "
            f"standard deviations {std[0]:.3f} {std[1]:.3f} {std[2]:.3f} m, {np.rad2deg(std[5]):.2f} deg"
            f"{' FALSE' if wrong else ''}"
        )
    (corrected,) = closer.correct([end], [last])
    before, after = difference(last, T_end @ last), difference(corrected, T_end @ last)
    found = sum(closure.accepted for closure in closer.closures)
    print(f"closures found: {found}, false ones: {false}")
    print(f"drift at the end, before: {before[0]:.2f} m and {before[1]:.2f} deg", end="")
    print(f"; after: {after[0]:.2f} m and {after[1]:.2f} deg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
