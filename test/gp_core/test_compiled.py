"""Options that all compiled loops share."""

import numpy as np

from gp_core.compiled import compiled


@compiled()
def _quotients(a, b, out):
    for k in range(out.size):
        out[k] = a[k] / b[k]


def test_a_division_by_zero_raises_nothing():
    out = np.zeros(3)
    _quotients(np.array([1.0, -1.0, 0.0]), np.zeros(3), out)
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan])
