"""Files of points as one cloud in memory, checked as those of a survey are: for looks and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpgmap_ros.apps.coordinate_systems import common_crs
from gpgmap_ros.apps.survey_plan import choose_cell, clean_sample, ground_area, list_names, round_up
from gpgmap_ros.apps.survey_tasks import check_extent
from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import open_points

MAX_POINTS = 3_000_000
MOST_CELLS = 1500
"""Along the longer side, unless a resolution is given."""


@dataclass(frozen=True, eq=False)
class PointCloud:
    """points: (N, 3) in crs, without marks of no data and what lies far from all others
    names: of the files; warnings: for people"""

    points: Array
    crs: Crs
    names: str
    warnings: tuple[str, ...] = ()


def read_point_cloud(paths: Sequence[Path], max_points: int = MAX_POINTS) -> PointCloud:
    """About so many points of all files. PointFileError, SurveyError where no map can be made of them."""
    sources = [open_points(path) for path in paths]
    crs, warnings = common_crs([(str(source.path), source.crs) for source in sources])
    samples = []
    for source in sources:
        samples.append(source.sample(max_points // len(sources)))
        check_extent(str(source.path), source.bounds, samples[-1])
    names = list_names(sources)
    return PointCloud(clean_sample(np.concatenate(samples), names), crs, names, tuple(warnings))


def fit_resolution(points: Array, names: str = "points") -> float:
    """Edge of a cell in metres, 1, 2 or 5 times a power of ten: two points in most cells, MOST_CELLS across at most.

    SurveyError as of `choose_cell`. names: of the files, for messages
    """
    choose_cell(points, len(points) / ground_area(points), names, "--resolution")
    extent = np.ptp(points[:, :2], axis=0)
    least = np.sqrt(2.0 * extent[0] * extent[1] / len(points))
    return round_up(max(float(least), float(extent.max()) / MOST_CELLS))
