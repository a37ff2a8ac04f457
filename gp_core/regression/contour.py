"""The likelihood over two hyperparameters: where its maxima are, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_vector, integer_at_least
from gp_core.regression.gaussian_process import GaussianProcessRegressor


@dataclass(frozen=True)
class LikelihoodContour:
    """log p(y) on a grid of two hyperparameters.

    names: of the two
    first, second: their values (n1,), (n2,), as parameters, not logarithms
    values: log p(y), values[i, j] at second[i] and first[j]; -inf where A can't be factorised
    maxima: (first, second, value) of each local maximum of the grid, the highest first
    """

    names: tuple[str, str]
    first: Array
    second: Array
    values: Array
    maxima: tuple[tuple[float, float, float], ...]


def likelihood_contour(
    gp: GaussianProcessRegressor,
    first: str,
    second: str,
    first_values: Any = None,
    second_values: Any = None,
    n: int = 30,
) -> LikelihoodContour:
    """log p(y) of a fitted process over two of its hyperparameters, the others held. O(n^2 N^3).

    first, second: names out of gp.theta_names_
    first_values, second_values: where; None for n values over three decades around the fitted one
    """
    check_is_fitted(gp)
    integer_at_least(n, 2, "n")
    axes = [_axis(gp, first, first_values, n), _axis(gp, second, second_values, n)]
    (i, a), (j, b) = axes
    values = np.empty((len(b), len(a)))
    theta = gp.theta_.copy()
    for row, second_coordinate in enumerate(_coordinates(gp, j, b)):
        for column, first_coordinate in enumerate(_coordinates(gp, i, a)):
            theta[i], theta[j] = first_coordinate, second_coordinate
            try:
                values[row, column] = gp.log_marginal_likelihood(theta)
            except ValueError:
                values[row, column] = -np.inf
    return LikelihoodContour((first, second), a, b, values, _maxima(a, b, values))


def _axis(gp: GaussianProcessRegressor, name: str, values: Any, n: int) -> tuple[int, Array]:
    if name not in gp.theta_names_:
        raise ValueError(f"no free hyperparameter {name!r}; there are {', '.join(gp.theta_names_)}")
    index = gp.theta_names_.index(name)
    if values is not None:
        return index, as_vector(values, f"values of {name}")
    centre = gp.theta_[index]
    if gp.model_.signed[index]:
        return index, np.linspace(centre - 3.0, centre + 3.0, n)
    half = 1.5 * np.log(10.0)
    return index, np.exp(np.linspace(centre - half, centre + half, n))


def _coordinates(gp: GaussianProcessRegressor, index: int, values: Array) -> Array:
    """Entries of theta for values of the parameter."""
    if gp.model_.signed[index]:
        return values
    if (values <= 0.0).any():
        raise ValueError(f"{gp.theta_names_[index]} must be > 0, got {values.min()}")
    return np.log(values)


def _maxima(a: Array, b: Array, values: Array) -> tuple[tuple[float, float, float], ...]:
    """Entries larger than all eight neighbours."""
    padded = np.pad(values, 1, constant_values=-np.inf)
    rows, columns = values.shape
    is_peak = np.isfinite(values)
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            if di or dj:
                is_peak &= values > padded[1 + di : 1 + di + rows, 1 + dj : 1 + dj + columns]
    peaks = [(float(a[j]), float(b[i]), float(values[i, j])) for i, j in np.argwhere(is_peak)]
    return tuple(sorted(peaks, key=lambda peak: -peak[2]))
