"""What holds for every kernel on every data set, driven by the one list."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from kernel_list import CASES, NAMES, D

from gp_core.kernels import is_valid_kernel

coordinates = st.floats(-4.0, 4.0, allow_subnormal=False).map(lambda v: round(v, 3))
point_sets = st.integers(1, 8).flatmap(lambda n: arrays(np.float64, (n, D), elements=coordinates))
few = settings(max_examples=25, deadline=None)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@given(X=point_sets)
@few
def test_valid_on_every_data_set(case, X):
    validity = is_valid_kernel(case.kernel, X)
    assert validity, validity.reason


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@given(X=point_sets, Z=point_sets)
@few
def test_symmetric_in_its_arguments(case, X, Z):
    np.testing.assert_allclose(case.kernel(X, Z), case.kernel(Z, X).T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@given(X=point_sets, data=st.data())
@few
def test_each_entry_depends_on_its_two_points_only(case, X, data):
    keep = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1, unique=True))
    K = case.kernel(X)
    np.testing.assert_allclose(case.kernel(X[keep]), K[np.ix_(keep, keep)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@given(X=point_sets)
@few
def test_cauchy_schwarz(case, X):
    K, d = case.kernel(X), case.kernel.diag(X)
    bound = np.sqrt(np.outer(d, d))
    assert (np.abs(K) <= bound * (1.0 + 1e-10) + 1e-12).all()
