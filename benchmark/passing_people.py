"""People who walk past a rover: how much of its map they spoil, and how often the surface they are held to is solved.

python benchmark/passing_people.py                              the rule as it is, two draws, 1 m/s
python benchmark/passing_people.py --new-ground inf --growth 0.1    solved again with every tenth of new points
python benchmark/passing_people.py --speed 0                    a rover that stands

Six people of half a metre walk at 1.2 m/s through what a sensor at 1.2 m sees, 6,000 points at 10 Hz over 12 s, hills
under them. Wrong: share of the known cells within 9 m whose height is off by more than 0.15 m at the end. Points of
people are held back where the ground was known to the surface (mapping/gate.py); default settings, without submaps.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.gate import InnovationGate
from gpgmap_ros.slam import MappingPipeline, mapping_pipeline

Array = NDArray[np.float64]
SECONDS, RATE, POINTS, REACH = 12.0, 10.0, 6000, 12.0
PEOPLE, PACE, SIZE = 6, 1.2, 0.5
SETTINGS = {"submap.enabled": False, "mapping.size_x": 24.0, "mapping.size_y": 24.0}


def height(x: Array, y: Array) -> Array:
    return np.asarray(0.4 * np.sin(0.3 * x) + 0.3 * np.cos(0.25 * y))


def see(robot: Array, people: Array, rng: np.random.Generator) -> Array:
    """Points (N, 3) in the world. robot: (2,); people: (K, 2)"""
    r, w = 1.0 + (REACH - 1.0) * rng.random(POINTS) ** 1.5, rng.uniform(-np.pi, np.pi, POINTS)
    x, y = robot[0] + r * np.cos(w), robot[1] + r * np.sin(w)
    parts = [np.column_stack([x, y, height(x, y) + rng.normal(0.0, 0.02, POINTS)])]
    for place in people[np.linalg.norm(people - robot, axis=1) < 10.0]:
        x, y = (place + SIZE * rng.uniform(-0.5, 0.5, (60, 2))).T
        parts.append(np.column_stack([x, y, height(x, y) + rng.uniform(0.2, 0.95, 60)]))
    return np.concatenate(parts)


def drive(seed: int, speed: float) -> None:
    rng = np.random.default_rng(seed)
    solved = count_surfaces()
    pipeline = MappingPipeline(with_settings(Config(), SETTINGS))
    cpu = time.process_time()
    start = rng.uniform([-3.0, -6.0], [3.0 + speed * SECONDS, 6.0], (PEOPLE, 2))
    heading = rng.uniform(0.0, 2.0 * np.pi, PEOPLE)
    way = PACE * np.column_stack([np.cos(heading), np.sin(heading)])
    held, T = 0, np.eye(4)
    for k in range(round(SECONDS * RATE)):
        t = k / RATE
        T[:2, 3] = speed * t, 0.0
        T[2, 3] = height(T[0, 3], T[1, 3]) + 1.2
        points = see(T[:2, 3], start + t * way, rng) - T[:3, 3]
        held += pipeline.add_cloud(points.astype(np.float32), T, round((1.0 + t) * 1e9)).held
    cpu, surfaces = time.process_time() - cpu, solved[0]
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    at = gpgmap.grid.centers
    near = gpgmap.known & (np.linalg.norm(at - T[:2, 3], axis=-1) < 9.0)
    error = np.abs(gpgmap["elevation"] - height(at[..., 0], at[..., 1]))[near]
    print(
        f"seed {seed}: {surfaces} surfaces solved, {cpu:.1f} s of CPU, {held} points held back,"
        f" {100.0 * np.mean(error > 0.15):.2f} % of {len(error)} cells wrong, RMSE {np.sqrt(np.mean(error**2)):.4f} m",
        flush=True,
    )


def count_surfaces() -> list[int]:
    """How many were solved since, in its only element."""
    solved = [0]

    class Counting(InnovationGate):
        def surface_taken(self) -> None:
            solved[0] += 1
            super().surface_taken()

    vars(mapping_pipeline)["InnovationGate"] = Counting
    return solved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--speed", type=float, default=1.0, help="of the rover, m/s")
    parser.add_argument("--new-ground", type=float, default=mapping_pipeline.NEW_GROUND)
    parser.add_argument("--growth", type=float, default=mapping_pipeline.SURFACE_GROWTH)
    options = parser.parse_args()
    mapping_pipeline.NEW_GROUND, mapping_pipeline.SURFACE_GROWTH = options.new_ground, options.growth
    for seed in options.seeds:
        drive(seed, options.speed)


if __name__ == "__main__":
    main()
