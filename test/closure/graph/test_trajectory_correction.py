"""Corrections of a trajectory between submaps."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure.graph.trajectory_correction import correct_trajectory


def shifted(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def test_corrections_are_interpolated_between_submaps():
    stamps = [0, 10, 15, 20, 99]
    found = correct_trajectory([10, 20], [shifted(1.0), shifted(3.0)], stamps, [np.eye(4)] * 5)
    np.testing.assert_allclose([T[0, 3] for T in found], [1.0, 1.0, 2.0, 3.0, 3.0])
