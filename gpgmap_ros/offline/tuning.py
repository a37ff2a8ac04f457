"""Learning the settings of terrain and noise: by the likelihood of some points, judged on others.

Points are split by cloud (of files: at random) into those learned from, those that choose between starts, and those
that are held out for the score that is reported. The score is the mean logarithm of the predictive density of a held
out height, log N(z | f, v + r): it punishes a map that is wrong and one that is surer than it should be.
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

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.pointcloud2 import CloudError, read_xyz
from gpgmap_ros.io.points import PointSource
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.mapping.filters import select_ground
from gpgmap_ros.mapping.noise import height_variance, sensor_model
from gpgmap_ros.mapping.survey import trend_of
from gpgmap_ros.offline.choosing import Choice
from gpgmap_ros.offline.poses import frame, nanoseconds
from gpgmap_ros.offline.replay import poses_for
from gpgmap_ros.transform_buffer import TransformUnavailable

Array = NDArray[np.float64]

MOST_POINTS = 400_000
REACH = 30.0
"""Length scales: points are taken from a square that is this many to each side of its middle."""
STARTS = (0.5, 1.0, 2.0, 4.0)
"""Factors on the length scale with which the search begins: each makes a lattice of its own."""
LEAST_POINTS = 2000
TRAIN, CHOOSE, TEST = 0, 1, 2
FOLDS = 7
"""Of so many clouds one chooses, one tests, the others train."""


class TuneError(ValueError):
    """Nothing can be learned: why, and what to do."""


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
    """On held out points. log_density: mean log N(z | f, v + r), nats; rmse: metres; within: share within 2 std"""

    log_density: float
    rmse: float
    within: float


@dataclass(frozen=True)
class Tuned:
    """config: with what was learned; changed: (name, before, after)
    evidence: log marginal likelihood per point, before and after; score: held out, before and after
    points: learned from and held out; tried: length scale of each start, what came of it"""

    config: Config
    changed: list[tuple[str, float, float]]
    evidence: tuple[float, float]
    score: tuple[Score, Score]
    points: tuple[int, int]
    tried: list[dict[str, Any]]
    warnings: list[str]


def points_of_recording(
    recording: Recording, choice: Choice, config: Config
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Ground points in the map's frame, their variances by the noise model, and the number of their cloud."""
    poses, decoder = poses_for(choice), Decoder()
    kept: list[tuple[Array, Array]] = []
    waiting: list[Any] = []
    middle: Array | None = None
    reach, total = REACH * config.mapping.length_scale, 0

    def take(cloud: Any) -> None:
        nonlocal middle, total
        pose = poses.at(frame(cloud.header.frame_id), nanoseconds(cloud.header.stamp))
        xyz = select_ground(read_xyz(cloud), pose.T_map_sensor, pose.T_base_sensor, config.filter).xyz
        sensor = pose.T_map_sensor[:3, 3]
        middle = sensor[:2].copy() if middle is None else middle
        xyz = xyz[(np.abs(xyz[:, :2] - middle) < reach).all(axis=1)]
        kept.append((xyz, height_variance(xyz - sensor, None, config.noise)))
        total += len(xyz)

    for message in recording.messages(choice.topics):
        if message.topic == choice.topic:
            waiting.append(decoder(message))
        else:
            with contextlib.suppress(
                ValueError
            ):  # a transform that is none: as the replay does, go on without
                poses.insert(decoder(message), message.topic)
        while waiting:
            try:
                take(waiting[0])
            except TransformUnavailable as error:
                if error.reason != "too_early" and len(waiting) < 50:
                    break
            except CloudError:
                pass
            waiting.pop(0)
        if total > 4 * MOST_POINTS:
            break
    if not kept:
        raise TuneError(f"no cloud of {choice.topic} has a pose: try `gpgmap doctor`")
    number = np.repeat(np.arange(len(kept)), [len(xyz) for xyz, _ in kept])
    return np.concatenate([xyz for xyz, _ in kept]), np.concatenate([r for _, r in kept]), number


