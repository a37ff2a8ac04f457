"""Data, clocks and tables that the grid benchmarks share."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PICTURES = ROOT / "docs" / "benchmarks"


@dataclass(frozen=True)
class Cost:
    """What a call costs in s: shortest and median wall time, and processor time of all threads."""

    wall: float
    median: float
    cpu: float

    def __str__(self) -> str:
        return f"{1e3 * self.wall:9.1f} ms  (median {1e3 * self.median:.1f}, processor {1e3 * self.cpu:.1f})"


def cost(call: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> Cost:
    """Time `call`, after `before`, which is not timed. A shared machine distorts processor time least."""
    walls, cpus = [], []
    for _ in range(repeats):
        before()
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(min(walls), float(np.median(walls)), min(cpus))


def run_limited(call: Callable[[], Any], limit: float) -> tuple[float, Any] | None:
    """Seconds and answer of a call in a process of its own, None if it takes longer than `limit` or fails."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        start = time.perf_counter()
        answer = call()
        sender.send((time.perf_counter() - start, answer))

    process = context.Process(target=work)
    process.start()
    sender.close()
    answer = None
    if receiver.poll(limit):
        with contextlib.suppress(EOFError):  # it failed, and has said why
            answer = receiver.recv()
    if process.is_alive() and answer is None:
        process.kill()
    process.join()
    return answer


def surface(xy: np.ndarray) -> np.ndarray:
    """A smooth terrain with relief of some decimetres."""
    x, y = xy.T
    return 0.2 * np.sin(1.3 * x) + 0.15 * np.cos(1.7 * y + x) + 0.1 * np.sin(2.3 * y - 0.7 * x)


def scan(n: int, low: float, high: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n noisy points of it in a square."""
    xy = rng.uniform(low, high, (n, 2))
    return xy, surface(xy) + 0.03 * rng.standard_normal(n)


def data_folder() -> Path | None:
    """Where the real data are, if anywhere."""
    folder = Path(os.environ.get("GPGMAP_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class Survey:
    """Real points, some of them held out.

    xy, z: to learn from; test_xy, test_z: to be judged by
    side: of the square that they lie in, from the origin, in metres
    resolution: of the cells
    """

    name: str
    xy: np.ndarray
    z: np.ndarray
    test_xy: np.ndarray
    test_z: np.ndarray
    side: float
    resolution: float


def blanca(folder: Path) -> Survey:
    """Airborne LiDAR of a gullied slope: a square of 60 m; every fifth point is held out."""
    points = np.load(folder / "als_blanca.npz")["xyz"].astype(np.float64)
    return _survey("als_blanca", points, np.array([100.0, 110.0]), 60.0, 0.5)


def norlab(folder: Path) -> Survey:
    """A standing robot's scans: the ground in a square of 10 m beside it; every fifth point is held out."""
    data = np.load(folder / "norlab_static14.npz")
    scans = np.split(data["points"].astype(np.float64), np.cumsum(data["n"])[:-1])
    points = np.vstack([p @ T[:3, :3].T + T[:3, 3] for p, T in zip(scans, data["T_map_base"], strict=True)])
    points = points[(points[:, 2] > -1.4) & (points[:, 2] < -0.4)]
    return _survey("norlab_static14", points, np.array([3.0, -5.0]), 10.0, 0.1)


def _survey(name: str, points: np.ndarray, corner: np.ndarray, side: float, resolution: float) -> Survey:
    xy = points[:, :2] - corner
    inside = ((xy > 0.0) & (xy < side)).all(1)
    xy, z = xy[inside], points[inside, 2]
    held = np.zeros(len(z), dtype=bool)
    held[np.random.default_rng(0).permutation(len(z))[: len(z) // 5]] = True
    return Survey(name, xy[~held], z[~held], xy[held], z[held], side, resolution)
