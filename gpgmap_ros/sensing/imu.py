"""Rotation and vertical by an IMU: the gyroscope is integrated, the accelerometer holds the vertical (complementary).

Rates, less their bias, are integrated to rotations R_0_t against the first sample. In that frame the vertical stands
still but for the drift of the gyroscope, so the filter has one direction as its state, with one variance:

    standing still    the mean acceleration is the vertical, the mean rate is the bias
    moving            the mean acceleration of half a second is the vertical and the robot's own acceleration; it counts
                      the less the more its length differs from gravity; the bias is what turns that are known
                      otherwise, as by registered clouds, differ by on average, until it is seen standing still

The stated uncertainty has the bias of accelerometers in it, which no filter can see.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.arrays import Array
from gpgmap_ros.sensing.messages import ImuMeasurement
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

GRAVITY: Final = 9.81
"""m/s^2."""
WINDOW: Final = 0.5
"""Seconds over which accelerations are averaged."""
MAX_GAP: Final = 0.1
"""Seconds between two samples across which rates are not integrated."""
SILENT: Final = 1.0
"""Seconds behind a cloud after which an IMU is taken to be silent."""
STILL_RATE, STILL_RATE_STD, STILL_ACCELERATION_STD = 0.05, 0.02, 0.3
"""rad/s, rad/s, m/s^2: a sensor that turns and shakes less than this within a window stands still."""
MAX_RATE, MAX_ACCELERATION = 70.0, 400.0
"""rad/s and m/s^2 that no IMU of a robot measures."""
ACCELEROMETER_BIAS: Final = 0.1
"""m/s^2: standard deviation of the bias of an uncalibrated accelerometer; 0.6 degrees of the vertical."""
MOVING_STD: Final = 0.15
"""Radians by which the mean acceleration of a window differs from the vertical while the robot moves. Accelerations
last for some windows, which is part of it."""
DRIFT_BEFORE, DRIFT_AFTER = 3e-5, 1e-6
"""rad^2/s that the vertical loses by the gyroscope, before and after its bias was seen standing still."""

ENOUGH_TURNS, MOST_TURNS = 20, 200
"""Known turns from which on they give the bias, and over how many it is averaged then: it changes with temperature."""
MAX_BIAS: Final = 0.1
"""rad/s by which no gyroscope is off: a known turn that differs by more is wrong itself."""

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True)
class Vertical:
    """up: (3,) unit vector in the axes of the IMU; std: of it about each horizontal axis, radians
    still: the sensor has stood still since the samples began without a gap"""

    up: Array = field(repr=False)
    std: float
    still: bool


@dataclass
class _Chain:
    """Samples without a gap.

    rate: rad/s at the last of them
    up, variance: of the vertical in the frame of the first sample; None before the first window
    biases: that rates were integrated with, and the stamps of the samples after which each was used
    """

    stamps: list[int] = field(default_factory=list)
    turns: list[Quaternion] = field(default_factory=list)  # R_0_t as x, y, z, w
    rate: Vector = (0.0, 0.0, 0.0)
    up: Array | None = None
    variance: float = 1.0
    seen_still: bool = False
    biases: list[tuple[int, Vector]] = field(default_factory=list)


class Imu:
    """Samples of one IMU, from one thread, asked by another. horizon: seconds that are kept

    frame_id: of the samples, empty before the first; gaps: how many there were; bias: of the rates, rad/s
    in_g: its accelerations are in units of gravity, as some drivers publish them
    """

    def __init__(self, horizon: float) -> None:
        self._horizon, self._lock = round(horizon * NANOSECONDS), threading.Lock()
        self.frame_id, self.topic = "", ""
        self.samples = self.gaps = 0
        self.in_g = False
        self.clear()

    def clear(self) -> None:
        """Forget all samples, as after a jump back in time."""
        with self._lock:
            self._chain = _Chain()
            self._window: list[tuple[Vector, Vector]] = []  # rates; accelerations in the frame of the chain
            self._window_began = 0
            self.bias: Vector = (0.0, 0.0, 0.0)
            self._mean_bias, self._known_turns = np.zeros(3), 0

    def insert(self, sample: ImuMeasurement) -> None:
        """Take in the next sample. ValueError for one that no IMU measures; one that is older is left out.

        A second IMU, by its frame, is left out as well.
        """
        w, a = sample.angular_velocity, sample.acceleration
        if (
            not all(map(math.isfinite, (*w, *a)))
            or math.hypot(*w) > MAX_RATE
            or math.hypot(*a) > MAX_ACCELERATION
        ):
            raise ValueError(f"rates {w} rad/s and accelerations {a} m/s^2 are not what an IMU measures")
        with self._lock:
            if self.frame_id and sample.frame_id != self.frame_id:
                return
            self.frame_id, self.topic = sample.frame_id, sample.topic
            self._append(sample)

    def _append(self, sample: ImuMeasurement) -> None:
        chain = self._chain
        if chain.stamps:
            seconds = (sample.stamp - chain.stamps[-1]) / NANOSECONDS
            if -SILENT < seconds <= 0.0:
                return
            if not 0.0 < seconds <= MAX_GAP:
                self.gaps += 1
                chain = self._chain = _Chain()
                self._window = []
        self.samples += 1
        if not chain.stamps:
            chain.stamps, chain.turns = [sample.stamp], [(0.0, 0.0, 0.0, 1.0)]
            chain.rate, self._window_began = sample.angular_velocity, sample.stamp
            chain.biases = [(sample.stamp, self.bias)]
            return
        seconds = (sample.stamp - chain.stamps[-1]) / NANOSECONDS
        # the mean of both ends: the rate of one end would be late by half a sample
        x, y, z = (
            (0.5 * (before + now) - bias) * seconds
            for before, now, bias in zip(chain.rate, sample.angular_velocity, self.bias, strict=True)
        )
        turn = multiply(chain.turns[-1], small_turn(x, y, z))
        chain.rate = sample.angular_velocity
        chain.stamps.append(sample.stamp)
        chain.turns.append(turn)
        self._window.append((sample.angular_velocity, rotate(turn, sample.acceleration)))
        if sample.stamp - self._window_began >= WINDOW * NANOSECONDS:
            self._end_window(chain, (sample.stamp - self._window_began) / NANOSECONDS)
            self._window, self._window_began = [], sample.stamp
        if chain.stamps[-1] - chain.stamps[0] > 2 * self._horizon:
            keep = bisect_left(chain.stamps, chain.stamps[-1] - self._horizon)
            chain.stamps, chain.turns = chain.stamps[keep:], chain.turns[keep:]
            old = sum(stamp <= chain.stamps[0] for stamp, _ in chain.biases[1:])
            chain.biases = chain.biases[old:]

    def _end_window(self, chain: _Chain, seconds: float) -> None:
        """Correct vertical and bias by the samples of half a second."""
        rates, forces = (np.array([sample[k] for sample in self._window]) for k in range(2))
        mean_rate, force = rates.mean(axis=0), forces.mean(axis=0)
        size = float(np.linalg.norm(force))
        if chain.up is None:
            self.in_g = 0.8 < size < 1.2
        g = 1.0 if self.in_g else GRAVITY
        scatter = float(np.sqrt(forces.var(axis=0).sum())) * GRAVITY / g
        still = (
            float(np.linalg.norm(mean_rate)) < STILL_RATE
            and float(np.sqrt(rates.var(axis=0).sum())) < STILL_RATE_STD
            and scatter < STILL_ACCELERATION_STD
            and abs(size / g - 1.0) < 0.05
        )
        if size < 0.1 * g:
            return  # free fall, or an accelerometer that gives nothing
        noise = (
            (scatter / GRAVITY) ** 2 / len(forces) if still else MOVING_STD**2 + (3.0 * (size / g - 1.0)) ** 2
        )
        if still:
            share = 0.3 if chain.seen_still else 1.0
            self._set_bias(np.array(self.bias) + share * (mean_rate - self.bias))
        if chain.up is None:
            chain.up, chain.variance, chain.seen_still = force / size, noise, still
            return
        chain.variance += seconds * (DRIFT_AFTER if chain.seen_still else DRIFT_BEFORE)
        gain = chain.variance / (chain.variance + noise)
        up = chain.up + gain * (force / size - chain.up)
        chain.up, chain.variance = up / np.linalg.norm(up), (1.0 - gain) * chain.variance
        chain.seen_still = chain.seen_still or still

    def learn_bias(self, begin: int, end: int, R_begin_end: Array) -> None:
        """Take in a turn (3, 3) between two stamps, in the axes of the IMU, that is known otherwise.

        The bias is what the rates differ by from such turns on average. Standing still says it better, and ends this.
        """
        with self._lock:
            chain = self._chain
            turns = [self._turn_at(begin), self._turn_at(end)]
            seconds = (end - begin) / NANOSECONDS
            if chain.seen_still or seconds <= 0.0 or turns[0] is None or turns[1] is None:
                return
            found = Rotation.from_quat(turns[0]).inv() * Rotation.from_quat(turns[1])
            excess = (Rotation.from_matrix(R_begin_end).inv() * found).as_rotvec() / seconds
            used = [bias for stamp, bias in chain.biases if stamp <= begin] or [chain.biases[0][1]]
            bias = excess + used[-1]
            if np.linalg.norm(bias) > MAX_BIAS:
                return
            self._known_turns += 1
            self._mean_bias += (bias - self._mean_bias) / min(self._known_turns, MOST_TURNS)
            if self._known_turns >= ENOUGH_TURNS:
                self._set_bias(self._mean_bias)

    def _set_bias(self, bias: Array) -> None:
        """For the samples that come."""
        x, y, z = bias.tolist()
        self.bias = (x, y, z)
        self._chain.biases.append((self._chain.stamps[-1], self.bias))

    # ------------------------------------------------ what is known

    @property
    def heard(self) -> bool:
        return bool(self._chain.stamps)

    @property
    def is_starting(self) -> bool:
        """Whether samples come, but have not come for long enough to say where up is."""
        with self._lock:
            stamps = self._chain.stamps
            return (
                bool(stamps) and self._chain.up is None and stamps[-1] - stamps[0] < 4 * WINDOW * NANOSECONDS
            )

    @property
    def newest(self) -> int | None:
        """Stamp of the last sample; None before the first."""
        with self._lock:
            return self._chain.stamps[-1] if self._chain.stamps else None

    def is_silent_at(self, stamp: int) -> bool:
        """Whether the samples end so long before a stamp that none is to be waited for."""
        newest = self.newest
        return newest is None or stamp - newest > SILENT * NANOSECONDS

    def turns(self, begin: int, stamps: Sequence[int]) -> Array | None:
        """(K, 3, 3) R_begin_t at the stamps, in the axes of the IMU; None where samples are missing."""
        with self._lock:
            quaternions = [self._turn_at(stamp) for stamp in (begin, *stamps)]
        if any(item is None for item in quaternions):
            return None
        R = Rotation.from_quat(np.array(quaternions)).as_matrix()
        return np.asarray(R[0].T @ R[1:])

    def vertical(self, stamp: int) -> Vertical | None:
        """Where up is at a stamp; None before the first half second, and where samples are missing."""
        with self._lock:
            chain, turn = self._chain, self._turn_at(stamp)
            if chain.up is None or turn is None:
                return None
            std = math.sqrt(chain.variance + (ACCELEROMETER_BIAS / GRAVITY) ** 2)
            return Vertical(Rotation.from_quat(turn).as_matrix().T @ chain.up, std, chain.seen_still)

    def _turn_at(self, stamp: int) -> Quaternion | None:
        """R_0_t; past the ends for one sample only."""
        stamps, turns = self._chain.stamps, self._chain.turns
        if len(stamps) < 2:
            return None
        after = min(max(bisect_left(stamps, stamp), 1), len(stamps) - 1)
        share = (stamp - stamps[after - 1]) / (stamps[after] - stamps[after - 1])
        if not -1.0 <= share <= 2.0:
            return None
        a, b = turns[after - 1], turns[after]
        # between two samples the turn is small: a straight line, back to unit length
        q = [x + share * (y - x) for x, y in zip(a, b, strict=True)]
        size = math.sqrt(sum(value * value for value in q))
        return (q[0] / size, q[1] / size, q[2] / size, q[3] / size)


# Plain numbers: some hundred samples a second come through here, and arrays of three cost ten times as much.


def small_turn(x: float, y: float, z: float) -> Quaternion:
    """Quaternion (x, y, z, w) of a rotation vector."""
    angle = math.sqrt(x * x + y * y + z * z)
    scale = 0.5 - angle * angle / 48.0 if angle < 1e-3 else math.sin(0.5 * angle) / angle
    return (scale * x, scale * y, scale * z, math.cos(0.5 * angle))


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """a b, of unit length."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    x = aw * bx + ax * bw + ay * bz - az * by
    y = aw * by - ax * bz + ay * bw + az * bx
    z = aw * bz + ax * by - ay * bx + az * bw
    w = aw * bw - ax * bx - ay * by - az * bz
    size = math.sqrt(x * x + y * y + z * z + w * w)
    return (x / size, y / size, z / size, w / size)


def rotate(q: Quaternion, v: Vector) -> Vector:
    """R(q) v = v + 2 q_v x (q_v x v + w v)."""
    x, y, z, w = q
    cx, cy, cz = (
        y * v[2] - z * v[1] + w * v[0],
        z * v[0] - x * v[2] + w * v[1],
        x * v[1] - y * v[0] + w * v[2],
    )
    return (v[0] + 2.0 * (y * cz - z * cy), v[1] + 2.0 * (z * cx - x * cz), v[2] + 2.0 * (x * cy - y * cx))
