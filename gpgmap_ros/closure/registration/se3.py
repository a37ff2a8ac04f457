"""A registration refined in all six degrees of freedom by point-to-plane ICP or GICP, for who wants that.

Our own fit (refinement.py) is over six degrees of freedom too, but heights are compared along z, and roll and pitch are
held by a prior because submaps are gravity-aligned. On steep ground seen from two sides, or where gravity is known
badly, distances along the normals and no prior may be better. This needs small_gicp (Koide, 2024), and our pose to
start from: alone it would stay in the next best valley.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.types import Registration
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import GPGMap

METHODS = {"gicp": "GICP", "point_to_plane": "PLANE_ICP"}
REACH = 2.0
"""Cells: points farther apart do not correspond."""
MAX_MOVE = 1.0
"""Cells by which the middle of the source may move: our pose is better than that, so more is a slide."""


class PointRegistrationMissing(ImportError):
    """small_gicp is not installed."""


def refine_se3(
    found: Registration,
    source: GPGMap,
    target: GPGMap,
    method: str = "gicp",
    config: ClosureConfig | None = None,
) -> Registration:
    """`found` with its pose refined on the surfaces' points; `found` itself, and why, where that slides away.

    found: an accepted registration of source in target; method: "gicp" or "point_to_plane"
    The covariance stays: residuals between the surfaces are what they were, and a fit of points counts correlated
    errors as independent.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got '{method}'")
    if not found.accepted:
        raise ValueError(f"there is no registration to refine: {found.reason}")
    config = config or ClosureConfig()
    small_gicp = load_small_gicp()
    surfaces = [make_registration_map(map_, config) for map_ in (source, target)]
    clouds, trees = [], []
    for surface in surfaces:
        cloud = small_gicp.PointCloud(map_points(surface) - surfaces[1].middle * (surface is surfaces[1]))
        tree = small_gicp.KdTree(cloud)
        small_gicp.estimate_normals_covariances(cloud, tree, num_neighbors=12)
        clouds.append(cloud)
        trees.append(tree)
    # Far from the origin single steps lose precision: the target is moved to its middle, and so is the guess.
    offset = np.eye(4)
    offset[:3, 3] = -surfaces[1].middle
    result = small_gicp.align(
        clouds[1],
        clouds[0],
        trees[1],
        init_T_target_source=offset @ found.T_target_source,
        registration_type=METHODS[method],
        max_correspondence_distance=REACH * surfaces[1].resolution,
        num_threads=config.threads,
    )
    offset[:3, 3] *= -1.0
    T = offset @ np.asarray(result.T_target_source)
    T[:3, :3] = Rotation.from_matrix(T[:3, :3]).as_matrix()
    middle = surfaces[0].middle[None]
    moved = float(np.linalg.norm(apply(T, middle) - apply(found.T_target_source, middle)))
    if not result.converged or moved > MAX_MOVE * surfaces[1].resolution:
        why = "did not converge" if not result.converged else f"slid away by {moved:.2f} m"
        return dataclasses.replace(found, reason=f"{found.reason}; {method} {why} and was not taken")
    return dataclasses.replace(found, T_target_source=T, reason=f"{found.reason}; refined by {method}")


def map_points(surface: RegistrationMap) -> Array:
    """(N, 3) the trusted cells, in metres in the map's frame."""
    rows, columns = np.nonzero(surface.weight > 0.0)
    x, y = surface.origin
    h = surface.resolution
    return np.column_stack([x + h * columns, y + h * rows, surface.base + h * surface.height[rows, columns]])


def load_small_gicp() -> Any:
    try:
        import small_gicp  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise PointRegistrationMissing(
            "refinement on points needs small_gicp: pip install 'small_gicp>=1.0'"
        ) from error
    return small_gicp
