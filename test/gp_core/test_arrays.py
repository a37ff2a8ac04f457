"""Checks on input name the cause and the remedy."""

import numpy as np
import pytest

from gp_core.arrays import (
    as_covariance,
    as_points,
    as_targets,
    as_vector,
    integer_at_least,
    non_negative,
    positive,
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_points([1.0, 2.0]), r"reshape\(-1, 1\)"),
        (lambda: as_points([[1.0, np.nan]]), r"first at index \(0, 1\)"),
        (lambda: as_points([["a"]]), "must be numbers"),
        (lambda: as_points([[1.0], [1.0, 2.0]]), "must be numbers"),
        (lambda: as_points(np.zeros((2, 3)), n_inputs=2), "expected 2"),
        (lambda: as_targets([1.0], 2), r"shape \(2,\)"),
        (lambda: as_targets([1.0, np.inf], 2), "NaN or infinity"),
        (lambda: as_vector([[1.0]], "v"), "v must have shape"),
        (lambda: as_vector([1.0], "v", 2), r"\(2,\)"),
        (lambda: positive(0.0, "v"), "v must be > 0"),
        (lambda: positive([1.0], "v"), "one number"),
        (lambda: non_negative(-1e-9, "v"), "v must be >= 0"),
        (lambda: integer_at_least(1.0, 0, "n"), "integer"),
        (lambda: integer_at_least(True, 0, "n"), "integer"),
        (lambda: integer_at_least(-1, 0, "n"), ">= 0"),
        (lambda: as_covariance([1.0, -1.0], 2, "S"), "negative variance"),
        (lambda: as_covariance([1.0], 2, "S"), "2 variances"),
        (lambda: as_covariance([[1.0, 2.0], [0.0, 1.0]], 2, "S"), "symmetric"),
        (lambda: as_covariance(np.eye(3), 2, "S"), r"\(2, 2\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_good_input():
    assert as_points([[1, 2]]).dtype == np.float64
    np.testing.assert_array_equal(as_covariance(2.0, 2, "S"), 2.0 * np.eye(2))
    np.testing.assert_array_equal(as_covariance([1.0, 2.0], 2, "S"), np.diag([1.0, 2.0]))
    assert integer_at_least(np.int64(3), 1, "n") == 3
