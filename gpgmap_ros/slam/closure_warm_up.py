"""What is compiled at first use, compiled before the first submap has to wait for it."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.retrieval.kept_search import KeptSearch
from gpgmap_ros.closure.retrieval.ranking import LEVELS
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points

CELLS = 40
"""Width of the maps that are compared: small, but large enough to be comparable."""


def warm_up(config: ClosureConfig | None = None) -> None:
    """Compare two small maps of one place, from the ranking to the covariance, and one with itself."""
    config = config or ClosureConfig()
    database = ClosureDatabase(config)
    database.add("first", _bumps(0))
    database.closures(_bumps(1))
    first, second = (make_registration_map(_bumps(seed), config) for seed in range(2))
    # Not yet needed by two maps: asked for in cases of doubt, and of large databases.
    SelfSimilarity(config).measure(first)
    level = LEVELS[-1]
    search = KeptSearch(config, level.cells, level.yaw_step, 2)
    search.poses(first, {"first": first, "second": second}, {}, level.poses, max_targets=1)


def _bumps(seed: int) -> GPGMap:
    """A map of uneven ground that is the same for every seed; its points and their noise are not."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, float(CELLS), (3 * CELLS**2, 2))
    wave, phase = np.random.default_rng(7).normal(size=(2, 24, 2))
    z = np.sin(0.4 * xy @ wave.T + 3.0 * phase[:, 0]).sum(axis=1)
    points = np.column_stack([xy, 0.3 * z + rng.normal(scale=0.02, size=len(xy))])
    # As submaps: detail has loops of its own, which no comparison needs.
    config = with_settings(Config(), {"mapping.detail": "never", "mapping.length_scale": 5.0})
    return gpgmap_from_points(points, 1.0, config)
