"""How far a measured height may be off: from range, incidence and the uncertainty of the pose.

The map compares a point with the surface at the point's own x and y. An error e of the point (3,) therefore counts as

    m' e,    m = (-g_x, -g_y, 1)       g: gradient of the surface there

in height. With beam direction u (unit vector), range r, standard deviations s_r(r) along the beam and s_a of its
direction, to first order

    variance = s_r^2 (m'u)^2 + r^2 s_a^2 (|m|^2 - (m'u)^2) + height_std^2

A beam that grazes the surface (m'u small) thus turns errors of direction, not of range, into errors of height. The
width of a beam counts as an error of its direction: the return may come from anywhere within it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import NoiseConfig


@dataclass(frozen=True)
class SensorModel:
    """s_r(r) = range_std + range_factor r + range_quadratic r^2 in metres; s_a = angle_std in radians."""

    range_std: float
    range_factor: float
    range_quadratic: float
    angle_std: float


PRESETS = {
    # Data sheets of 16- to 128-beam sensors state 2 to 3 cm of range accuracy, nearly independent of range, and beams
    # 2 to 4 mrad wide in full: as a spread about the middle a quarter of that, 0.5 to 1 mrad, plus 0.2 mrad of encoder.
    "spinning_lidar": SensorModel(0.02, 0.0, 0.0, 0.001),
    # Prism and MEMS scanners state 2 to 3 cm at 10 to 20 m, growing slowly, and, lacking a stiff axis, 0.05 to 0.15 deg
    # of angular error (1 sigma): the larger, 2.6 mrad.
    "solid_state_lidar": SensorModel(0.02, 0.0005, 0.0, 0.0026),
    # Triangulation: s_z = z^2 s_d / (f b). 0.2 px of disparity error, f = 530 px (720p, 100 deg), b = 12 cm: 0.0031
    # m/m^2. Half a pixel of direction: 1 mrad. For another camera set range_quadratic to s_d / (f b).
    "stereo": SensorModel(0.005, 0.0, 0.0031, 0.001),
}


def sensor_model(config: NoiseConfig) -> SensorModel:
    """The preset, with what the settings say instead of it."""
    names = [item.name for item in dataclasses.fields(SensorModel)]
    given = {name: getattr(config, name) for name in names if getattr(config, name) >= 0.0}
    return dataclasses.replace(PRESETS[config.sensor], **given)


def height_variance(beams: Array, gradient: Array | None, config: NoiseConfig) -> Array:
    """Variance (N,) of the heights of single points.

    beams: (N, 3) from the sensor to the points, in the map's frame
    gradient: (N, 2) of the surface at the points, NaN where it is not known; unknown ground is taken to be level
    """
    model = sensor_model(config)
    g = level(len(beams)) if gradient is None or not config.incidence else gradient
    parameters = (
        model.range_std,
        model.range_factor,
        model.range_quadratic,
        model.angle_std,
        config.height_std,
    )
    out = np.empty(len(beams))
    _height_variance(beams, g, parameters, out)
    return out


def pose_height_variance(beams: Array, gradient: Array | None, covariance: Array) -> Array:
    """Variance (N,) of the heights from the uncertainty of the sensor's pose: J C J', J = [m', (a x m)'].

    An error (t, w) of the pose, translation and rotation in the map's axes, moves a point at a from the sensor by
    t + w x a, and m'(w x a) = w'(a x m).
    beams: a, as in `height_variance`; gradient likewise
    covariance: (6, 6) of x, y, z and the rotations about the map's x, y, z, as in geometry_msgs/PoseWithCovariance
    """
    g = level(len(beams)) if gradient is None else gradient
    out = np.empty(len(beams))
    _pose_height_variance(beams, g, covariance, np.empty(6), out)
    return out


def ray_deviations(covariance: Array | None, config: NoiseConfig) -> tuple[float, float]:
    """Standard deviations of a ray's height at the sensor, in metres, and of its direction, in radians.

    covariance: (6, 6) of the sensor's pose as in `pose_height_variance`; None where it is not known
    """
    height, angle = config.height_std**2 + config.common_std**2, sensor_model(config).angle_std ** 2
    if covariance is not None:
        height += float(covariance[2, 2])
        angle += float(np.linalg.eigvalsh(covariance[3:5, 3:5])[-1])
    return float(np.sqrt(height)), float(np.sqrt(angle))


def level(count: int) -> Array:
    """Gradients (N, 2) of level ground: in memory of their own, since loops are compiled anew for other layouts."""
    return np.zeros((count, 2))


@compiled()
def _height_variance(beams, gradient, parameters, out):  # type: ignore[no-untyped-def]
    range_std, range_factor, range_quadratic, angle_std, height_std = parameters
    for n in range(beams.shape[0]):
        x, y, z = beams[n, 0], beams[n, 1], beams[n, 2]
        g_x, g_y = gradient[n, 0], gradient[n, 1]
        if not (np.isfinite(g_x) and np.isfinite(g_y)):
            g_x = g_y = 0.0
        r2 = x * x + y * y + z * z
        r = np.sqrt(r2)
        along = z - g_x * x - g_y * y  # r m'u
        share = along * along / r2 if r2 > 0.0 else 1.0
        across = max((1.0 + g_x * g_x + g_y * g_y) * r2 - along * along, 0.0)
        s_r = range_std + (range_factor + range_quadratic * r) * r
        out[n] = s_r * s_r * share + angle_std * angle_std * across + height_std * height_std


@compiled()
def _pose_height_variance(beams, gradient, covariance, J, out):  # type: ignore[no-untyped-def]
    """J: (6,) room for one row of the Jacobian."""
    for n in range(beams.shape[0]):
        x, y, z = beams[n, 0], beams[n, 1], beams[n, 2]
        g_x, g_y = gradient[n, 0], gradient[n, 1]
        if not (np.isfinite(g_x) and np.isfinite(g_y)):
            g_x = g_y = 0.0
        J[0], J[1], J[2] = -g_x, -g_y, 1.0
        J[3], J[4], J[5] = y + z * g_y, -z * g_x - x, y * g_x - x * g_y
        total = 0.0
        for i in range(6):
            for j in range(6):
                total += J[i] * covariance[i, j] * J[j]
        out[n] = max(total, 0.0)


@dataclass(frozen=True)
class CommonError:
    """What points have in common: the error of a pose moves all of a cloud, and their scatter does not show it.

    share: of the stated variances that stands for it, as a mean over the points
    variance: of that error itself, likewise; count: number of points
    """

    share: float = 0.0
    variance: float = 0.0
    count: int = 0

    def joined(self, other: CommonError) -> CommonError:
        """That of the points of both."""
        count = self.count + other.count
        weight = other.count / max(count, 1)
        return CommonError(
            self.share + weight * (other.share - self.share),
            self.variance + weight * (other.variance - self.variance),
            count,
        )


def shared_variance(variance: Array, patch: NDArray[np.integer]) -> Array:
    """An error that all points of a patch have in common, as variances (N,) of points that are fused as if independent.

    n points of variance r + n p average to a variance r / n + p: the common part p does not average out.
    variance: (N,) of the common error at each point; patch: (N,) which patch each point is in, from 0
    """
    shared: Array = variance * np.bincount(patch)[patch]
    return shared


def check_pose_covariance(covariance: ArrayLike | None) -> Array | None:
    """`covariance` as a symmetric (6, 6) array, None where nothing is known; ValueError where it cannot be one.

    Unknown is None or, as ROS has it, -1 in the first element.
    """
    if covariance is None:
        return None
    C = np.asarray(covariance, dtype=np.float64)
    if C.size != 36:
        raise ValueError(f"a pose covariance has 6 x 6 elements, got {C.shape}")
    C = C.reshape(6, 6)
    if not np.isfinite(C).all():
        raise ValueError("the pose covariance is not finite")
    if C[0, 0] == -1.0:
        return None
    if (C.diagonal() < 0.0).any():
        raise ValueError(f"the pose covariance has negative variances: {C.diagonal().tolist()}")
    return 0.5 * (C + C.T)
