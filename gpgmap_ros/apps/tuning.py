"""Learning the kernel and the settings of terrain and noise: by the likelihood of some points, judged on others.

Points are split by cloud (of files: at random) into those learned from, those that choose between starts, and those
that are held out for the score that is reported. The score is the mean logarithm of the predictive density of a held
out height: it punishes a map that is wrong and one that is surer than it should be. Both are those of the map that is
made with the settings, so with `mapping.learn_noise` after it has learned its noise. What was learned is kept only if
neither this score nor the RMSE is worse than with the settings that the search began with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, GridGP, student_t
from gp_core.grid.hyperparameters import Fit
from gp_core.grid.point_sample import PointSample
from gpgmap_ros.apps.survey_plan import Plan
from gpgmap_ros.apps.topic_selection import TopicSelection, recorded_source
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, MappingConfig, with_settings
from gpgmap_ros.config.schema import Value
from gpgmap_ros.io.points import PointSource
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.mapping.filters import select_ground
from gpgmap_ros.mapping.model import (
    correlation_length,
    estimates_detail,
    expected_noise_variance,
    fit_gp,
    is_rough,
    learned_settings,
    model_settings,
    prior_std,
)
from gpgmap_ros.mapping.noise import height_variance, sensor_model
from gpgmap_ros.mapping.survey import trend_of
from gpgmap_ros.sensing import Cloud, CloudError, decode_cloud
from gpgmap_ros.sensing.sources import insert_message
from gpgmap_ros.sensing.transform_buffer import TransformUnavailable

MAX_POINTS = 400_000
REACH = 30.0
"""Length scales: points are taken from a square that is this many to each side of its middle."""
STARTS = {"rbf": (0.5, 1.0, 2.0, 4.0), "matern52": (1.0,), "matern32": (1.0,), "matern54": (1.0,)}
"""Kernels that are tried, with factors on the length scale with which the search begins: each makes a lattice of its
own. The length of a rough kernel hardly matters: one start will do."""
MIN_POINTS = 500
TWO_STD = 0.9545
"""Share of a normal distribution within two standard deviations."""
TRAIN, CHOOSE, TEST = 0, 1, 2
FOLDS = 7
"""Of so many clouds one chooses, one tests, the others train."""


class TuneError(ValueError):
    """Nothing can be learned: why, and what to do."""


RecordedPoints = tuple[Array, Array, NDArray[np.int64]]
"""Positions (N, 3), variances (N,) of their heights, and the number (N,) of the cloud each came in."""


@dataclass(frozen=True, eq=False)
class Points:
    """xyz: (N, 3) heights about a trend; variance: (N,) by the noise model; fold: (N,) TRAIN, CHOOSE or TEST
    sensed: the variances come from the model of the sensor, not from `noise.height_std` alone"""

    xyz: Array
    variance: Array
    fold: NDArray[np.int64]
    sensed: bool

    def part(self, fold: int) -> Points:
        here = self.fold == fold
        return Points(self.xyz[here], self.variance[here], self.fold[here], self.sensed)


@dataclass(frozen=True)
class Score:
    """On held out points. log_density: mean, nats; rmse: metres; within: share in the interval of 95.45 %"""

    log_density: float
    rmse: float
    within: float


@dataclass(frozen=True)
class Tuned:
    """config: with what was learned, or as it was if nothing better was found; changed: (name, before, after)
    evidence: log marginal likelihood per point, before and after; score: held out, before and after
    points: learned from and held out; tried: kernel and length of each start, what came of it"""

    config: Config
    changed: list[tuple[str, Value, Value]]
    evidence: tuple[float, float]
    score: tuple[Score, Score]
    points: tuple[int, int]
    tried: list[dict[str, Any]]
    warnings: list[str]


def points_of_recording(recording: Recording, choice: TopicSelection, config: Config) -> RecordedPoints:
    """Ground points in the map's frame, their variances by the noise model, and the number of their cloud."""
    poses, decoder = recorded_source(choice), Decoder()
    kept: list[tuple[Array, Array]] = []
    waiting: list[Cloud] = []
    middle: Array | None = None
    reach, total = REACH * config.mapping.length_scale, 0

    def take(cloud: Cloud) -> None:
        nonlocal middle, total
        cloud, pose = poses.locate_cloud(cloud)
        xyz = select_ground(cloud.points, pose.T_map_sensor, pose.T_base_sensor, config.filter).xyz
        sensor = pose.T_map_sensor[:3, 3]
        middle = sensor[:2].copy() if middle is None else middle
        xyz = xyz[(np.abs(xyz[:, :2] - middle) < reach).all(axis=1)]
        kept.append((xyz, height_variance(xyz - sensor, None, config.noise)))
        total += len(xyz)

    for message in recording.messages(choice.topics):
        if message.topic == choice.topic:
            with contextlib.suppress(CloudError):  # a damaged cloud: go on without
                waiting.append(decode_cloud(decoder(message)))
        else:
            with contextlib.suppress(
                ValueError
            ):  # a transform that is none: as the replay does, go on without
                insert_message(poses, decoder(message), message.topic)
        while waiting:
            try:
                take(waiting[0])
            except TransformUnavailable as error:
                if error.reason != "too_early" and len(waiting) < 50:
                    break
            waiting.pop(0)
        if total > 4 * MAX_POINTS:
            break
    if not kept:
        raise TuneError(f"no cloud of {choice.topic} has a pose: try `gpgmap doctor`")
    number = np.repeat(np.arange(len(kept)), [len(xyz) for xyz, _ in kept])
    return np.concatenate([xyz for xyz, _ in kept]), np.concatenate([r for _, r in kept]), number


