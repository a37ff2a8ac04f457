"""Clouds of a moving LiDAR, deskewed: a simulated rover against a sensor that stands still, and real scans.

python benchmark/deskewing.py                    3 m/s, 60 deg/s, 10 Hz, 3 s
python benchmark/deskewing.py --speed 1 --turn-rate 20

Simulation: every firing of a 32-beam spinning LiDAR is cast from its own pose over a terrain that is known; poses are
given at 50 Hz and interpolated. RMSE of the map's heights over the cells that all three maps know to 5 cm.
Real: deskew_newer06 (a LiDAR turning at 33 to 100 deg/s) against another program's answer, with the constant twist and
the axes that fit best; the rms without deskewing is that of the best rigid motion. Skipped without the data folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from closure_terrain import data_folder
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.circling import CirclingRover
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.deskewing import Motion, deskew
from gpgmap_ros.sensing.waiting import PoseQueue
from gpgmap_ros.slam import Executors, Slam

Array = NDArray[np.float64]
MAX_STD = 0.05
"""Metres; cells that are known less well are not compared."""


def map_clouds(rover: CirclingRover, clouds: Iterator[Cloud], seconds: float, deskewed: bool) -> GPGMap:
    source = make_source("tf", SourceSetup.recorded("odom", "lidar", "lidar"))
    for transform in rover.transforms(seconds):
        source.insert_transform(transform)
    config = with_settings(Config(), {"submap.enabled": False, "deskew": deskewed})
    slam = Slam(config, PoseQueue(source, 1.0, lambda: 0, deskew=deskewed), Executors.inline())
    for cloud in clouds:
        for _ in slam.add_cloud(cloud):
            pass
    gpgmap = slam.mapping.gpgmap()
    assert gpgmap is not None
    return gpgmap


def simulate(speed: float, turn_rate: float, seconds: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rover = CirclingRover(rover_terrain(rng, 32.0), SpinningLidar(max_range=12.0), speed, turn_rate)
    runs = {
        "still sensor": (False, True),
        "moving, deskewed": (True, True),
        "moving, not deskewed": (True, False),
    }
    maps = {
        name: map_clouds(
            rover, rover.clouds(seconds, np.random.default_rng(seed + 1), moving), seconds, deskewed
        )
        for name, (moving, deskewed) in runs.items()
    }
    grid = maps["still sensor"].grid
    truth = rover.terrain.height_at(grid.centers[..., 0], grid.centers[..., 1])
    known = np.all([(item["variance"] < MAX_STD**2) & item.known for item in maps.values()], axis=0)
    print(f"simulated rover: {speed:g} m/s, {turn_rate:g} deg/s, {rover.scan_rate:g} Hz; {known.sum()} cells")
    base = 0.0
    for name, gpgmap in maps.items():
        error = (gpgmap["elevation"] - truth)[known]
        rmse = float(np.sqrt(np.mean(error**2)))
        base = base or rmse
        stated = float(np.sqrt(np.mean(gpgmap["variance"][known])))
        print(f"  {name:22} RMSE {rmse:.4f} m ({rmse / base:.2f} x still), stated {stated:.4f} m")


def fit_real(raw: Array, seconds: Array, other: Array) -> tuple[float, float]:
    """rms difference to the other program's points with the best rigid motion, and with the best constant twist."""

    def residuals(x: Array, every: int) -> Array:
        points = raw[::every]
        if len(x) == 12:
            points = deskew(points, seconds[::every], Motion.constant(x[6:9], x[9:12], 0.2))
        turned = points @ Rotation.from_rotvec(x[3:6]).as_matrix().T
        return np.asarray((turned + x[:3] - other[::every]).ravel())

    rigid = least_squares(residuals, np.zeros(6), args=(20,), loss="soft_l1", f_scale=0.1).x
    start = np.append(rigid, np.zeros(6))
    twist = least_squares(residuals, start, args=(20,), loss="soft_l1", f_scale=0.05).x
    first, second = (float(np.sqrt(3.0 * np.mean(residuals(x, 1) ** 2))) for x in (rigid, twist))
    return first, second


def compare_real() -> None:
    folder = data_folder()
    if folder is None:
        print("deskew_newer06: skipped: no data folder")
        return
    data = np.load(folder / "deskew_newer06.npz")
    found = [
        fit_real(
            *(np.asarray(data[f"{name}_{k}"], dtype=np.float64) for name in ("raw", "times", "deskewed"))
        )
        for k in range(3)
    ]
    print("deskew_newer06, rms to another program's clouds of three scans:")
    print(f"  not deskewed {' / '.join(f'{item[0]:.3f}' for item in found)} m")
    print(f"  deskewed     {' / '.join(f'{item[1]:.3f}' for item in found)} m")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--speed", type=float, default=3.0, help="m/s")
    parser.add_argument("--turn-rate", type=float, default=60.0, help="deg/s")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the simulated drive")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    simulate(options.speed, options.turn_rate, options.seconds, options.seed)
    compare_real()


if __name__ == "__main__":
    main()
