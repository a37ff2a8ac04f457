"""Peers on the pairs of closure_conditions.py: a row of its table for each that is installed."""

from __future__ import annotations

import time
from importlib.util import find_spec

import numpy as np
from closure_pairs import RIGHT_CELLS, RIGHT_YAW
from closure_peers import PEERS, small_gicp_from
from closure_terrain import OVERLAPS, Submap, middle_of, pose_error, true_pose
from numpy.typing import NDArray

from gpgmap_ros.geometry import apply

Array = NDArray[np.float64]
Rng = np.random.Generator
Pair = tuple[Submap, Submap]

PRIOR = (5.0, np.deg2rad(5.0))
"""Standard deviations of the prior that small_gicp gets: cells in x and y, and yaw."""


def run_peers(pairs: list[tuple[str, float, Pair]], seed: int) -> list[str]:
    """Right poses of each peer by overlap, and its CPU time, in a row each."""
    rng = np.random.default_rng([seed, 3])
    right: dict[str, dict[float, int]] = {}
    seconds: dict[str, list[float]] = {}
    for _, overlap, (source, target) in pairs:
        methods = dict(PEERS)
        if find_spec("small_gicp"):
            methods["small_gicp from a prior"] = small_gicp_from(displaced(source, target, rng))
        for name, method in methods.items():
            start = time.process_time()
            T = method(source.map, target.map)[0]
            seconds.setdefault(name, []).append(time.process_time() - start)
            error = pose_error(T, source, target) if T is not None else (np.inf, np.inf)
            counts = right.setdefault(name, dict.fromkeys(OVERLAPS, 0))
            counts[overlap] += error[0] < RIGHT_CELLS and error[1] < RIGHT_YAW
    return [
        f"| - {name} | | {' '.join(str(n) for n in counts.values())} | | | | | "
        f"{1e3 * np.median(seconds[name]):.0f} ms |"
        for name, counts in right.items()
    ]


def displaced(source: Submap, target: Submap, rng: Rng) -> Array:
    """The true pose, moved by an error of PRIOR about the middle of the source."""
    T = true_pose(source, target)
    there = apply(T, middle_of(source.map)[None])[0]
    move = np.eye(4)
    yaw = rng.normal(scale=PRIOR[1])
    move[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    move[:3, 3] = there - move[:3, :3] @ there
    move[:2, 3] += rng.normal(scale=PRIOR[0] * source.map.grid.resolution, size=2)
    return np.asarray(move @ T)