def points_of_files(sources: list[PointSource], planned: Plan) -> RecordedPoints:
    """A square in the middle of the survey, without heights beyond the plan's; every point is a cloud of its own."""
    config, (lowest, highest) = planned.config, planned.heights
    sample = np.concatenate([source.sample(MAX_POINTS) for source in sources])
    middle, reach = np.median(sample[:, :2], axis=0), REACH * config.mapping.length_scale
    near = []
    total = 0
    for source in sources:
        for piece in source.pieces():
            near_middle = (np.abs(piece[:, :2] - middle) < reach).all(axis=1)
            here = piece[near_middle & (piece[:, 2] >= lowest) & (piece[:, 2] <= highest)]
            near.append(here)
            total += len(here)
        if total > 8 * MAX_POINTS:
            break
    xyz = np.concatenate(near)
    return xyz, np.full(len(xyz), config.noise.height_std**2), np.arange(len(xyz))


def split(xyz: Array, variance: Array, cloud: NDArray[np.int64], config: Config) -> Points:
    """At most MAX_POINTS, their heights about a trend, folded by cloud."""
    if len(xyz) < MIN_POINTS:
        raise TuneError(f"only {len(xyz)} points: {MIN_POINTS} are needed (are the filters right?)")
    rng = np.random.default_rng(0)
    if len(xyz) > MAX_POINTS:
        chosen = np.sort(rng.choice(len(xyz), MAX_POINTS, replace=False))
        xyz, variance, cloud = xyz[chosen], variance[chosen], cloud[chosen]
    trend = trend_of(xyz, 12.0 * config.mapping.length_scale)
    heights = xyz[:, 2] - trend.at(np.ascontiguousarray(xyz[:, :2]))
    turn = rng.permutation(int(cloud.max()) + 1)[cloud] % FOLDS
    fold = np.where(turn == 0, TEST, np.where(turn == 1, CHOOSE, TRAIN))
    sensed = bool(np.ptp(variance) > 0.0)
    return Points(np.column_stack([xyz[:, :2] - xyz[:, :2].min(axis=0), heights]), variance, fold, sensed)


