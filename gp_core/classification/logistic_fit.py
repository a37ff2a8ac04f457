"""Penalised, weighted logistic regression by IRLS, for two or more classes and many sets of weights at once.

Global logistic regression is one problem, with the sample weights; local logistic regression is one problem
per query, with the weights that the kernel gives. Both are solved here.

The curvature of L F coefficients is formed and factorised where that is cheap. For one large problem with several
classes its products with vectors are enough: conjugate gradients, with the blocks of the single classes as
preconditioner, find Newton's step to the accuracy that it needs.

Shapes: B problems, N points, F features, C classes, L latent functions (1 for two classes, else C).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax, softmax

from gp_core.arrays import Array
from gp_core.irls import IRLSResult, Rows, irls

_DIRECT = 150
"""Up to this many coefficients the curvature of several classes is formed and factorised as a whole."""
_DEPENDENT = 1e-12
"""Of the largest curvature: below this there is none."""
_LARGEST = 1e100
"""Of a coefficient: the square of a larger one soon overflows."""
_MOST_PRODUCTS = 200
"""Products after which conjugate gradients give way to the factorisation."""
_STALE = 25
"""Products after which the next step gets a preconditioner of its own."""


def fit_logistic(
    Phi: Array,
    codes: NDArray[np.intp],
    n_classes: int,
    weights: Array,
    penalty: Array,
    *,
    start: Array | None = None,
    tol: float = 1e-14,
    max_iter: int = 100,
) -> IRLSResult:
    """argmax Σ_n ω_bn log p(y_n | x_n, w_b) - Σ_f penalty_f Σ_l w_blf² / 2 for every b.

    Two classes: p(second | x) = 1 / (1 + exp(-w'φ)). More: p(c | x) ∝ exp(w_c'φ). Where the classes can be
    separated and nothing is penalised there is no maximum; the iterations then end with w finite and every
    probability within about `tol` of 0 or 1.

    Phi: (N, F) features
    codes: (N,) class of each point, 0 ... C-1
    n_classes: C
    weights: (B, N) ω, not negative
    penalty: (F,) not negative
    start: (B, L, F) coefficients to begin from; 0 unless given
    tol: on half the Newton decrement
    max_iter: the most Newton steps

    Returns states (B, L, F).
    """
    problem = _Problem(Phi, codes, n_classes, weights, penalty, tol)
    if start is None:
        start = np.zeros((len(weights), 1 if n_classes == 2 else n_classes, Phi.shape[1]))
    return irls(problem.value, problem.direction, start, tol=tol, max_iter=max_iter)


def weight_sensitivity(
    Phi: Array,
    codes: NDArray[np.intp],
    n_classes: int,
    weights: Array,
    penalty: Array,
    w: Array,
    out: Array,
    out_codes: NDArray[np.intp],
) -> Array:
    """∂ log p(out_codes_b | out_b, w_b) / ∂ω_bn (B, N) through the maximiser w_b.

    The gradient of the objective vanishes at w, so dw/dω_n = H⁻¹ ∂ log p(y_n | x_n, w)/∂w.

    Phi, codes, n_classes, weights, penalty: as for `fit_logistic`
    w: (B, L, F) maximisers
    out: (B, F) features of a further point for each problem
    out_codes: (B,) its class
    """
    problem = _Problem(Phi, codes, n_classes, weights, penalty)
    B, L, F = w.shape
    classes = np.arange(n_classes)[-L:]
    at_out = probabilities(np.einsum("blf,bf->bl", w, out)[:, :, None])[:, -L:, 0]
    score = ((out_codes[:, None] == classes) - at_out)[:, :, None] * out[:, None, :]  # (B, L, F)
    p = problem.class_shares(w)
    residuals = problem.residuals(w, p)
    system = problem.curvature(p, residuals, np.arange(B))
    v = _solve(system, score.reshape(B, L * F, 1)).reshape(B, L, F)
    result: Array = np.einsum("bln,bln->bn", v @ Phi.T, residuals)
    return result


def _solve(systems: Array, right: Array) -> Array:
    """H⁻¹ g (B, I, 1) for H (B, I, I).

    Without a penalty, features that depend on each other or are next to nothing leave directions in which the objective
    does not change, or only with coefficients that no number can hold: these are left out.
    """
    try:
        solved: Array = np.linalg.solve(systems, right).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        solved = np.full_like(right, np.nan)
    beyond = ~(np.abs(solved) < _LARGEST).all(axis=(1, 2))
    if beyond.any():
        solved[beyond] = np.linalg.pinv(systems[beyond], rcond=_DEPENDENT, hermitian=True) @ right[beyond]
    return solved


def _each(blocks: Array, vectors: Array) -> Array:
    """Blocks (L, F, F) times vectors (L, F)."""
    product: Array = (blocks @ vectors[:, :, None])[:, :, 0]
    return product


def latent_functions(w: Array, Phi: Array) -> Array:
    """η (..., L, N) = w φ.

    w: (..., L, F) coefficients
    Phi: (N, F) features
    """
    eta: Array = w @ Phi.T
    return eta


def probabilities(eta: Array) -> Array:
    """p (..., C, N) from latent functions (..., L, N)."""
    p: Array = softmax(_all_classes(eta), axis=-2)
    return p


def log_probabilities(eta: Array) -> Array:
    """log p (..., C, N) from latent functions (..., L, N), finite far into the tails."""
    log_p: Array = log_softmax(_all_classes(eta), axis=-2)
    return log_p


def _all_classes(eta: Array) -> Array:
    """One row per class: for two classes the first one has η = 0."""
    if eta.shape[-2] > 1:
        return eta
    return np.concatenate([np.zeros_like(eta), eta], axis=-2)


def _log_share(eta: Array, codes: NDArray[np.intp]) -> Array:
    """log p (B, N) of the class of each point, to relative accuracy also where p is close to 1.

    With d_c = eta_c - eta_own and m = max(d, 0), -log p = m + log(exp(-m) + sum_{c != own} exp(d_c - m)). Where the
    points of one class are all certain the objective is a sum of such numbers: rounded to 1e-16, no step would gain.

    eta: (B, C, N)
    """
    points = np.arange(eta.shape[2])
    d = eta - eta[:, codes, points][:, None, :]
    d[:, codes, points] = -np.inf
    m = np.maximum(d.max(axis=1), 0.0)
    with np.errstate(invalid="ignore"):  # a trial that overflows is NaN, which IRLS backs away from
        tail = np.exp(d - m[:, None, :]).sum(axis=1)
        log_p: Array = -m - np.log1p(tail + np.expm1(-m))
    return log_p


@dataclass
class _Problem:
    Phi: Array
    codes: NDArray[np.intp]
    n_classes: int
    weights: Array
    penalty: Array
    tol: float = 1e-14
    preconditioner: Array | None = None

    @property
    def gauge(self) -> float:
        """Weight of Σ_f (Σ_l w_lf)² / 2 in the objective.

        With a latent function per class, adding the same to all of them changes no probability. Of the
        equivalent solutions this picks the one that adds up to 0, and it leaves the value there as it is.
        """
        return 1.0 if self.n_classes > 2 else 0.0

    def value(self, w: Array, rows: Rows) -> Array:
        eta = latent_functions(w, self.Phi)
        log_p: Array
        if self.n_classes == 2:
            log_p = log_expit(np.where(self.codes == 1, 1.0, -1.0) * eta[:, 0])
        else:
            log_p = _log_share(eta, self.codes)
        prior = 0.5 * np.einsum("blf,f->b", w**2, self.penalty)
        prior += 0.5 * self.gauge * np.einsum("bf->b", w.sum(axis=1) ** 2)
        result: Array = np.einsum("bn,bn->b", self.weights[rows], log_p) - prior
        return result

    def direction(self, w: Array, rows: Rows) -> tuple[Array, Array]:
        B, L, F = w.shape
        p = self.class_shares(w)
        residuals = self.residuals(w, p)
        gradient: Array = (self.weights[rows][:, None, :] * residuals) @ self.Phi - self.penalty * w
        gradient -= self.gauge * w.sum(axis=1, keepdims=True)
        if B == 1 and L > 1 and L * F > _DIRECT:
            found = self.step_from_products(p[0], gradient[0], self.weights[rows[0]])
            if found is not None:
                return found[None], np.array([np.vdot(gradient, found)])
        flat = gradient.reshape(B, L * F)
        step = _solve(self.curvature(p, residuals, rows), flat[:, :, None])
        return step.reshape(B, L, F), np.einsum("bi,bi->b", flat, step[:, :, 0])

    def class_shares(self, w: Array) -> Array:
        """Probabilities (B, L, N) of the classes with a latent function."""
        eta = latent_functions(w, self.Phi)
        p: Array = expit(eta) if eta.shape[1] == 1 else softmax(eta, axis=1)
        return p

    def residuals(self, w: Array, p: Array) -> Array:
        """1 - p of the own class and -p of the others (B, L, N), to relative accuracy also where p is close to 1.

        p: (B, L, N) the shares at w
        """
        if p.shape[1] == 1:
            sign = np.where(self.codes == 1, 1.0, -1.0)
            result: Array = sign * expit(-sign * latent_functions(w, self.Phi))
            return result
        result = -p
        points = np.arange(p.shape[2])
        result[:, self.codes, points] = 0.0
        result[:, self.codes, points] = -result.sum(axis=1)
        return result

    def step_from_products(self, p: Array, gradient: Array, weights: Array) -> Array | None:
        """H⁻¹ gradient (L, F) by preconditioned conjugate gradients; None if they do not get there.

        The residual, in the norm of the preconditioner, falls to a tenth of the gradient's, and farther where
        that is small: Newton's convergence stays faster than linear. Below the tolerance nothing is gained.
        """
        shares = weights * p

        def product(V: Array) -> Array:
            """H V = (ω p (η_V - Σ_l p_l η_V,l)) Φ + penalty V, the gauge included."""
            eta = V @ self.Phi.T
            eta -= np.einsum("ln,ln->n", p, eta)
            eta *= shares
            HV: Array = eta @ self.Phi
            HV += self.penalty * V
            HV += self.gauge * V.sum(axis=0)
            return HV

        if self.preconditioner is None:
            self.preconditioner = self.inverse_blocks(shares * (1.0 - p))
        step, residual = np.zeros_like(gradient), gradient.copy()
        z = _each(self.preconditioner, residual)
        size = first = float(np.vdot(residual, z))
        enough = max(min(1e-2, first) * first, min(1e-2 * first, 0.1 * self.tol))
        search = z
        for products in range(_MOST_PRODUCTS + 1):
            if size <= enough:
                if products > _STALE:
                    self.preconditioner = None
                return step
            H_search = product(search)
            curvature = float(np.vdot(search, H_search))
            if not curvature > 0.0:
                break
            length = size / curvature
            step += length * search
            residual -= length * H_search
            z = _each(self.preconditioner, residual)
            size, last = float(np.vdot(residual, z)), size
            search = z + (size / last) * search
        self.preconditioner = None
        return None

    def inverse_blocks(self, curvature: Array) -> Array:
        """(Φ' diag(curvature_l) Φ + penalty)⁻¹ (L, F, F), one block per class, from curvatures (L, N)."""
        blocks = np.stack([(self.Phi.T * c) @ self.Phi for c in curvature])
        diagonal = np.einsum("lii->li", blocks)
        diagonal += self.penalty + self.gauge
        diagonal += 1e-10 * diagonal + np.sqrt(np.finfo(np.float64).tiny)
        inverse: Array = np.linalg.inv(blocks)
        return inverse

    def curvature(self, p: Array, residuals: Array, rows: Rows) -> Array:
        """Minus the Hessian (B, L F, L F) at probabilities and residuals (B, L, N)."""
        B, L, _ = p.shape
        F = self.Phi.shape[1]
        weights = self.weights[rows]
        rest = np.where(residuals > 0.0, residuals, 1.0 - p)  # 1 - p, accurate where the own class is certain
        # Minus the Hessian, block by block: Φ' diag(ω p_l (δ_lm - p_m)) Φ.
        H = np.empty((B, L, F, L, F))
        for i in range(L):
            for j in range(i + 1):
                curvature = weights * p[:, i] * (rest[:, j] if i == j else -p[:, j])
                H[:, i, :, j, :] = (self.Phi.T * curvature[:, None, :]) @ self.Phi
                H[:, i, :, j, :] += self.gauge * np.eye(F)
                H[:, j, :, i, :] = H[:, i, :, j, :]
        system = H.reshape(B, L * F, L * F)
        diagonal = np.einsum("bii->bi", system)
        diagonal += np.tile(self.penalty, L)
        # Features that repeat each other, and points that are all certain, leave H singular: a little of
        # what H would be for undecided points keeps the step finite, and features that underflow at 0.
        undecided = np.tile(weights @ self.Phi**2, L)
        diagonal += 1e-12 * (diagonal - self.gauge) + 1e-14 * undecided + np.sqrt(np.finfo(np.float64).tiny)
        return system
