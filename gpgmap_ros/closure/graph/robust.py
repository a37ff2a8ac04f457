"""Robust kernels: the cost of an edge by its whitened error e, and the weight that e^2 gets in each step.

Huber:   e^2 / 2 up to a width k, then k (e - k / 2)          weight min(1, k / e)
Cauchy:  k^2 / 2 log(1 + (e / k)^2)                           weight 1 / (1 + (e / k)^2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gp_core.arrays import Array


class Kernel(Protocol):
    """name: as GTSAM calls it; width: error from which on an edge counts less."""

    @property
    def name(self) -> str: ...
    @property
    def width(self) -> float: ...
    def cost(self, squared_error: Array) -> Array:
        """(M,) costs."""
        ...

    def weight(self, squared_error: Array) -> Array:
        """(M,) weights of the squared errors, at most 1."""
        ...


@dataclass(frozen=True)
class Huber:
    width: float
    name: str = "Huber"

    def cost(self, squared_error: Array) -> Array:
        error = np.sqrt(squared_error)
        return np.where(error <= self.width, 0.5 * squared_error, self.width * (error - 0.5 * self.width))

    def weight(self, squared_error: Array) -> Array:
        return self.width / np.maximum(np.sqrt(squared_error), self.width)


@dataclass(frozen=True)
class Cauchy:
    width: float
    name: str = "Cauchy"

    def cost(self, squared_error: Array) -> Array:
        return np.asarray(0.5 * self.width**2 * np.log1p(squared_error / self.width**2))

    def weight(self, squared_error: Array) -> Array:
        return np.asarray(1.0 / (1.0 + squared_error / self.width**2))
