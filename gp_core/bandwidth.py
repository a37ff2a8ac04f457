"""Bandwidths of kernel smoothers and densities, from the scale of the data."""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.kernels import RBF

_SEARCH = 1e3
"""A bandwidth is searched within this factor of the rule's."""


def deviations(X: Array, weights: Array | None = None) -> Array:
    """(D,) standard deviation of each input; 1 where it does not vary.

    weights: (N,) how often each point counts
    """
    if weights is None:
        deviation = X.std(axis=0)
    else:
        shares = weights / weights.sum()
        deviation = np.sqrt(shares @ np.square(X - shares @ X))
    return np.where(deviation > 0.0, deviation, 1.0)


def scott_bandwidths(X: Array, weights: Array | None = None) -> Array:
    """(D,) Scott's rule, input by input: its standard deviation times N^(-1 / (D + 4))."""
    n = float(len(X)) if weights is None else float(weights.sum())
    return np.asarray(deviations(X, weights) * n ** (-1.0 / (X.shape[1] + 4.0)))


def scott_kernel(X: Array, weights: Array | None = None) -> RBF:
    """An RBF with Scott's bandwidth per input; its bounds follow the data, so that units do not matter."""
    scales = scott_bandwidths(X, weights)
    bounds = np.stack([scales / _SEARCH, scales * _SEARCH], axis=1)
    return RBF(tuple(scales.tolist()), tuple(map(tuple, bounds.tolist())))
