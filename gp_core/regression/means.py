"""Mean functions of a Gaussian process: what it returns to where there are no data.

A mean is a function of points (N, D) that returns (N,) or (N, O). The ones here carry hyperparameters that
are learned together with those of the kernel; any other callable is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gp_core.arrays import Array, require_finite
from gp_core.parameters import FIXED, SIGNED, Bounds, Parameter, Parametrised, Values


@dataclass(frozen=True, repr=False)
class Mean(Parametrised):
    """m(x), with hyperparameters theta."""

    def _prefix(self) -> str:
        return "mean."

    def __call__(self, X: Any) -> Array:
        """(N,) or (N, O)."""
        raise NotImplementedError

    def theta_vjp(self, X: Any, w: Array) -> Array:
        """(P,) with sum_no w_no dm_o(x_n)/dtheta_p, for w (N, O)."""
        return np.zeros(0)

    def gradient_x(self, X: Array) -> Array:
        """(N, D) or (N, O, D) with dm/dx."""
        raise ValueError(f"{self!r} has no gradient: use ConstantMean or LinearMean, or subclass Mean")


@dataclass(frozen=True, repr=False)
class ConstantMean(Mean):
    """m(x) = c.

    value: c, a number, or one per output
    """

    value: Values = 0.0
    value_bounds: Bounds = SIGNED

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("value", kind="signed", ndim=1),)

    def __call__(self, X: Any) -> Array:
        value = np.asarray(self.value, dtype=np.float64)
        return np.broadcast_to(value, (len(X), *value.shape)).copy()

    def theta_vjp(self, X: Any, w: Array) -> Array:
        if not self.n_theta:
            return np.zeros(0)
        per_output: Array = w.sum(axis=0)
        return per_output if np.ndim(self.value) else per_output.sum(keepdims=True)

    def gradient_x(self, X: Array) -> Array:
        return np.zeros((len(X), *np.shape(self.value), X.shape[1]))


@dataclass(frozen=True, repr=False)
class LinearMean(Mean):
    """m(x) = w'x + b.

    weights: w, one per input
    bias: b
    """

    weights: Values = (0.0,)
    bias: Values = 0.0
    weights_bounds: Bounds = SIGNED
    bias_bounds: Bounds = SIGNED

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("weights", kind="signed", ndim=1),
        Parameter("bias", kind="signed"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ndim(self.weights) != 1:
            raise ValueError("LinearMean: weights must be a vector, one per input")

    def __call__(self, X: Array) -> Array:
        weights = np.asarray(self.weights)
        if X.shape[1] != len(weights):
            raise ValueError(f"LinearMean: {len(weights)} weights but the points have {X.shape[1]} inputs")
        m: Array = X @ weights + float(self.bias)
        return m

    def theta_vjp(self, X: Array, w: Array) -> Array:
        total = w.sum(axis=1)
        parts = [X.T @ total] if self._is_free("weights") else []
        parts += [total.sum(keepdims=True)] if self._is_free("bias") else []
        return np.concatenate(parts) if parts else np.zeros(0)

    def gradient_x(self, X: Array) -> Array:
        return np.repeat(np.asarray(self.weights)[None], len(X), axis=0)


@dataclass(frozen=True, repr=False)
class FunctionMean(Mean):
    """m(x) = function(x), any callable on all points at once; nothing is learned.

    function: (N, D) -> (N,) or (N, O)
    """

    function: Callable[[Any], Any] = np.zeros_like

    def __call__(self, X: Any) -> Array:
        m = np.asarray(self.function(X), dtype=np.float64)
        if m.ndim not in (1, 2) or len(m) != len(X):
            raise ValueError(f"the mean function must return one row per point, ({len(X)},), got {m.shape}")
        require_finite(m, "the mean function's values")
        return m


def as_mean(mean: Any) -> Mean:
    """None and numbers become a fixed constant, callables are wrapped, means are taken as they are."""
    if isinstance(mean, Mean):
        return mean
    if mean is None:
        return ConstantMean(0.0, FIXED)
    if callable(mean):
        return FunctionMean(mean)
    return ConstantMean(mean, FIXED)