@dataclass(frozen=True)
class Candidate:
    """Settings of the terrain, and a factor on all noise variances."""

    mapping: MappingConfig
    factor: float


def tune(points: Points, config: Config, progress: Callable[[int, int, str], None]) -> Tuned:
    """Learn the settings from several starts. progress: told steps done, all steps, and what is under way"""
    begin = Candidate(config.mapping, 1.0)
    starts = [(kernel, factor) for kernel, factors in STARTS.items() for factor in factors]
    total = len(starts) + 2
    progress(0, total, "the settings as they are")
    before, to_beat = judge(points, begin), evaluate(points, begin, CHOOSE)
    tried: list[dict[str, Any]] = []
    found: list[tuple[Score, Candidate, bool]] = []
    for number, (kernel, factor) in enumerate(starts):
        start = start_from(config.mapping, kernel, factor)
        progress(1 + number, total, f"{kernel} from a length scale of {correlation_length(start):g} m")
        clock = time.monotonic()
        row: dict[str, Any] = {"kernel": kernel, "start": correlation_length(start)}
        try:
            candidate, fit = search_from(points, start)
            score = evaluate(points, candidate, CHOOSE)
        except (ValueError, np.linalg.LinAlgError) as error:
            row["failed"] = str(error)
        else:
            at_bound = fit is not None and bool(np.any(fit.at_bound))
            found.append((score, candidate, at_bound))
            row |= {
                "length_scale": correlation_length(candidate.mapping), "relief_std": prior_std(candidate.mapping),
                "noise_factor": candidate.factor, "log_density": score.log_density, "rmse": score.rmse,
                "converged": fit is None or fit.converged, "at_bound": at_bound,
            }  # fmt: skip
        tried.append({**row, "seconds": round(time.monotonic() - clock, 2)})
    if not found:
        raise TuneError(f"no start converged: {tried[0]['failed']}")
    progress(total - 1, total, "held-out points")
    warnings = []
    best, after = begin, before
    for score, candidate, at_bound in sorted(found, key=lambda item: -item[0].log_density):
        if not is_better(score, to_beat):
            continue
        judged = judge(points, candidate)
        if is_better(judged[1], before[1]):
            best, after = candidate, judged
            warnings = ["the search ended at a bound: run it again from the new file"] if at_bound else []
            break
    else:
        warnings = [
            "nothing was better on held-out points, in density and RMSE: the settings stay as they were"
        ]
    tuned = config if best is begin else apply_learned(config, best, points.sensed)
    return Tuned(
        tuned, differences(config, tuned), (before[0], after[0]), (before[1], after[1]),
        (len(points.part(TRAIN).xyz), len(points.part(TEST).xyz)), tried, warnings,
    )  # fmt: skip


def is_better(score: Score, than: Score) -> bool:
    """A higher density, and no larger error."""
    return score.log_density > than.log_density and score.rmse <= than.rmse


def start_from(mapping: MappingConfig, kernel: str, factor: float) -> MappingConfig:
    """The settings with another kernel, and its length times a factor."""
    start = dataclasses.replace(mapping, kernel=kernel)
    name = model_settings(start)[1]
    return dataclasses.replace(start, **{name: getattr(start, name) * factor})


def search_from(points: Points, start: MappingConfig) -> tuple[Candidate, Fit | None]:
    """What a search from these settings found. ValueError or LinAlgError where it fails.

    A rough kernel in a map that learns its noise is a candidate as it is, without a search: its length hardly matters,
    and the ratio of relief to noise is learned by every map itself.
    """
    if is_rough(start) and start.learn_noise:
        return Candidate(start, 1.0), None
    fit = fit_process(points, Candidate(start, 1.0)).fit_hyperparameters()
    found = learned_settings(start, fit.kernel)
    learned: dict[str, Any] = {name: digits(value) for name, value in found.items()}
    return Candidate(dataclasses.replace(start, **learned), fit.noise_factor), fit


