"""Kernels as values: algebra, promotion, printing, equality, hashing, copies; theta in and out."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_list import CASES, NAMES, points
from sklearn.base import clone

import gp_core.basis
import gp_core.kernels
from gp_core.kernels import (
    RBF,
    Constant,
    EditDistance,
    Linear,
    Matern,
    Metric,
    Polynomial,
    Product,
    RationalQuadratic,
    Scaled,
    SetIntersection,
    Sum,
    White,
    exp,
)

NAMESPACE = vars(gp_core.kernels) | vars(gp_core.basis) | {"inf": math.inf}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_prints_as_the_expression_that_makes_it(case):
    assert eval(repr(case.kernel), dict(NAMESPACE)) == case.kernel


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_copies_are_equal_and_hash_alike(case):
    k = case.kernel
    for other in (
        pickle.loads(pickle.dumps(k)),
        copy.deepcopy(k),
        copy.copy(k),
        clone(k),
        k.with_theta(k.theta),
    ):
        if other.theta.size:
            np.testing.assert_allclose(other.theta, k.theta, rtol=1e-14)
        np.testing.assert_allclose(other(points(3)), k(points(3)), rtol=1e-12)
    assert pickle.loads(pickle.dumps(k)) == k
    assert hash(copy.deepcopy(k)) == hash(k)


def test_different_kernels_are_different():
    kernels = [case.kernel for case in CASES]
    assert len(set(kernels)) == len(kernels)
    assert RBF(1.0) != RBF(2.0)
    assert RBF(1.0) != RBF(1.0, (0.1, 1.0))
    assert RBF(1.0) != Matern(1.0)
    assert RBF([1.0, 2.0]) == RBF(np.array([1.0, 2.0]))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_immutable(case):
    field = dataclasses.fields(case.kernel)
    name = field[0].name if field else "anything"
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.kernel, name, 1.0)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_theta_round_trip(case):
    k = case.kernel
    theta = k.theta + 0.1
    assert k.bounds.shape == (k.n_theta, 2)
    assert len(k.theta_names) == len(set(k.theta_names)) == len(k.signed) == k.n_theta
    np.testing.assert_allclose(k.with_theta(theta).theta, theta, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(k.theta, case.kernel.theta)  # the original is untouched


def test_theta_is_in_log_space_with_bounds():
    k = 2.0 * RBF([0.5, 3.0], (0.1, 10.0)) + White(0.2, "fixed")
    np.testing.assert_allclose(k.theta, np.log([2.0, 0.5, 3.0]))
    np.testing.assert_allclose(k.bounds[1:], np.log([[0.1, 10.0]] * 2))
    assert k.theta_names == ("scale", "length_scale[0]", "length_scale[1]")
    assert k.with_theta(np.log([4.0, 1.0, 2.0])) == 4.0 * RBF([1.0, 2.0], (0.1, 10.0)) + White(0.2, "fixed")


def test_values_come_before_bounds():
    assert Matern(0.5, 2.5) == Matern(length_scale=0.5, nu=2.5)
    assert RationalQuadratic(0.5, 2.0) == RationalQuadratic(length_scale=0.5, alpha=2.0)
    assert Polynomial(3, 0.5) == Polynomial(degree=3, offset=0.5)
    assert Matern(0.5, length_scale_bounds="fixed").n_theta == 0


def test_bounds_per_entry():
    k = RBF([1.0, 1.0], [(0.1, 1.0), (1.0, 100.0)])
    np.testing.assert_allclose(k.bounds, np.log([[0.1, 1.0], [1.0, 100.0]]))


def test_names_tell_siblings_apart():
    assert (2.0 * RBF() + 3.0 * Matern()).theta_names == (
        "k0.scale",
        "k0.length_scale",
        "k1.scale",
        "k1.length_scale",
    )


def test_names_tell_siblings_apart_also_if_one_has_entries():
    names = (RBF([1.0, 2.0]) * Matern()).theta_names
    assert names == ("k0.length_scale[0]", "k0.length_scale[1]", "k1.length_scale")


def test_values_lists_fixed_parameters_too():
    assert (2.0 * RBF([1.0, 2.0], "fixed")).values() == {"scale": 2.0, "length_scale": (1.0, 2.0)}


def test_zero_offset_stays_out_of_theta():
    assert Polynomial(2, 0.0).n_theta == 0
    assert Polynomial(2, 1.0).n_theta == 1


def test_scalars_promote():
    assert RBF() + 2.0 == Sum((RBF(), Constant(2.0)))
    assert 2 + RBF() == Sum((Constant(2.0), RBF()))
    assert 2 * RBF() == RBF() * 2.0 == Scaled(RBF(), 2.0)
    assert np.float64(2.0) * RBF() == Scaled(RBF(), 2.0)
    assert 3.0 * (2.0 * RBF()) == 6.0 * RBF()


def test_sum_and_product_are_associative():
    a, b, c = RBF(), Linear(), Matern()
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c) == Product((a, b, c))


@pytest.mark.parametrize("other", ["2", None, [1.0], True, 2j])
def test_nonsense_does_not_promote(other):
    with pytest.raises(TypeError):
        RBF() + other
    with pytest.raises(TypeError):
        other * RBF()


def test_rules_of_the_lectures():
    X, Z = points(5), points(4, seed=1)
    k1, k2 = RBF(0.7), Polynomial(2, 0.5)
    A, B = k1(X, Z), k2(X, Z)
    np.testing.assert_allclose((3.0 * k1)(X, Z), 3.0 * A)
    np.testing.assert_allclose((k1 + k2)(X, Z), A + B)
    np.testing.assert_allclose((k1 * k2)(X, Z), A * B)
    np.testing.assert_allclose((k2**3)(X, Z), B**3)
    np.testing.assert_allclose(exp(k1)(X, Z), np.exp(A))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF(0.0), "length_scale must be > 0"),
        (lambda: RBF(-1.0), "length_scale must be > 0"),
        (lambda: RBF([1.0, -1.0]), "length_scale must be > 0"),
        (lambda: RBF(math.nan), "NaN"),
        (lambda: RBF([[1.0]]), "1-dimensional"),
        (lambda: RBF([]), "empty"),
        (lambda: RBF("long"), "must be numbers"),
        (lambda: RBF(1.0, (2.0, 1.0)), "low <= high"),
        (lambda: RBF(1.0, (0.0, 1.0)), "must be > 0"),
        (lambda: RBF(1.0, "loose"), "fixed"),
        (lambda: RBF(1.0, (1.0, 2.0, 3.0)), "one pair per entry"),
        (lambda: Matern(nu=0.0), "nu must be > 0"),
        (lambda: Matern(nu=-1.5), "nu must be > 0"),
        (lambda: Polynomial(0), "degree must be >= 1"),
        (lambda: Polynomial(1.5), "degree must be an integer"),
        (lambda: Polynomial(2, -1.0), "offset must be >= 0"),
        (lambda: Constant(0.0), "value must be > 0"),
        (lambda: White(-1.0), "variance must be > 0"),
        (lambda: -1.0 * RBF(), "scale must be > 0"),
        (lambda: RBF() + -1.0, "value must be > 0"),
        (lambda: RBF() ** 0, "exponent must be >= 1"),
        (lambda: RBF() ** 0.5, "exponent must be an integer"),
        (lambda: exp(2.0), "needs a kernel"),
        (lambda: Sum(()), "at least one"),
        (lambda: Sum((1.0,)), "needs kernels"),
        (lambda: RBF() + SetIntersection(), "can't be combined"),
        (lambda: Metric(EditDistance(), 1.0), "takes objects"),
        (lambda: Metric(RBF(), 1.0, (1.0, 2.0)), r"matrix \(R, D\)"),
        (lambda: gp_core.kernels.Columns(RBF(), (-1,)), "must be >= 0"),
        (lambda: gp_core.kernels.Affine([[1.0, 2.0], [2.0, 1.0]]), "not positive semi-definite"),
        (lambda: gp_core.kernels.Affine([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: gp_core.kernels.Affine([1.0]), "square"),
        (lambda: gp_core.kernels.BasisFunctions("x"), "needs a Basis"),
        (lambda: gp_core.kernels.full_metric(RBF(), -np.eye(2)), "positive definite"),
    ],
)
def test_constructors_refuse_what_can_not_be_valid(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("theta", [[1.0, 2.0], [math.nan], [[1.0]], []])
def test_with_theta_refuses_a_vector_that_does_not_fit(theta):
    with pytest.raises(ValueError, match="theta"):
        RBF().with_theta(theta)


@pytest.mark.parametrize(
    ("kernel", "X", "Z", "message"),
    [
        (RBF(), np.zeros(3), None, r"reshape\(-1, 1\)"),
        (RBF(), np.zeros((0, 2)), None, "no points"),
        (RBF(), np.zeros((2, 0)), None, "dimension 0"),
        (RBF(), np.zeros((2, 2, 2)), None, "shape"),
        (RBF(), [[1.0, math.nan]], None, "NaN or infinity"),
        (RBF(), [[1.0, math.inf]], None, "NaN or infinity"),
        (RBF(), [["a"]], None, "must be numbers"),
        (RBF(), np.zeros((2, 2)), np.zeros((2, 3)), "must match"),
        (RBF([1.0, 2.0]), np.zeros((2, 3)), None, "2 length scales but the points have 3"),
        (gp_core.kernels.Affine(np.eye(2)), np.zeros((2, 3)), None, "3 inputs"),
        (Metric(RBF(), [1.0, 2.0]), np.zeros((2, 3)), None, "3 inputs"),
        (gp_core.kernels.Columns(RBF(), 2), np.zeros((2, 2)), None, "column 2"),
        (SetIntersection(), ["ab"], None, "must be a set"),
        (SetIntersection(), [], None, "no points"),
        (EditDistance(), "abc", None, "wrap one in a list"),
        (EditDistance(), [1, 2], None, "must be a string"),
    ],
)
def test_bad_points_are_refused(kernel, X, Z, message):
    with pytest.raises(ValueError, match=message):
        kernel(X, Z)


def expressions(depth=3):
    """Kernels of every shape that the algebra allows."""
    scales = st.sampled_from([0.5, 1.0, 2.0])
    leaves = st.sampled_from(
        [
            RBF(0.5),
            RBF([1.0, 2.0, 3.0]),
            Matern(nu=math.inf),
            Linear(),
            White(0.1),
            Constant(2.0, (1e-5, 1e5)),
            Metric(RBF(), 1.0),
        ]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Scaled, inner, scales, st.sampled_from(["auto", "fixed", (0.1, math.inf)])),
            st.builds(lambda a: Sum((a,)), inner),
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: Product((a, b)), inner, inner),
            st.builds(lambda a: a**2, inner),
            st.builds(exp, inner),
            st.builds(lambda a: gp_core.kernels.Columns(a, (0, 1, 2)), inner),
        ),
        max_leaves=2**depth,
    )


@given(expressions())
@settings(max_examples=150, deadline=None)
def test_every_expression_prints_as_itself(kernel):
    names = {name: value for name, value in NAMESPACE.items() if name != "inf"}
    assert eval(repr(kernel), names) == kernel


def test_sum_of_a_list():
    assert sum([RBF(), Linear(), White()]) == RBF() + Linear() + White()
    assert RBF() + 0.0 == RBF()


def test_parameters_by_name():
    k = 2.0 * RBF(0.5) + White(0.1)
    assert k.get_params() == {
        "scale": 2.0,
        "scale_bounds": "auto",
        "length_scale": 0.5,
        "length_scale_bounds": "auto",
        "variance": 0.1,
        "variance_bounds": "auto",
    }
    assert k.with_params(length_scale=3.0, variance_bounds="fixed") == 2.0 * RBF(3.0) + White(0.1, "fixed")
    assert k == 2.0 * RBF(0.5) + White(0.1)
