"""is_valid_kernel finds what breaks."""

import numpy as np
import pytest

from gp_core.kernels import RBF, White, is_valid_kernel

X = np.random.default_rng(0).normal(size=(10, 2))


def test_a_kernel_passes_and_reports_its_smallest_eigenvalue():
    result = is_valid_kernel(RBF() + White(0.1), X)
    assert result
    assert result.reason == ""
    assert result.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh((RBF() + White(0.1))(X))[0])


def test_a_semidefinite_matrix_passes():
    assert is_valid_kernel(lambda A, B: np.ones((len(A), len(B))), X)


def test_the_sigmoid_function_is_not_a_kernel():
    result = is_valid_kernel(lambda A, B: np.tanh(A @ B.T - 1.0), X)
    assert not result
    assert result.smallest_eigenvalue < 0.0
    assert "not positive semi-definite" in result.reason


def test_asymmetry_is_named():
    def lopsided(A, B):
        K = RBF()(A, B)
        K[2, 5] += 0.3
        return K

    result = is_valid_kernel(lopsided, X)
    assert not result
    assert result.asymmetry == pytest.approx(0.3)
    assert "x_2" in result.reason
    assert "x_5" in result.reason


def test_values_that_are_not_finite_break_it():
    result = is_valid_kernel(lambda A, B: np.full((len(A), len(B)), np.nan), X)
    assert not result
    assert "NaN" in result.reason


def test_a_function_with_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"matrix \(10, 10\)"):
        is_valid_kernel(lambda A, B: np.zeros(3), X)