def points_of_files(sources: list[PointSource], config: Config) -> tuple[Array, Array, NDArray[np.int64]]:
    """A square in the middle of the survey; every point is a cloud of its own."""
    sample = np.concatenate([source.sample(MOST_POINTS) for source in sources])
    middle, reach = np.median(sample[:, :2], axis=0), REACH * config.mapping.length_scale
    near = []
    total = 0
    for source in sources:
        for piece in source.pieces():
            here = piece[(np.abs(piece[:, :2] - middle) < reach).all(axis=1)]
            near.append(here)
            total += len(here)
        if total > 8 * MOST_POINTS:
            break
    xyz = np.concatenate(near)
    return xyz, np.full(len(xyz), config.noise.height_std**2), np.arange(len(xyz))


def split(xyz: Array, variance: Array, cloud: NDArray[np.int64], config: Config) -> Points:
    """At most MOST_POINTS, their heights about a trend, folded by cloud."""
    if len(xyz) < LEAST_POINTS:
        raise TuneError(f"only {len(xyz)} points: {LEAST_POINTS} are needed (are the filters right?)")
    rng = np.random.default_rng(0)
    if len(xyz) > MOST_POINTS:
        chosen = np.sort(rng.choice(len(xyz), MOST_POINTS, replace=False))
        xyz, variance, cloud = xyz[chosen], variance[chosen], cloud[chosen]
    trend = trend_of(xyz, 12.0 * config.mapping.length_scale)
    heights = xyz[:, 2] - trend.at(np.ascontiguousarray(xyz[:, :2]))
    turn = rng.permutation(int(cloud.max()) + 1)[cloud] % FOLDS
    fold = np.where(turn == 0, TEST, np.where(turn == 1, CHOOSE, TRAIN))
    sensed = bool(np.ptp(variance) > 0.0)
    return Points(np.column_stack([xyz[:, :2] - xyz[:, :2].min(axis=0), heights]), variance, fold, sensed)


def tune(points: Points, config: Config, progress: Callable[[int, int, str], None]) -> Tuned:
    """progress: told steps done, all steps, and what is under way"""
    mapping = config.mapping
    before = (mapping.length_scale, mapping.relief_std, 1.0)
    total = len(STARTS) + 2
    progress(0, total, "the settings as they are")
    first = evaluated(points, *before, mapping.resolution, TEST)
    tried = []
    for number, factor in enumerate(STARTS):
        scale = mapping.length_scale * factor
        progress(1 + number, total, f"from a length scale of {scale:g} m")
        begin = time.monotonic()
        try:
            gp = process(points, scale, mapping.relief_std, 1.0, mapping.resolution)
            fit = gp.fit_hyperparameters()
            found = (*parameters_of(fit.kernel), fit.noise_factor)
            score = evaluated(points, *found, mapping.resolution, CHOOSE)[1]
        except (ValueError, np.linalg.LinAlgError) as error:
            tried.append({"start": scale, "failed": str(error), "seconds": time.monotonic() - begin})
            continue
        tried.append(
            {
                "start": scale, "length_scale": found[0], "relief_std": found[1], "noise_factor": found[2],
                "log_density": score.log_density, "converged": fit.converged, "at_bound": bool(np.any(fit.at_bound)),
                "seconds": round(time.monotonic() - begin, 2),
            }
        )  # fmt: skip
    good = [item for item in tried if "log_density" in item]
    if not good:
        raise TuneError(f"no start led anywhere: {tried[0]['failed']}")
    best = max(good, key=lambda item: item["log_density"])
    learned = (best["length_scale"], best["relief_std"], best["noise_factor"])
    progress(total - 1, total, "held out points")
    last = evaluated(points, *learned, mapping.resolution, TEST)
    tuned = learned_config(config, *learned, points.sensed)
    warnings = ["the search ended at a bound: try again from the new file"] if best["at_bound"] else []
    if last[1].log_density <= first[1].log_density:
        warnings.append("the held out score did not improve: the settings were good as they were; keep them")
    return Tuned(
        tuned, differences(config, tuned), (first[0], last[0]), (first[1], last[1]),
        (len(points.part(TRAIN).xyz), len(points.part(TEST).xyz)), tried, warnings,
    )  # fmt: skip


