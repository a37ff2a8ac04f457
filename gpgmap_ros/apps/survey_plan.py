"""Settings for a survey, estimated from a sample of its points unless they are given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.points import NoPointsError, PointSource
from gpgmap_ros.mapping.cells import cell_ids
from gpgmap_ros.mapping.model import is_rough
from gpgmap_ros.mapping.outliers import height_limits, outlying_points
from gpgmap_ros.mapping.survey import Trend, trend_of

SAMPLE = 1_000_000
MIN_POINTS = 10
FINEST = 0.001
"""Metres; cells that would have to be smaller are of points in another unit."""
CELLS_PER_SCALE = 5.0
"""Length scale over edge of a cell, unless given: what the relief between points can be drawn with."""
TREND_SCALES = 8.0
"""Edge of the trend's cells in length scales."""


class SurveyError(ValueError):
    """No map can be made of these points: why, and what to do."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a sample says.

    config: settings, with those that were not given; trend: see mapping/survey.py
    guesses: sentences about them; points: in all files, None where unknown; density: points per square metre
    heights: limits beyond which a height is an outlier
    """

    config: Config
    trend: Trend
    guesses: tuple[str, ...]
    points: int | None
    density: float
    heights: tuple[float, float]


def plan(sources: list[PointSource], config: Config, given: set[str]) -> Plan:
    """Estimate the settings that are not `given` (names) from a sample of the points."""
    counts = [source.count for source in sources]
    points = None if None in counts else sum(count or 0 for count in counts)
    return plan_sample(read_sample(sources), points, list_names(sources), config, given)


def plan_sample(
    sample: Array, points: int | None, names: str, config: Config, given: set[str], area: float | None = None
) -> Plan:
    """The same from a sample (N, 3).

    points: in all files, None where unknown; names: of the files, for messages
    area: square metres with points in them; that of the sample, which is then spread as the points are, unless given
    """
    density = (points or len(sample)) / (area or ground_area(sample))
    changes: dict[str, float] = {}
    guesses = []
    if "mapping.resolution" not in given:
        changes["mapping.resolution"] = choose_cell(sample, density, names)
        guesses.append(
            f"cells of {changes['mapping.resolution']:g} m: there are {density:.3g} points per square metre"
        )
    resolution = changes.get("mapping.resolution", config.mapping.resolution)
    if "mapping.length_scale" not in given:
        changes["mapping.length_scale"] = CELLS_PER_SCALE * resolution
        if not is_rough(config.mapping):
            guesses.append(f"length scale {changes['mapping.length_scale']:g} m: {CELLS_PER_SCALE:g} cells")
    scale = changes.get("mapping.length_scale", config.mapping.length_scale)
    trend = trend_of(sample, max(TREND_SCALES * scale, coarsest_edge(sample)))
    rest = sample[:, 2] - trend.at(np.ascontiguousarray(sample[:, :2]))
    if "mapping.relief_std" not in given:
        changes["mapping.relief_std"] = max(round(float(np.std(rest)), 3), 0.05)
        if not is_rough(config.mapping):
            guesses.append(f"relief {changes['mapping.relief_std']:g} m: standard deviation around the trend")
    if "noise.height_std" not in given:
        rough = roughness(sample, resolution)
        changes["noise.height_std"] = max(round(rough, 3), config.noise.height_std)
        guesses.append(f"noise {changes['noise.height_std']:g} m: {noise_reason(rough, config)}")
    return Plan(with_settings(config, changes), trend, tuple(guesses), points, density, height_limits(sample))


def choose_cell(sample: Array, density: float, names: str, option: str = "--set mapping.resolution") -> float:
    """Edge of a cell in metres with one point of this density (per square metre), rounded up.

    SurveyError where points are not spread over ground in metres. option: that gives cells, for the message
    """
    width, depth = np.ptp(sample[:, :2], axis=0)
    if min(width, depth) <= 0.0:
        raise SurveyError(
            f"{names}: the points lie on a line or at one place, so that no cells can be chosen:"
            f" give them, as in {option}=1"
        )
    cell = round_up(1.0 / np.sqrt(density))
    if cell < FINEST:
        raise SurveyError(
            f"{names}: all points lie within {width:.3g} x {depth:.3g} m, one in {cell:g} m: are the coordinates"
            " degrees (longitude and latitude)? Convert them to metres first"
        )
    return cell


def read_sample(sources: list[PointSource]) -> Array:
    """Points from all over the files, without those far from all others. SurveyError where they are too few."""
    found: list[Array] = []
    empty: list[NoPointsError] = []
    for source in sources:
        try:
            found.append(source.sample(SAMPLE // len(sources)))
        except NoPointsError as error:
            empty.append(error)
    if not found:
        raise empty[0]
    return clean_sample(np.concatenate(found), list_names(sources))


def clean_sample(sample: Array, names: str) -> Array:
    """A sample (N, 3) without points far from all others. SurveyError where they are too few. names: of the files"""
    if len(sample) < MIN_POINTS:
        raise SurveyError(
            f"{names}: only {len(sample)} points that can be used: a map needs {MIN_POINTS} at least"
            " (of LAS files, see --class)"
        )
    far = outlying_points(np.ascontiguousarray(sample[:, :2]))
    sample = sample[~far] if far.any() else sample
    lowest, highest = height_limits(sample)
    good = (sample[:, 2] >= lowest) & (sample[:, 2] <= highest)
    return sample if good.all() else sample[good]


def list_names(sources: list[PointSource]) -> str:
    return ", ".join(str(source.path) for source in sources)


def ground_area(sample: Array) -> float:
    """Square metres with points in them: cells that hold four points of the sample each, were they spread evenly."""
    extent = np.ptp(sample[:, :2], axis=0)
    area = max(float(extent[0] * extent[1]), 1e-6)
    for _ in range(3):  # the box around a strip is mostly empty: each round counts in smaller cells
        edge = float(np.sqrt(4.0 * area / len(sample)))
        area = (int(cell_ids(np.ascontiguousarray(sample[:, :2]), edge).max()) + 1) * edge**2
    return area


def coarsest_edge(sample: Array) -> float:
    """Edge that gives the trend at most 1,000 x 1,000 cells, however far the survey reaches."""
    return float(np.ptp(sample[:, :2], axis=0).max()) / 1000.0


def noise_reason(rough: float, config: Config) -> str:
    """Where the noise of a plan comes from. rough: see `roughness`"""
    if round(rough, 3) >= config.noise.height_std:
        return "scatter within a cell where the ground is smoothest"
    if rough > 0.0:
        return f"the least that is assumed; the scatter within a cell is {rough:.2g} m where the ground is smoothest"
    return "assumed, because too few cells have several points that differ"


def roughness(sample: Array, edge: float) -> float:
    """Standard deviation of heights within a cell, in the smoothest quarter of the cells with three points or more."""
    ids = cell_ids(np.ascontiguousarray(sample[:, :2]), edge)
    count = np.bincount(ids)
    z = sample[:, 2] - sample[:, 2].mean()
    mean = np.bincount(ids, z) / count
    square = np.bincount(ids, (z - mean[ids]) ** 2)
    enough = count >= 3
    if enough.sum() < 20:
        return 0.0
    return float(np.percentile(np.sqrt(square[enough] / (count[enough] - 1)), 25.0))


def round_up(edge: float) -> float:
    """The next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(edge))
    return float(
        f"{next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= edge * 0.999):.6g}"
    )
