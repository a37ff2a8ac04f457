"""Prior densities on positive hyperparameters, for maximum a posteriori instead of maximum likelihood.

The density is that of the parameter itself, not of its logarithm. Each prior returns log p(v) and its
derivative by v; constants are kept, so that values can be compared with scipy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.parameters import Parametrised


class Prior:
    """A density on v > 0."""

    def log_density(self, v: float) -> tuple[float, float]:
        """log p(v) and d log p / dv."""
        raise NotImplementedError


@dataclass(frozen=True)
class LogNormal(Prior):
    """log v ~ N(log median, spread^2).

    median: half of the mass lies below it
    spread: standard deviation of log v; 1 is about a factor of 3 either way
    """

    median: float = 1.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        positive(self.median, "LogNormal: median")
        positive(self.spread, "LogNormal: spread")

    def log_density(self, v: float) -> tuple[float, float]:
        z = (log(v) - log(self.median)) / self.spread
        value = -0.5 * z * z - log(v * self.spread) - 0.5 * log(2.0 * pi)
        return value, -(z / self.spread + 1.0) / v


@dataclass(frozen=True)
class Gamma(Prior):
    """p(v) = rate^shape / Gamma(shape) v^(shape-1) exp(-rate v): keeps v from growing without end.

    shape, rate: both > 0; the mean is shape / rate
    """

    shape: float = 2.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        positive(self.shape, "Gamma: shape")
        positive(self.rate, "Gamma: rate")

    def log_density(self, v: float) -> tuple[float, float]:
        a, b = self.shape, self.rate
        return a * log(b) - lgamma(a) + (a - 1.0) * log(v) - b * v, (a - 1.0) / v - b


@dataclass(frozen=True)
class InverseGamma(Prior):
    """p(v) = scale^shape / Gamma(shape) v^(-shape-1) exp(-scale / v): keeps v away from 0.

    shape, scale: both > 0; the mode is scale / (shape + 1)
    """

    shape: float = 2.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        positive(self.shape, "InverseGamma: shape")
        positive(self.scale, "InverseGamma: scale")

    def log_density(self, v: float) -> tuple[float, float]:
        a, b = self.shape, self.scale
        return a * log(b) - lgamma(a) - (a + 1.0) * log(v) - b / v, -(a + 1.0) / v + b / (v * v)


@dataclass(frozen=True)
class HalfNormal(Prior):
    """p(v) = sqrt(2 / pi) / scale exp(-v^2 / (2 scale^2)): small unless the data say otherwise.

    scale: of the normal that is folded, > 0
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive(self.scale, "HalfNormal: scale")

    def log_density(self, v: float) -> tuple[float, float]:
        value = 0.5 * log(2.0 / pi) - log(self.scale) - 0.5 * (v / self.scale) ** 2
        return value, -v / self.scale**2


def log_prior(priors: Mapping[str, Prior] | None, model: Parametrised) -> tuple[float, Array]:
    """sum of log p over the entries of theta that have a prior, and its gradient by theta (P,).

    priors: name -> prior; "length_scale" covers every length_scale[i], "k1.length_scale[0]" one entry
    """
    gradient = np.zeros(model.n_theta)
    if not priors:
        return 0.0, gradient
    names, theta, signed = model.theta_names, model.theta, model.signed
    total = 0.0
    for wanted, prior in priors.items():
        matches = [i for i, name in enumerate(names) if name == wanted or name.split("[")[0] == wanted]
        if not matches:
            raise ValueError(f"priors: no free hyperparameter {wanted!r}; there are {', '.join(names)}")
        for i in matches:
            if signed[i]:
                raise ValueError(f"priors: {names[i]} is signed, and these densities are on positive values")
            v = float(np.exp(theta[i]))
            value, slope = prior.log_density(v)
            total += value
            gradient[i] += v * slope
    return total, gradient