def process(
    points: Points, length_scale: float, relief_std: float, factor: float, resolution: float
) -> GridGP:
    train = points.part(TRAIN)
    extent = points.xyz[:, :2].max(axis=0)
    columns, rows = np.maximum(np.ceil(extent / resolution).astype(int) + 1, 2)
    grid = Grid((0.0, 0.0), (int(rows), int(columns)), resolution)
    noise = float(np.median(train.variance)) * factor
    gp = GridGP(grid, relief_std**2 * RBF(length_scale), noise)
    gp.update(train.xyz[:, :2], train.xyz[:, 2], train.variance * factor)
    return gp


def evaluated(
    points: Points, length_scale: float, relief_std: float, factor: float, resolution: float, fold: int
) -> tuple[float, Score]:
    """Log marginal likelihood per point learned from, and the score on a fold."""
    gp = process(points, length_scale, relief_std, factor, resolution)
    held = points.part(fold)
    mean, std = gp.predict(held.xyz[:, :2], return_std=True)
    variance = std**2 + held.variance * factor
    error = held.xyz[:, 2] - mean
    density = -0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)
    score = Score(
        float(density.mean()),
        float(np.sqrt(np.mean(error**2))),
        float(np.mean(np.abs(error) < 2.0 * np.sqrt(variance))),
    )
    return gp.log_marginal_likelihood() / max(gp.count, 1.0), score


def parameters_of(kernel: Any) -> tuple[float, float]:
    """Length scale and standard deviation of a scaled RBF."""
    deviation = float(np.sqrt(kernel.diag(np.zeros((1, 2)))[0]))
    # k(d) / k(0) = exp(-d^2 / 2 l^2)
    ratio = float(kernel(np.zeros((1, 2)), np.array([[0.01, 0.0]]))[0, 0]) / deviation**2
    return float(0.01 / np.sqrt(-2.0 * np.log(ratio))), deviation


def learned_config(
    config: Config, length_scale: float, relief_std: float, factor: float, sensed: bool
) -> Config:
    """Every standard deviation of the noise model times the square root of the factor on variances."""
    model, root = sensor_model(config.noise), float(np.sqrt(factor))
    changes: dict[str, float] = {
        "mapping.length_scale": digits(length_scale),
        "mapping.relief_std": digits(relief_std),
        "noise.height_std": digits(config.noise.height_std * root),
    }
    if sensed:
        changes["noise.common_std"] = digits(config.noise.common_std * root)
    for item in dataclasses.fields(model) if sensed else ():
        changes[f"noise.{item.name}"] = digits(getattr(model, item.name) * root)
    return with_settings(config, changes)


def digits(value: float) -> float:
    return float(f"{value:.3g}")


def differences(before: Config, after: Config) -> list[tuple[str, float, float]]:
    """Settings that were learned. A preset's value stands for -1."""
    model = sensor_model(before.noise)
    rows = []
    for name in ("length_scale", "relief_std"):
        rows.append((f"mapping.{name}", getattr(before.mapping, name), getattr(after.mapping, name)))
    for name in ("height_std", "common_std"):
        rows.append((f"noise.{name}", getattr(before.noise, name), getattr(after.noise, name)))
    for item in dataclasses.fields(model):
        rows.append(
            (f"noise.{item.name}", getattr(model, item.name), getattr(sensor_model(after.noise), item.name))
        )
    return [row for row in rows if row[1] != row[2]]
