"""Do closures agree with each other? A wrong one may look right alone; two wrong ones seldom tell the same story.

Two closures and the odometry between their ends form a loop that must come back to where it began:

    E = T_a1_b1  T_b1_b2  T_a2_b2^-1  T_a1_a2^-1  = identity,     d^2 = e' S^-1 e ~ chi-square(6),

with e the error of E and S the sum of the covariances around the loop. The largest set in which every two agree is kept
(Mangelson et al., 2018), found greedily and the same way every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from gpgmap_ros.geometry import inverse

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Closure:
    """A registration between two named submaps.

    T_target_source: (4, 4); covariance: (6, 6) as of a Registration
    """

    source: str
    target: str
    T_target_source: Array
    covariance: Array


@dataclass(frozen=True)
class Drift:
    """How odometry errs: variances grow with the path.

    position_std: metres per square root of metre; rotation_std: radians per square root of metre
    """

    position_std: float = 0.05
    rotation_std: float = 0.01

    def covariance(self, path: float) -> Array:
        """(6, 6) after `path` metres."""
        lateral = self.rotation_std**2 * path**3 / 3.0  # a random turn on the way moves the end sideways
        position = self.position_std**2 * path + lateral
        rotation = self.rotation_std**2 * path
        return np.diag([position] * 3 + [rotation] * 3)


def consistent(
    closures: Sequence[Closure],
    poses: Mapping[str, Array],
    distances: Mapping[str, float],
    drift: Drift | None = None,
    probability: float = 0.999,
) -> list[int]:
    """Indices of the largest set of closures that agree in pairs, ascending.

    poses: T_map_submap (4, 4) by odometry; distances: metres driven until each submap; drift: of the odometry
    probability: of the chi-square test of a pair
    """
    drift = drift or Drift()
    count = len(closures)
    limit = float(chi2.ppf(probability, 6))
    agree = np.eye(count, dtype=bool)
    for i in range(count):
        for j in range(i):
            agree[i, j] = agree[j, i] = (
                loop_distance(closures[i], closures[j], poses, distances, drift) < limit
            )
    best: list[int] = []
    # From each closure, add what agrees with all so far, the one with most friends first.
    for start in range(count):
        chosen, allowed = [start], agree[start].copy()
        allowed[start] = False
        while allowed.any():
            friends = np.where(allowed, (agree & allowed).sum(1), -1)
            chosen.append(int(np.argmax(friends)))
            allowed &= agree[chosen[-1]]
            allowed[chosen[-1]] = False
        if len(chosen) > len(best):
            best = chosen
    return sorted(best)


def loop_distance(
    a: Closure, b: Closure, poses: Mapping[str, Array], distances: Mapping[str, float], drift: Drift
) -> float:
    """d^2 of the loop through two closures and the odometry between their ends."""
    T_sources = inverse(poses[a.source]) @ poses[b.source]
    T_targets = inverse(poses[a.target]) @ poses[b.target]
    # Two ways from a's target to b's source: through a and along the sources, along the targets and through b.
    one = a.T_target_source @ T_sources
    other = T_targets @ b.T_target_source
    S = moved(a.covariance, one[:3, 3] - a.T_target_source[:3, 3])
    S = S + turned(drift.covariance(abs(distances[a.source] - distances[b.source])), a.T_target_source)
    S = S + moved(
        drift.covariance(abs(distances[a.target] - distances[b.target])), other[:3, 3] - T_targets[:3, 3]
    )
    S = S + turned(b.covariance, T_targets)
    e = np.concatenate([one[:3, 3] - other[:3, 3], rotation_vector(one[:3, :3] @ other[:3, :3].T)])
    return float(e @ np.linalg.solve(S, e))


def moved(covariance: Array, lever: Array) -> Array:
    """Covariance of a point at `lever` from the one it was given for, along the same axes."""
    x, y, z = lever
    M = np.eye(6)
    M[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    return M @ covariance @ M.T


def turned(covariance: Array, T: Array) -> Array:
    """Covariance along the axes into which T turns."""
    M = np.kron(np.eye(2), T[:3, :3])
    return M @ covariance @ M.T


def rotation_vector(R: Array) -> Array:
    return np.asarray(Rotation.from_matrix(R).as_rotvec())
