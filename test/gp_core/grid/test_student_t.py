"""Against scipy.stats, which is right but slow to import."""

from __future__ import annotations

import numpy as np
from scipy import stats

from gp_core.grid import student_t

X = np.linspace(-6.0, 6.0, 25)


def test_it_is_the_t_distribution():
    for degrees in (0.7, 2.0, 5.5, 300.0, np.inf):
        n = np.full(X.shape, degrees)
        np.testing.assert_allclose(student_t.inside(X, n), 2.0 * stats.t.cdf(np.abs(X), n) - 1.0, atol=1e-12)
        np.testing.assert_allclose(student_t.log_density(X, n), stats.t.logpdf(X, n), rtol=1e-9)
        np.testing.assert_allclose(student_t.reach(0.95, n), stats.t.ppf(0.975, n), rtol=1e-9)
