"""How long does the pose graph take to solve, by our own solver and by GTSAM?

python benchmark/pose_graph.py [--poses 2000] [--closures 500] [--repeat 3]

Laps of a ring with drift: closures join each lap with earlier ones, or any two submaps at random, which is the hardest
case for an elimination. One closure in fifty is wrong. The shortest of some repetitions counts, both solvers in turns;
covariances are those of all poses, in seconds of processor time.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import Drift, PoseConstraint, PoseGraph, Solution
from gpgmap_ros.geometry import inverse

Array = NDArray[np.float64]

LAP, STEP = 200, 5.0
ODOMETRY = Drift(0.05, 0.003).covariance(STEP)
CLOSURE = np.diag([0.05**2] * 3 + [0.003**2] * 3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--poses", type=int, default=2000)
    parser.add_argument("--closures", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    solvers = ["sparse"]
    if importlib.util.find_spec("gtsam") is not None:
        solvers.append("gtsam")
    else:
        print("GTSAM is not installed: it is left out")
    print(
        "closures  solver  solve (s)  processor (s)  one more (s)  covariances (s)      cost  outliers",
        flush=True,
    )
    for at_random in (False, True):
        graphs = {name: made(name, args.poses, args.closures, at_random) for name in solvers}
        found: dict[str, Solution] = {}
        wall, processor = dict.fromkeys(solvers, np.inf), dict.fromkeys(solvers, np.inf)
        for _ in range(args.repeat):
            for name, graph in graphs.items():
                start, used = time.perf_counter(), time.process_time()
                found[name] = graph.solve()
                wall[name] = min(wall[name], time.perf_counter() - start)
                processor[name] = min(processor[name], time.process_time() - used)
        for name, graph in graphs.items():
            used = time.process_time()
            graph.covariances(found[name].poses)
            took = time.process_time() - used
            # the same closure once more, as a new one that agrees: what a submap of a long drive costs
            graph.add_closure(next(iter(reversed(graph.closures.values()))))
            used = time.process_time()
            graph.solve(found[name].poses)
            more = time.process_time() - used
            print(
                f"{'any two' if at_random else 'laps':9s}{name:>7s}{wall[name]:11.2f}{processor[name]:15.2f}"
                f"{more:14.2f}{took:17.2f}{found[name].error:10.1f}{len(found[name].outliers):10d}",
                flush=True,
            )
        if len(found) == 2:
            one, other = (found[name].poses for name in solvers)
            apart = max(float(np.linalg.norm((one[k] - other[k])[:3, 3])) for k in one)
            print(f"         the solutions differ by at most {1e3 * apart:.2f} mm")
    return 0


def made(solver: str, poses: int, closures: int, at_random: bool) -> PoseGraph:
    rng = np.random.default_rng(0)
    radius = LAP * STEP / (2.0 * np.pi)
    angles = 2.0 * np.pi * np.arange(poses) / LAP
    truth = [pose(radius * np.cos(a), radius * np.sin(a), a + np.pi / 2.0) for a in angles]
    graph = PoseGraph(solver)
    graph.add_first(0, truth[0])
    for k in range(1, poses):
        step = erring(inverse(truth[k - 1]) @ truth[k], ODOMETRY, rng)
        graph.add_odometry(k - 1, k, step, ODOMETRY)
    for k in range(closures):
        if at_random:
            a, b = sorted(rng.choice(poses, 2, replace=False).tolist())
        else:
            b = int(rng.integers(LAP, poses))
            a = b - LAP * int(rng.integers(1, b // LAP + 1))
        T = erring(inverse(truth[a]) @ truth[b], CLOSURE, rng)
        if k % 50 == 0:
            T[:2, 3] += rng.normal(scale=20.0, size=2)
        graph.add_closure(PoseConstraint(b, a, T, CLOSURE))
    return graph


def pose(x: float, y: float, yaw: float) -> Array:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T[:2, 3] = x, y
    return T


def erring(T: Array, covariance: Array, rng: np.random.Generator) -> Array:
    e = rng.multivariate_normal(np.zeros(6), covariance)
    out = T.copy()
    out[:3, :3] = Rotation.from_rotvec(e[3:]).as_matrix() @ T[:3, :3]
    out[:3, 3] += e[:3]
    return out


if __name__ == "__main__":
    sys.exit(main())
