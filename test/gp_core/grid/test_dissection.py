"""Nested dissection against dense matrices: the model that it stands for, its solution, and how near the kernel is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov import surface
from gp_core.grid.markov.dissection import dissect
from gp_core.grid.markov.elimination_upwards import eliminate, find_filled
from gp_core.grid.markov.front_arrays import Equations, Factors, KeptBorders, Moments
from gp_core.grid.markov.fronts import BORDER, NODES, PIVOTS, Fronts
from gp_core.grid.markov.prior import lags_within, make_markov_prior
from gp_core.grid.markov.substitution_downwards import substitute
from gp_core.kernels import Matern


def lattice_covariance(prior, n_y, n_x):
    y, x = np.divmod(np.arange(n_y * n_x), n_x)
    C = lags_within(prior, n_y, n_x)[n_y + np.subtract.outer(y, y), n_x + np.subtract.outer(x, x)]
    C[np.diag_indices(len(C))] *= 1.0 + 1e-10
    return C


def model_precision(plan, C):
    """The product of the conditional densities of all boxes, with dense matrices."""
    Q = np.zeros_like(C)
    for box in plan.boxes:
        p, m = box[PIVOTS], box[BORDER]
        front = plan.nodes[box[NODES] : box[NODES] + p + m]
        own, border = front[:p], front[p:]
        B = np.zeros((p, 0))
        if m:
            B = linalg.solve(C[np.ix_(border, border)], C[np.ix_(border, own)], assume_a="pos").T
        V = C[np.ix_(own, own)] - B @ C[np.ix_(border, own)]
        Z = np.hstack([np.eye(p), -B])
        Q[np.ix_(front, front)] += Z.T @ linalg.solve(V, Z, assume_a="pos")
    return Q


def data_with_a_hole(n_y, n_x, rng):
    """W' R^-1 W of points whose splines are 3 x 3 coefficients, none in a round hole; dense and as a stencil."""
    A = np.zeros((n_y * n_x, n_y * n_x))
    for _ in range(2 * n_y * n_x):
        y, x = rng.integers(n_y - 2), rng.integers(n_x - 2)
        if np.hypot(y + 1 - 0.4 * n_y, x + 1 - 0.5 * n_x) < 0.25 * n_x:
            continue
        at = (y + np.arange(3))[:, None] * n_x + x + np.arange(3)
        w = np.outer(rng.random(3), rng.random(3)).ravel()
        A[np.ix_(at.ravel(), at.ravel())] += 30.0 * np.outer(w, w)
    stencil = np.zeros((n_y * n_x, 13))
    for place, one, other in neighbours(n_y, n_x):
        stencil[one, place] = A[one, other]
    return A, stencil


def neighbours(n_y, n_x):
    for y in range(n_y):
        for x in range(n_x):
            for dy in range(3):
                for dx in range(0 if dy == 0 else -2, 3):
                    if y + dy < n_y and 0 <= x + dx < n_x:
                        yield 5 * dy + dx, y * n_x + x, (y + dy) * n_x + x + dx


def solve(plan, stencil, right):
    sides, N = right.shape
    filled = np.zeros(len(plan.boxes), dtype=bool)
    F, X, shared = (np.empty(plan.lengths[k], dtype=np.float32) for k in (0, 1, 4))
    factors = Factors(filled, F, X, np.zeros((N, sides)))
    kept = KeptBorders(np.empty(plan.lengths[2]), np.empty((plan.lengths[3], sides)))
    moments = Moments(np.zeros((sides, N)), np.zeros((N, 13)))
    for job in plan.jobs[::-1]:
        find_filled(job.boxes, plan.boxes, plan.nodes, stencil, filled)
        room = job.stack_up(sides)
        assert eliminate(job.boxes, plan.tables, Equations(stencil, right), 1.0, factors, kept, room)
    for job in plan.jobs:
        substitute(job.boxes, plan.tables, factors, shared, moments, job.stack_down)
    return moments.means, moments.covariances


@pytest.mark.parametrize("leaves", [(1, 1), (2, 1), (3, 5), (7, 4)])
def test_every_coefficient_is_a_pivot_once_and_borders_come_before(leaves):
    boxes = dissect(leaves, ((1, (3,)), (0, (0, 6))))
    done = np.zeros((9 * leaves[0] - 2) * (9 * leaves[1] - 2), dtype=int)
    for box in boxes:
        assert (done[box.border] == 1).all()
        done[box.pivots] += 1
    assert (done == 1).all()


@pytest.mark.parametrize(("nu", "size"), [(1.5, (40, 30)), (2.5, (25, 34))])
def test_means_and_covariances_are_those_of_the_dense_model_and_near_those_of_the_kernel(nu, size):
    rng = np.random.default_rng(3)
    prior = make_markov_prior(1.0 * Matern(1.0, nu=nu), (1.0 / 12.0,) * 2, (1.0, 1.0), 1.0, 8, 24)
    plan = Fronts(prior).plan(*size)
    n_y, n_x = plan.size
    C = lattice_covariance(prior, n_y, n_x)
    A, stencil = data_with_a_hole(n_y, n_x, rng)
    heights = linalg.cholesky(C, lower=True) @ rng.standard_normal((len(C), 2))
    half = np.linalg.cholesky(A + 1e-9 * np.eye(len(A)))
    right = np.ascontiguousarray((A @ heights + half @ rng.standard_normal(heights.shape)).T)
    means, covariances = solve(plan, stencil, right)

    S = linalg.inv(model_precision(plan, C) + A)
    sd = np.sqrt(np.diagonal(S))
    assert np.abs((means - right @ S) / sd).max() < 1e-3
    for place, one, other in neighbours(n_y, n_x):
        assert abs(covariances[one, place] - S[one, other]) < 1e-4 * sd[one] * sd[other]

    exact = C - C @ linalg.solve(np.eye(len(C)) + A @ C, A @ C)
    exact_sd = np.sqrt(np.diagonal(exact))
    assert np.sqrt(np.mean(((means - right @ exact) / exact_sd) ** 2)) < 0.025
    assert np.median(np.abs(covariances[:, 0] / np.diagonal(exact) - 1.0)) < 0.01


def test_panes_of_a_large_window_agree_with_one(monkeypatch):
    rng = np.random.default_rng(4)
    xy = rng.uniform((0.0, 0.0), (16.0, 6.0), (12_000, 2))
    xy = xy[np.hypot(xy[:, 0] - 8.0, xy[:, 1] - 3.0) > 0.9]
    z = np.sin(xy[:, 0]) * np.cos(2.0 * xy[:, 1]) + 0.1 * rng.standard_normal(len(xy))
    found = []
    for most in (surface._MOST, 140):
        monkeypatch.setattr(surface, "_MOST", most)
        gp = GridGP(Grid((0.0, 0.0), (60, 160), 0.1), 1.0 * Matern(1.5, nu=1.5), 0.01)
        gp.update(xy, z)
        found.append(gp.posterior())
        panes = gp._surface._panes
    assert len(panes) > 1
    one, other = found
    # Separators lie elsewhere, so that the two differ by as much as each from the kernel.
    error = (other.mean - one.mean) / np.sqrt(one.variance)
    assert np.sqrt(np.mean(error**2)) < 0.03
    assert np.abs(error).max() < 0.15
    ratio = np.abs(other.variance / one.variance - 1.0)
    assert np.median(ratio) < 0.01
    assert ratio.max() < 0.06
