"""Quantiles of the chi-square distribution; scipy.stats takes a second to import for them."""

from __future__ import annotations

from scipy.special import gammaincinv


def quantile(probability: float, degrees: int) -> float:
    """x below which a sum of so many squared standard normals lies with this probability."""
    return 2.0 * float(gammaincinv(0.5 * degrees, probability))
