"""The covariance R of the noise: independent, different per point, or correlated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gp_core.arrays import Array, as_covariance, as_float, as_vector
from gp_core.linalg import Cholesky, cholesky, require_semidefinite


@dataclass(frozen=True)
class Noise:
    """R = noise_variance I + Lambda, of points that may count several times: as so many independent observations.

    variances: (N,) the diagonal of R
    factor: of R if it is not diagonal, else None
    counts: (N,) how often each point counts, > 0; 1 for a full R
    """

    variances: Array
    factor: Cholesky | None
    counts: Array

    @staticmethod
    def known(noise_covariance: Any, n: int) -> Array | None:
        """Lambda as None, variances (N,) or a covariance (N, N), checked."""
        if noise_covariance is None:
            return None
        noise = as_float(noise_covariance, "noise_covariance")
        if noise.ndim == 1:
            if (as_vector(noise, "noise_covariance", n) < 0.0).any():
                raise ValueError("noise_covariance holds a negative variance")
            return noise
        if noise.ndim == 2 and noise.shape != (n, n):
            raise ValueError(
                f"noise_covariance must be a scalar, ({n},) or ({n}, {n}), got shape {noise.shape}: noise that differs "
                "between outputs is for CoregionalizedGaussianProcessRegressor"
            )
        covariance = as_covariance(noise, n, "noise_covariance")
        require_semidefinite(covariance, "noise_covariance")
        return covariance

    @classmethod
    def total(cls, variance: float, known: Array | None, counts: Array) -> Noise:
        """R for the points that count so often."""
        n = len(counts)
        if known is None or known.ndim == 1:
            return cls(np.full(n, variance) + (0.0 if known is None else known), None, counts)
        if (counts != 1.0).any():
            raise ValueError(
                "sample_weight goes with independent noise: give noise_covariance as variances (N,)"
            )
        R = known.copy()
        R.flat[:: n + 1] += variance
        variances = np.diagonal(R).copy()
        return cls(variances, cholesky(R, overwrite=True, what="noise_covariance"), counts)

    def solve(self, B: Array) -> Array:
        """R^-1 B for B (N, C), each row as often as it counts."""
        if self.factor is not None:
            return self.factor.solve(B)
        quotient: Array = B * (self.counts / self.variances)[:, None]
        return quotient

    def square(self, A: Array) -> float:
        """sum of A_ij^2 / counts_i for A = solve(B): the sum of (R^-1 B)^2 over all observations."""
        return float(np.sum(np.square(A) / self.counts[:, None]))

    @property
    def n_observations(self) -> float:
        """Of all points, as often as they count."""
        return float(self.counts.sum())

    @property
    def log_determinant(self) -> float:
        """log |R|."""
        if self.factor is not None:
            return self.factor.log_determinant
        return float(self.counts @ np.log(self.variances))

    @property
    def trace_inverse(self) -> float:
        """tr R^-1."""
        if self.factor is not None:
            return float(np.trace(self.factor.inverse_lower()))
        return float((self.counts / self.variances).sum())
