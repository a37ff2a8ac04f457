"""Other ways to register two maps, as their authors provide them, for the same table. Those not installed are left out.

Each takes two GPGMaps and returns T_target_source or None, a confidence, and whether it would be accepted. The peers
give no accepting threshold of their own for this task: `accepted` is False, and the column R@P1 compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.mapping import GPGMap

Array = NDArray[np.float64]
Answer = tuple[Array | None, float, bool, None]
NOTHING: Answer = (None, 0.0, False, None)
FAR = 10.0  # gradient variance over its lower quartile beyond which a cell counts as unknown, as for our own search


def observed(map_: GPGMap) -> NDArray[np.bool_]:
    """The cells the peers get: without them they would match extrapolated rims."""
    variance = map_["gradient_x_variance"] + map_["gradient_y_variance"]
    return map_.known & (variance < FAR * np.percentile(variance[map_.known], 25.0))


def points_of(map_: GPGMap) -> Array:
    rows, columns = np.nonzero(observed(map_))
    return np.column_stack([map_.grid.x[columns], map_.grid.y[rows], map_["elevation"][rows, columns]])


def planar(c: float, s: float, x: float, y: float) -> Array:
    T = np.eye(4)
    T[:2] = [[c, -s, 0.0, x], [s, c, 0.0, y]]
    return T


def sift(layer: str) -> Callable[[GPGMap, GPGMap], Answer]:
    """SIFT on one layer as an image, ratio test 0.8, RANSAC over rigid motions of the plane."""
    import cv2

    def features(map_: GPGMap) -> tuple[Array, Any]:
        seen = observed(map_)
        values = np.where(seen, map_[layer], np.nan)
        low, high = np.nanpercentile(values, [1.0, 99.0])
        image = np.nan_to_num(np.clip((values - low) / max(high - low, 1e-9), 0.0, 1.0), nan=0.0)
        scale = 4
        image = cv2.resize(
            (255 * image).astype(np.uint8), None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC
        )
        mask = cv2.resize(seen.astype(np.uint8), None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
        keys, descriptors = cv2.SIFT_create(contrastThreshold=0.01).detectAndCompute(image, mask)
        h = map_.grid.resolution
        xy = np.array([k.pt for k in keys]).reshape(-1, 2) + 0.5
        return xy / scale * h + np.array(map_.grid.origin), descriptors

    def run(source: GPGMap, target: GPGMap) -> Answer:
        (a, da), (b, db) = features(source), features(target)
        if len(a) < 3 or len(b) < 3:
            return NOTHING
        pairs = [
            (m[0].queryIdx, m[0].trainIdx)
            for m in cv2.BFMatcher().knnMatch(da, db, k=2)
            if len(m) == 2 and m[0].distance < 0.8 * m[1].distance
        ]
        if len(pairs) < 3:
            return NOTHING
        p, q = a[[i for i, _ in pairs]], b[[j for _, j in pairs]]
        rng = np.random.default_rng(0)
        h = source.grid.resolution
        best: tuple[int, Array | None] = (0, None)
        for _ in range(1000):
            i, j = rng.choice(len(p), 2, replace=False)
            T = rigid(p[[i, j]], q[[i, j]])
            inside = np.hypot(*(p @ T[:2, :2].T + T[:2, 3] - q).T) < 1.5 * h
            if inside.sum() > best[0]:
                best = (int(inside.sum()), rigid(p[inside], q[inside]))
        return best[1], float(best[0]), False, None

    return run


def rigid(p: Array, q: Array) -> Array:
    """Least squares rotation and shift of the plane from p to q."""
    a, b = p - p.mean(0), q - q.mean(0)
    c, s = float(np.sum(a * b)), float(np.sum(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]))
    n = max(np.hypot(c, s), 1e-12)
    c, s = c / n, s / n
    x, y = q.mean(0) - np.array([[c, -s], [s, c]]) @ p.mean(0)
    return planar(c, s, float(x), float(y))


def kiss_matcher(source: GPGMap, target: GPGMap) -> Answer:
    import kiss_matcher as km

    matcher = km.KISSMatcher(km.KISSMatcherConfig(source.grid.resolution))
    found = matcher.estimate(points_of(source).astype(np.float32), points_of(target).astype(np.float32))
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = found.rotation, found.translation
    if not found.valid:
        return NOTHING
    return T, float(matcher.get_num_final_inliers()), False, None


def map_closures(source: GPGMap, target: GPGMap) -> Answer:
    from map_closures.config import MapClosuresConfig
    from map_closures.map_closures import MapClosures

    h = source.grid.resolution
    closer = MapClosures(MapClosuresConfig(density_map_resolution=h / 2.0))
    closer.get_best_closure(0, points_of(target))
    found = closer.get_best_closure(1000, points_of(source))
    if found is None or found.number_of_inliers == 0:
        return NOTHING
    return np.linalg.inv(np.asarray(found.pose)), float(found.number_of_inliers), False, None


def fpfh_ransac_icp(source: GPGMap, target: GPGMap) -> Answer:
    import open3d as o3d

    h = source.grid.resolution
    clouds, features = [], []
    for map_ in (source, target):
        cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points_of(map_)))
        cloud.estimate_normals(o3d.geometry.KDTreeSearchParamHybrid(3.0 * h, 30))
        cloud.orient_normals_to_align_with_direction()
        clouds.append(cloud)
        features.append(
            o3d.pipelines.registration.compute_fpfh_feature(
                cloud, o3d.geometry.KDTreeSearchParamHybrid(8.0 * h, 200)
            )
        )
    registration = o3d.pipelines.registration
    o3d.utility.random.seed(0)
    rough = registration.registration_ransac_based_on_feature_matching(
        *clouds,
        *features,
        True,
        1.5 * h,
        registration.TransformationEstimationPointToPoint(False),
        3,
        [registration.CorrespondenceCheckerBasedOnDistance(1.5 * h)],
        registration.RANSACConvergenceCriteria(50000, 0.999),
    )
    fine = registration.registration_icp(
        *clouds, 1.5 * h, rough.transformation, registration.TransformationEstimationPointToPlane()
    )
    return np.asarray(fine.transformation), float(fine.fitness), False, None


def small_gicp_from(T_prior: Array) -> Callable[[GPGMap, GPGMap], Answer]:
    """GICP from a pose that is roughly known, as SLAM with bathymetric maps does."""
    import small_gicp

    def run(source: GPGMap, target: GPGMap) -> Answer:
        h = source.grid.resolution
        found = small_gicp.align(
            points_of(target), points_of(source), T_prior, registration_type="GICP",
            downsampling_resolution=0.5 * h, max_correspondence_distance=6.0 * h, num_threads=1,
        )  # fmt: skip
        if not found.converged:
            return NOTHING
        return np.asarray(found.T_target_source), float(found.num_inliers), False, None

    return run


def installed() -> dict[str, Callable[[GPGMap, GPGMap], Answer]]:
    found: dict[str, Callable[[GPGMap, GPGMap], Answer]] = {}
    if find_spec("cv2"):
        found["SIFT gradient"] = sift("gradient_magnitude")
        found["SIFT elevation"] = sift("elevation")
    if find_spec("kiss_matcher"):
        found["kiss-matcher"] = kiss_matcher
    if find_spec("map_closures"):
        found["map-closures"] = map_closures
    if find_spec("open3d"):
        found["FPFH+RANSAC+ICP"] = fpfh_ransac_icp
    return found


PEERS = installed()
