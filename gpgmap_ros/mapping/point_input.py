"""Points as callers have them: arrays, lists, and Open3D's two kinds of point cloud."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def points_array(points: Any) -> NDArray[np.float64]:
    """(N, 3) coordinates of an array-like, an open3d.geometry.PointCloud or an open3d.t.geometry.PointCloud.

    Open3D itself is not imported: who has one of its clouds has imported it.
    """
    if type(points).__module__.partition(".")[0] == "open3d":
        points = open3d_positions(points)
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"xyz must be (N, 3), got {array.shape}")
    return array


def open3d_positions(cloud: Any) -> Any:
    """Coordinates of a point cloud of Open3D; TypeError for its other geometries."""
    if hasattr(cloud, "point"):  # the tensor kind, possibly on a GPU
        if "positions" not in cloud.point:  # how an empty one looks
            return np.empty((0, 3))
        return cloud.point.positions.cpu().numpy()
    if hasattr(cloud, "points"):
        return np.asarray(cloud.points).reshape(-1, 3)
    raise TypeError(f"expected a point cloud of Open3D, got {type(cloud).__name__}: sample its points first")