def fit_process(points: Points, candidate: Candidate) -> GridGP:
    """The process of the points to learn from."""
    train, resolution = points.part(TRAIN), candidate.mapping.resolution
    extent = points.xyz[:, :2].max(axis=0)
    columns, rows = np.maximum(np.ceil(extent / resolution).astype(int) + 1, 2)
    grid = Grid((0.0, 0.0), (int(rows), int(columns)), resolution)
    if is_rough(candidate.mapping):  # the lattice of the map itself
        expected = expected_noise_variance(candidate.mapping)
    else:
        expected = float(np.median(train.variance)) * candidate.factor
    return fit_gp(grid, candidate.mapping, train.xyz, train.variance * candidate.factor, expected)


def judge(points: Points, candidate: Candidate) -> tuple[float, Score]:
    """Log marginal likelihood per point learned from, and the score on the points held out."""
    gp = fit_process(points, candidate)
    return gp.log_marginal_likelihood() / max(gp.count, 1.0), evaluate(points, candidate, TEST)


def evaluate(points: Points, candidate: Candidate, fold: int) -> Score:
    """The score on a fold."""
    gp, train, held = fit_process(points, candidate), points.part(TRAIN), points.part(fold)
    if candidate.mapping.learn_noise:
        sample = PointSample()
        sample.add(train.xyz, train.variance * candidate.factor)
        # Points of files are mapped at once, those of a sensor by a map that grows with them.
        gp.learn_scale(detail=estimates_detail(candidate.mapping, batch=not points.sensed))
        gp.calibrate_by_own(sample.points[:, :2], sample.points[:, 2], sample.points[:, 3])
        mean, scale, degrees = gp.measured_heights(held.xyz[:, :2])
        low, high = gp.measured_interval(held.xyz[:, :2], TWO_STD)
    else:
        mean, std = gp.predict(held.xyz[:, :2], return_std=True)
        scale = np.sqrt(std**2 + held.variance * candidate.factor)
        degrees = np.full(scale.shape, np.inf)
        low, high = mean - 2.0 * scale, mean + 2.0 * scale
    error = held.xyz[:, 2] - mean
    density = student_t.log_density(error / scale, degrees) - np.log(scale)
    return Score(
        float(density.mean()),
        float(np.sqrt(np.mean(error**2))),
        float(np.mean((held.xyz[:, 2] >= low) & (held.xyz[:, 2] <= high))),
    )


def apply_learned(config: Config, best: Candidate, sensed: bool) -> Config:
    """Every standard deviation of the noise model times the square root of the factor on variances."""
    model, root = sensor_model(config.noise), float(np.sqrt(best.factor))
    changes: dict[str, Value] = {
        f"mapping.{name}": getattr(best.mapping, name) for name in model_settings(best.mapping)
    }
    changes["noise.height_std"] = digits(config.noise.height_std * root)
    if sensed:
        changes["noise.common_std"] = digits(config.noise.common_std * root)
    for item in dataclasses.fields(model) if sensed else ():
        changes[f"noise.{item.name}"] = digits(getattr(model, item.name) * root)
    return with_settings(config, changes)


def digits(value: float) -> float:
    return float(f"{value:.3g}")


def differences(before: Config, after: Config) -> list[tuple[str, Value, Value]]:
    """Settings that were learned. A preset's value stands for -1."""
    model = sensor_model(before.noise)
    rows: list[tuple[str, Value, Value]] = []
    for name in model_settings(after.mapping):
        rows.append((f"mapping.{name}", getattr(before.mapping, name), getattr(after.mapping, name)))
    for name in ("height_std", "common_std"):
        rows.append((f"noise.{name}", getattr(before.noise, name), getattr(after.noise, name)))
    for item in dataclasses.fields(model):
        rows.append(
            (f"noise.{item.name}", getattr(model, item.name), getattr(sensor_model(after.noise), item.name))
        )
    return [row for row in rows if row[1] != row[2]]
