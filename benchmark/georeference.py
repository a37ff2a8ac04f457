"""Georeference of simulated drives by GPS with noise, slow offsets, outliers and jumps.

python benchmark/georeference.py                        20 drives of 20 minutes
python benchmark/georeference.py --drives 50 --seconds 600 --offset 1.0

A drive of 1 m/s in loops of some hundred metres; its trajectory drifts by 0.3 % of the distance and is not corrected.
GPS at 1 Hz: white noise, an offset that changes within minutes (Gauss-Markov, 60 s), a fifth of the fixes off by tens
of metres, and one stretch of two minutes 50 m to the east. Error of the position: of the middle of the trajectory;
NEES: of east, north and heading by the stated covariance, over three: 1 where that is right. Best possible: what no
estimator from these fixes can be better than (Cramer-Rao: Gaussian errors whose covariance over time is known, outliers
and jump left out, no drift). No public recording with
clouds, GPS and a better reference could be kept here: all of this is simulated.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedGps
from gpgmap_ros.slam.geodesy import UtmZone
from gpgmap_ros.slam.georeference import fit_georeference
from gpgmap_ros.slam.trajectory import Trajectory

Array = NDArray[np.float64]
START = 1_000_000_000_000
PLACE = (48.1, 11.6, 520.0)
DRIFT = 0.003
OFFSET_SECONDS = 60.0


def true_positions(times: Array, rng: np.random.Generator) -> Array:
    """(N, 3) loops of changing size at 1 m/s, from the origin on."""
    heading = np.cumsum(rng.normal(0.0, 0.02, len(times)) + 2.0 * np.pi / 400.0) * np.gradient(times)
    step = np.column_stack([np.cos(heading), np.sin(heading), 0.02 * np.sin(heading)])
    return np.asarray(np.cumsum(step * np.gradient(times)[:, None], axis=0) - step[0])


def run(options: argparse.Namespace, offset: float, seed: int) -> tuple[float, float, float, int, int]:
    """Metres, degrees, NEES, outliers found and fixes."""
    rng = np.random.default_rng(seed)
    times = np.arange(0.0, options.seconds, 1.0)
    truth = true_positions(times, rng)
    yaw = float(rng.uniform(-np.pi, np.pi))
    zone = UtmZone.around(*PLACE)
    origin = zone.forward(np.array(PLACE[:1]), np.array(PLACE[1:2]))[0]
    R = Rotation.from_euler("z", yaw).as_matrix()
    drifted = truth + DRIFT * np.cumsum(rng.normal(0.0, 1.0, truth.shape), axis=0)
    poses = np.tile(np.eye(4), (len(times), 1, 1))
    poses[:, :3, 3] = drifted
    stamps = START + (times * 1e9).astype(np.int64)

    def pose_at(seconds: float) -> Array:
        T = np.eye(4)
        T[:3, 3] = R @ truth[round(seconds)]
        return T

    def to_earth(position: Array) -> tuple[float, float, float]:
        east, north = origin + zone.scale * position[:2]
        return (*zone.inverse(east, north), PLACE[2] + float(position[2]))

    middle = 0.5 * options.seconds
    gps = SimulatedGps(
        noise=options.noise, offset=offset, offset_seconds=OFFSET_SECONDS, outliers=options.outliers,
        jump=(middle, middle + 120.0, 50.0),
    )  # fmt: skip
    fixes = list(gps.fixes(pose_at, to_earth, options.seconds, START, rng))
    found = fit_georeference(fixes, Trajectory(stamps, poses))
    centre = np.eye(4)
    centre[:3, 3] = drifted.mean(axis=0)
    expected = origin + zone.scale * (R @ truth.mean(axis=0))[:2]
    off = found.move(centre)[:2, 3] - expected
    turn = (found.yaw - yaw + np.pi) % (2.0 * np.pi) - np.pi
    x, y = (found.T_aligned_map @ centre)[:2, 3]
    J = np.array([[1.0, 0.0, 0.0, -y], [0.0, 1.0, 0.0, x], [0.0, 0.0, 0.0, 1.0]])
    C = J @ np.where(np.isfinite(found.covariance), found.covariance, 0.0) @ J.T
    error = np.append(off, turn)
    nees = float(error @ np.linalg.solve(C, error)) / 3.0
    return float(np.linalg.norm(off)), float(np.degrees(abs(turn))), nees, found.outliers, len(fixes)


def best_possible(options: argparse.Namespace, offset: float, seed: int) -> tuple[float, float]:
    """Metres and degrees that the best estimator of position and heading keeps within in 95 % of the drives."""
    rng = np.random.default_rng(seed)
    times = np.arange(0.0, options.seconds, 1.0)
    xy = true_positions(times, rng)[:, :2]
    middle = 0.5 * options.seconds
    usable = (rng.random(len(times)) >= options.outliers) & ((times < middle) | (times > middle + 120.0))
    x, y = (xy[usable] - xy.mean(axis=0)).T
    apart = np.abs(times[usable, None] - times[usable])
    C = offset**2 * np.exp(-apart / OFFSET_SECONDS) + options.noise**2 * np.eye(int(usable.sum()))
    ones, zeros = np.ones(len(x)), np.zeros(len(x))
    east, north = np.column_stack([ones, zeros, -y]), np.column_stack([zeros, ones, x])
    information = sum(J.T @ np.linalg.solve(C, J) for J in (east, north))
    variance = np.diag(np.linalg.inv(information))
    return 2.45 * float(np.sqrt(variance[:2].mean())), 1.96 * float(np.degrees(np.sqrt(variance[2])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--drives", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of each drive")
    parser.add_argument("--noise", type=float, default=1.0, help="metres, white")
    parser.add_argument("--offset", type=float, nargs="+", default=[0.1, 0.7], help="metres, slowly changing")
    parser.add_argument("--outliers", type=float, default=0.2, help="share of the fixes")
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    for offset in options.offset:
        report(options, offset)


def report(options: argparse.Namespace, offset: float) -> None:
    rows = np.array([run(options, offset, options.seed + k) for k in range(options.drives)])
    print(
        f"{options.drives} drives of {options.seconds:g} s, {options.outliers:.0%} outliers, a jump of 50 m; noise"
        f" {options.noise:g} m, slow offsets of {offset:g} m"
    )
    print(f"{'':18} {'median':>8} {'95 %':>8} {'largest':>8}")
    for name, column in (("position (m)", 0), ("heading (deg)", 1), ("NEES / 3", 2)):
        values = rows[:, column]
        print(f"{name:18} {np.median(values):8.3f} {np.percentile(values, 95):8.3f} {values.max():8.3f}")
    bound = np.mean([best_possible(options, offset, options.seed + k) for k in range(options.drives)], axis=0)
    print(f"best possible, 95 %: {bound[0]:.3f} m, {bound[1]:.3f} deg")
    print(
        f"outliers: {rows[:, 3].sum() / rows[:, 4].sum():.1%} of the fixes; mean NEES / 3 {rows[:, 2].mean():.2f}"
    )


if __name__ == "__main__":
    main()
