"""Octaves: smoothing as scipy does it, and the same correlations as of the fields themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from gpgmap_ros.closure.registration.octaves import (
    OCTAVES,
    correlate_fields,
    correlate_octaves,
    gaussian_matrix,
    remove_trend,
)

RNG = np.random.default_rng(5)
WEIGHT = np.where(np.hypot(*np.mgrid[-15:15, -20:20]) < 17.0, RNG.uniform(0.2, 1.0, (30, 40)), 0.0)


@pytest.mark.parametrize("blur", [6.0, 1.5])
def test_fields_are_smoothed_with_zeros_around_them(blur: float) -> None:
    field = RNG.standard_normal((30, 40))
    expected = gaussian_filter(field, blur, mode="constant", truncate=3.0)
    np.testing.assert_allclose(gaussian_matrix(30, blur) @ field @ gaussian_matrix(40, blur), expected)


def test_octaves_correlate_as_the_fields_between_their_ends() -> None:
    shared = gaussian_filter(RNG.standard_normal((2, 30, 40)), (0, 2, 2)) * 8.0
    a, b = (shared + 0.5 * RNG.standard_normal(shared.shape) for _ in range(2))
    octaves, (everything, detail) = correlate_octaves(WEIGHT, a, b, 6.0)
    finer = [remove_trend(WEIGHT, x, 6.0) for x in (a, b)]
    coarser = [np.where(WEIGHT > 0.0, x - y, 0.0) for x, y in zip((a, b), finer, strict=True)]
    assert octaves.shape == (OCTAVES + 1, 2)
    assert octaves[0] == pytest.approx(correlate_fields(WEIGHT, *coarser), rel=1e-3)
    assert everything == pytest.approx(correlate_fields(WEIGHT, a, b), rel=1e-3)
    assert detail == pytest.approx(correlate_fields(WEIGHT, *finer), rel=1e-3)
    assert octaves[1, 0] > octaves[-1, 0] + 0.3  # what both share is coarser than the noise
