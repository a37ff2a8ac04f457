"""Where to search for hyperparameters: the scale of the data decides, not the unit it happens to be written in.

A length scale is searched for around the spread of its input, an amplitude around the variance of the targets. So
inputs in millimetres and outputs in tonnes are learned as well as inputs and outputs of size 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from gp_core.arrays import Array

CANDIDATE_LENGTHS: Final = (0.1, 0.3, 1.0, 3.0)
"""Typical length scales are tried at these factors: functions with many and with few oscillations over the data."""
SIGNED_REACH: Final = 3.0
"""A restart of a signed parameter is drawn within this many units of its value."""


class Range(NamedTuple):
    """Of one entry of theta, in the space of theta.

    typical: a value that suits data of this scale
    low, high: where restarts are drawn
    least, most: the bounds, where the user set none
    is_length: whether it is a length scale of inputs
    """

    typical: float
    low: float
    high: float
    least: float
    most: float
    is_length: bool = False


FACTORS: Final = {
    "length": (1.0, 0.1, 10.0, 1e-5, 1e5),
    "variance": (1.0, 0.1, 10.0, 1e-5, 1e5),
    "noise": (0.05, 1e-4, 1.0, 1e-8, 1e5),
    "area": (1.0, 0.01, 100.0, 1e-5, 1e5),
    "": (1.0, 0.1, 10.0, 1e-5, 1e5),
}
"""Role of a parameter -> Range in its unit, as factors."""


def positive_range(role: str, unit: float) -> Range:
    """The range of a positive parameter whose natural size is `unit`."""
    typical, low, high, least, most = (log(unit) + log(factor) for factor in FACTORS[role])
    return Range(typical, low, high, least, most, role == "length")


def signed_range(value: float, unit: float) -> Range:
    """The range of a signed parameter around its value."""
    reach = SIGNED_REACH * unit
    return Range(value, value - reach, value + reach, -np.inf, np.inf)


@dataclass(frozen=True)
class DataScale:
    """What the data say about the size of hyperparameters.

    X: the inputs (N, D), or N objects
    variance: mean square of the residuals, which the kernel explains
    noise: their variance about their mean, of which the noise is a part
    """

    X: Any
    variance: float = 1.0
    noise: float = 1.0

    @classmethod
    def of(cls, X: Any, residuals: Array) -> DataScale:
        """Of inputs and residuals (N, O); a constant counts as size 1."""
        variance = float(np.mean(np.square(residuals)))
        noise = float(np.mean(residuals.var(axis=0)))
        return cls(X, _or_one(variance), _or_one(noise if noise > 1e-20 * variance else variance))

    @property
    def spreads(self) -> Array:
        """(D,) standard deviation of each input; 1 where an input is constant, and for objects."""
        if not isinstance(self.X, np.ndarray) or self.X.dtype == object:
            return np.ones(1)
        spread = self.X.std(axis=0)
        size = np.abs(self.X).max(axis=0)
        return np.where(spread > 1e-12 * size, spread, 1.0)

    def unit(self, role: str, size: int, value: Array) -> Array:
        """(size,) natural size of the entries of a parameter.

        value: (size,) the entries as they are, which is the unit where the data say nothing
        """
        D = len(self.spreads)
        if role == "length":
            per_input = self.spreads * np.sqrt(D)
            return per_input if size == D else np.full(size, float(np.sqrt(np.mean(per_input**2))))
        if role == "area":
            return np.full(size, float(np.sum(self.spreads**2)))
        if role == "variance":
            return np.full(size, self.variance)
        if role == "noise":
            return np.full(size, self.noise)
        return value

    def about(self, X: Any, variance: float | None = None) -> DataScale:
        """The same targets seen by a part of the model: with other inputs, explaining another variance."""
        if variance is None:
            return replace(self, X=X)
        return DataScale(X, variance, variance * self.noise / self.variance)


class Searchable(Protocol):
    """What `search_space` needs of a model."""

    @property
    def theta(self) -> Array: ...
    @property
    def bounds(self) -> Array: ...
    def ranges(self, data: DataScale) -> list[Range]: ...


@dataclass(frozen=True)
class SearchSpace:
    """Where the hyperparameters of a model are searched for.

    bounds: (P, 2) those the user set, and for the others those that follow the data
    restarts: (P, 2) the box that restarts are drawn from
    candidates: (C, P) starts that suit data of this scale
    """

    bounds: Array
    restarts: Array
    candidates: Array


def search_space(model: Searchable, data: DataScale) -> SearchSpace:
    """The search space of a model for data of this scale."""
    theta = model.theta
    if not len(theta):
        return SearchSpace(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((1, 0)))
    ranges = model.ranges(data)
    # A start beyond the bounds that the data suggest was meant.
    least = np.minimum([r.least for r in ranges], theta)
    most = np.maximum([r.most for r in ranges], theta)
    lengths = np.array([r.is_length for r in ranges])
    typical = np.array([r.typical for r in ranges])
    candidates = np.stack([typical + log(f) * lengths for f in CANDIDATE_LENGTHS])
    if not lengths.any():
        candidates = candidates[:1]
    restarts = np.array([(r.low, r.high) for r in ranges])
    return SearchSpace(
        np.stack([least, most], axis=1),
        np.clip(restarts, least[:, None], most[:, None]),
        np.clip(candidates, least, most),
    )


def _or_one(value: float) -> float:
    return value if value > 0.0 else 1.0
