"""What is compiled at first use, compiled before the first submap has to wait for it."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points

CELLS = 40
"""Width of the maps that are compared: small, but large enough to be comparable."""


def warm_up(config: ClosureConfig | None = None) -> None:
    """Compare two small maps of one place, from the ranking to the covariance, and one with itself."""
    config = config or ClosureConfig()
    database = ClosureDatabase(config)
    database.add("first", _bumps(0))
    database.closures(_bumps(1))
    SelfSimilarity(config).measure(
        make_registration_map(_bumps(0), config)
    )  # asked for in cases of doubt only


def _bumps(seed: int) -> GPGMap:
    """A map of uneven ground that is the same for every seed; its points and their noise are not."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, float(CELLS), (3 * CELLS**2, 2))
    wave, phase = np.random.default_rng(7).normal(size=(2, 24, 2))
    z = np.sin(0.4 * xy @ wave.T + 3.0 * phase[:, 0]).sum(axis=1)
    return gpgmap_from_points(np.column_stack([xy, 0.3 * z + rng.normal(scale=0.02, size=len(xy))]), 1.0)
