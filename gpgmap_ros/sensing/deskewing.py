"""Points of a moving sensor, moved to where the sensor would have seen them at the stamp of the cloud.

The sensor's motion is a chain of poses T_stamp_t at some times t around the stamp; between two of them it moves with
constant twist (v, w), so that after the fraction f of a step a point p of the sensor's frame is at

    exp(f [v, w]) p = R(f w) p + f V(f w) v,      V(w) = I + (1 - cos |w|)/|w|^2 [w] + (|w| - sin |w|)/|w|^3 [w]^2.

Before the first and after the last pose the twist of the nearest step goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.arrays import Array


@dataclass(frozen=True)
class Motion:
    """The sensor's motion around a stamp.

    times: (K,) seconds after the stamp, growing, K >= 2
    poses: (K, 4, 4) T_stamp_t, the sensor at each time in the sensor's frame at the stamp
    """

    times: Array = field(repr=False)
    poses: Array = field(repr=False)

    def __post_init__(self) -> None:
        if self.times.ndim != 1 or len(self.times) < 2 or self.poses.shape != (len(self.times), 4, 4):
            raise ValueError(
                f"a motion needs two or more poses: got times {self.times.shape}, poses {self.poses.shape}"
            )
        if not (np.diff(self.times) > 0.0).all():
            raise ValueError("the times of a motion must grow")

    @staticmethod
    def constant(velocity: Array, angular_velocity: Array, duration: float) -> Motion:
        """Constant twist in the sensor's own frame: metres and radians per second."""
        times = np.array([-duration, 0.0, duration])
        poses = np.stack([_exp(velocity * t, angular_velocity * t) for t in times])
        return Motion(times, poses)

    def pose_at(self, seconds: float) -> Array:
        """(4, 4) T_stamp_t at a time after the stamp."""
        k = self._step(seconds)
        v, w = _log(np.linalg.inv(self.poses[k]) @ self.poses[k + 1])
        share = (seconds - self.times[k]) / (self.times[k + 1] - self.times[k])
        return np.asarray(self.poses[k] @ _exp(share * v, share * w))

    def _step(self, seconds: float) -> int:
        return int(np.clip(np.searchsorted(self.times, seconds, side="right") - 1, 0, len(self.times) - 2))


def deskew(points: Array, seconds: Array, motion: Motion) -> Array:
    """Move points (N, 3), each measured at its own time (N,) after the stamp, into the sensor's frame at the stamp.

    Where a point without a time (NaN) was is not known: its coordinates are NaN.
    """
    step = np.clip(np.searchsorted(motion.times, seconds, side="right") - 1, 0, len(motion.times) - 2)
    out = np.array(points, dtype=np.float64)
    timed = np.isfinite(seconds)
    for k in np.unique(step[timed]):
        chosen = timed & (step == k)
        begin, end = motion.times[k], motion.times[k + 1]
        v, w = _log(np.linalg.inv(motion.poses[k]) @ motion.poses[k + 1])
        moved = _move(out[chosen], (seconds[chosen] - begin) / (end - begin), v, w)
        out[chosen] = moved @ motion.poses[k][:3, :3].T + motion.poses[k][:3, 3]
    out[~timed] = np.nan
    return out


def _move(points: Array, fraction: Array, v: Array, w: Array) -> Array:
    """exp(f [v, w]) p for points (N, 3) and fractions (N,) of a twist."""
    speed = float(np.linalg.norm(w))
    if speed < 1e-12:
        return points + fraction[:, None] * v
    axis, angle = w / speed, (fraction * speed)[:, None]
    sin, cos = np.sin(angle), np.cos(angle)
    along = (points @ axis)[:, None] * axis
    rotated = along + cos * (points - along) + sin * np.cross(axis, points)
    # f V(f w) v with the powers of [w] written as products with the axis
    v_along = (v @ axis) * axis
    across = v - v_along
    return (
        rotated + fraction[:, None] * v_along + (sin * across + (1.0 - cos) * np.cross(axis, across)) / speed
    )


def _exp(v: Array, w: Array) -> Array:
    """(4, 4) transform of the twist (v, w)."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(w).as_matrix()
    T[:3, 3] = _move(np.zeros((1, 3)), np.ones(1), v, w)[0]
    return T


def _log(T: Array) -> tuple[Array, Array]:
    """Twist (v, w) of a transform (4, 4)."""
    w = Rotation.from_matrix(T[:3, :3]).as_rotvec()
    columns = [_move(np.zeros((1, 3)), np.ones(1), unit, w)[0] for unit in np.eye(3)]
    return np.linalg.solve(np.stack(columns, axis=1), T[:3, 3]), w
