from __future__ import annotations

import pytest
from scipy.stats import chi2

from gpgmap_ros.closure.chi_square import quantile


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 1), (0.95, 6), (0.9999, 3)])
def test_it_is_that_of_scipy(probability, degrees):
    assert quantile(probability, degrees) == pytest.approx(chi2.ppf(probability, degrees), rel=1e-9)
