"""The one list of kernels that drives the property tests, each with its formula for a pair of points."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gamma, kv

from gp_core.basis import GaussianBasis, PolynomialBasis, SigmoidBasis
from gp_core.kernels import (
    RBF,
    Affine,
    BasisFunctions,
    Columns,
    Constant,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Metric,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Wendland,
    White,
    exp,
)

D = 3
ARD = (0.5, 1.0, 2.0)
FACTOR = ((0.3, -0.2, 0.5), (-0.7, 0.4, 0.1))
PSD = ((2.0, 0.5, 0.0), (0.5, 1.0, 0.3), (0.0, 0.3, 0.5))
CENTERS = ((0.0, 0.5, -0.5), (1.0, -1.0, 0.2))

Formula = Callable[[np.ndarray, np.ndarray, bool], float]


@dataclass(frozen=True)
class Case:
    """A kernel and its formula for one pair; `same` says whether the two points are one observation."""

    name: str
    kernel: Kernel
    formula: Formula


def _distance(x: np.ndarray, z: np.ndarray, scale: object) -> float:
    scales = np.broadcast_to(np.asarray(scale, dtype=float), x.shape)
    return math.sqrt(sum(((a - b) / s) ** 2 for a, b, s in zip(x, z, scales, strict=True)))


def _dot(x: np.ndarray, z: np.ndarray) -> float:
    return sum(float(a) * float(b) for a, b in zip(x, z, strict=True))


def _matern(nu: float, scale: object) -> Formula:
    def k(x: np.ndarray, z: np.ndarray, same: bool) -> float:
        t = math.sqrt(2.0 * nu) * _distance(x, z, scale)
        return 1.0 if t == 0.0 else 2.0 ** (1.0 - nu) / gamma(nu) * t**nu * kv(nu, t)

    return k


def _rbf(scale: object) -> Formula:
    return lambda x, z, same: math.exp(-0.5 * _distance(x, z, scale) ** 2)


def _quadratic_form(A: object) -> Formula:
    matrix = np.asarray(A)
    return lambda x, z, same: sum(x[i] * matrix[i, j] * z[j] for i in range(len(x)) for j in range(len(z)))


def _full_metric(x: np.ndarray, z: np.ndarray, same: bool) -> float:
    factor = np.asarray(FACTOR)
    metric = factor.T @ factor + np.diag(np.asarray(ARD) ** -2.0)
    return math.exp(-0.5 * _quadratic_form(metric)(x - z, x - z, same))


def _gaussian_features(x: np.ndarray) -> list[float]:
    return [1.0, *(math.exp(-0.5 * _distance(x, np.asarray(c), 0.8) ** 2) for c in CENTERS)]


def _sigmoid_features(x: np.ndarray) -> list[float]:
    return [
        1.0 / (1.0 + math.exp(-(_dot(np.asarray(v), x) + b)))
        for v, b in zip(CENTERS, (0.1, -0.3), strict=True)
    ]


def _periodic(scale: float, periods: tuple[float, ...]) -> Formula:
    def k(x: np.ndarray, z: np.ndarray, same: bool) -> float:
        squares = [math.sin(math.pi * (a - b) / p) ** 2 for a, b, p in zip(x, z, periods, strict=True)]
        return math.exp(-2.0 * sum(squares) / scale**2)

    return k


def _wendland(q: int, dimension: int, scale: object) -> Formula:
    """By the recursion phi_(q+1)(r) = int_r^1 t phi_q(t) dt from (1 - r)^j, normalised, with polynomials."""
    j = dimension // 2 + q + 1
    phi = np.polynomial.Polynomial([1.0, -1.0]) ** j
    for _ in range(q):
        antiderivative = (phi * np.polynomial.Polynomial([0.0, 1.0])).integ()
        phi = antiderivative(1.0) - antiderivative
    return lambda x, z, same: float(phi(r) / phi(0.0)) if (r := _distance(x, z, scale)) < 1.0 else 0.0


CASES = [
    Case("wendland-0", Wendland(4.0, smoothness=0), _wendland(0, 3, 4.0)),
    Case("wendland-1", Wendland((3.0, 4.0, 5.0), smoothness=1), _wendland(1, 3, (3.0, 4.0, 5.0))),
    Case("wendland-2", Wendland(5.0, smoothness=2, dimension=4), _wendland(2, 4, 5.0)),
    Case("periodic", Periodic(0.9, (1.5, 2.0, 2.5)), _periodic(0.9, (1.5, 2.0, 2.5))),
    Case(
        "periodic-one-period",
        2.0 * Periodic(1.2, 3.0) * RBF(2.0),
        lambda x, z, same: 2.0 * _periodic(1.2, (3.0, 3.0, 3.0))(x, z, same) * _rbf(2.0)(x, z, same),
    ),
    Case("rbf", RBF(0.7), _rbf(0.7)),
    Case("rbf-ard", RBF(ARD), _rbf(ARD)),
    Case("matern-1/2", Matern(0.7, nu=0.5), lambda x, z, same: math.exp(-_distance(x, z, 0.7))),
    Case("matern-3/2", Matern(ARD, nu=1.5), _matern(1.5, ARD)),
    Case("matern-5/2", Matern(0.8, nu=2.5), _matern(2.5, 0.8)),
    Case("matern-0.8", Matern(0.8, nu=0.8), _matern(0.8, 0.8)),
    Case("matern-1.2", Matern(0.8, nu=1.2), _matern(1.2, 0.8)),
    Case("matern-3.3", Matern(ARD, nu=3.3), _matern(3.3, ARD)),
    Case("matern-70", Matern(0.9, nu=70.3), _matern(70.3, 0.9)),
    Case("matern-inf", Matern(0.9, nu=math.inf), _rbf(0.9)),
    Case("exponential", Exponential(ARD), lambda x, z, same: math.exp(-_distance(x, z, ARD))),
    Case(
        "rational-quadratic",
        RationalQuadratic(ARD, alpha=0.6),
        lambda x, z, same: (1.0 + _distance(x, z, ARD) ** 2 / 1.2) ** -0.6,
    ),
    Case("linear", Linear(), lambda x, z, same: _dot(x, z)),
    Case("polynomial", Polynomial(3, 0.5), lambda x, z, same: (_dot(x, z) + 0.5) ** 3),
    Case("polynomial-homogeneous", Polynomial(2, 0.0), lambda x, z, same: _dot(x, z) ** 2),
    Case("affine", Affine(PSD), _quadratic_form(PSD)),
    Case("constant", Constant(2.0), lambda x, z, same: 2.0),
    Case("white", White(0.3), lambda x, z, same: 0.3 if same else 0.0),
    Case(
        "basis-polynomial",
        2.0 * BasisFunctions(PolynomialBasis(2)) + White(0.1),
        lambda x, z, same: (
            2.0 * (1.0 + _dot(x, z) + sum(x[i] * x[j] * z[i] * z[j] for i in range(D) for j in range(i, D)))
            + (0.1 if same else 0.0)
        ),
    ),
    Case(
        "basis-gaussian",
        BasisFunctions(GaussianBasis(CENTERS, 0.8, intercept=True, centers_bounds=(-5.0, 5.0))),
        lambda x, z, same: sum(
            a * b for a, b in zip(_gaussian_features(x), _gaussian_features(z), strict=True)
        ),
    ),
    Case(
        "basis-sigmoid",
        BasisFunctions(
            SigmoidBasis(CENTERS, (0.1, -0.3), weights_bounds=(-5.0, 5.0), biases_bounds=(-5.0, 5.0))
        ),
        lambda x, z, same: sum(
            a * b for a, b in zip(_sigmoid_features(x), _sigmoid_features(z), strict=True)
        ),
    ),
    Case("scaled", 2.0 * RBF(0.7), lambda x, z, same: 2.0 * _rbf(0.7)(x, z, same)),
    Case(
        "sum",
        2.0 * RBF(0.7) + White(0.1) + 1.0,
        lambda x, z, same: 2.0 * _rbf(0.7)(x, z, same) + (0.1 if same else 0.0) + 1.0,
    ),
    Case(
        "product",
        RBF(0.7) * (Linear() + 1.0) * Matern(1.0, nu=2.5),
        lambda x, z, same: _rbf(0.7)(x, z, same) * (_dot(x, z) + 1.0) * _matern(2.5, 1.0)(x, z, same),
    ),
    Case("power", (RBF(0.5) + 1.0) ** 3, lambda x, z, same: (_rbf(0.5)(x, z, same) + 1.0) ** 3),
    Case("exponential-of", exp(0.3 * Linear()), lambda x, z, same: math.exp(0.3 * _dot(x, z))),
    Case("full-metric", Metric(RBF(1.0, "fixed"), ARD, FACTOR), _full_metric),
    Case(
        "full-metric-polynomial",
        Metric(Polynomial(2), 0.7, FACTOR),
        lambda x, z, same: (
            (_quadratic_form(np.asarray(FACTOR).T @ np.asarray(FACTOR) + np.eye(D) / 0.49)(x, z, same) + 1.0)
            ** 2
        ),
    ),
    Case(
        "metric-exponential",
        Metric(Exponential(1.0, "fixed"), ARD),
        lambda x, z, same: math.exp(-_distance(x, z, ARD)),
    ),
    Case(
        "columns",
        Columns(RBF((1.0, 2.0)), (0, 2)) * Columns(RationalQuadratic(0.6), 1),
        lambda x, z, same: (
            math.exp(-0.5 * ((x[0] - z[0]) ** 2 + (x[2] - z[2]) ** 2 / 4.0))
            / (1.0 + 0.5 * (x[1] - z[1]) ** 2 / 0.36)
        ),
    ),
]
KERNELS = [case.kernel for case in CASES]
NAMES = [case.name for case in CASES]
DIFFERENTIABLE = [case for case in CASES if not case.kernel.why_not_differentiable()]


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D))


def naive(case: Case, X: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
    other = X if Z is None else Z
    return np.array(
        [[case.formula(x, z, Z is None and i == j) for j, z in enumerate(other)] for i, x in enumerate(X)]
    )
