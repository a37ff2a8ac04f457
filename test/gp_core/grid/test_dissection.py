"""Nested dissection against dense matrices: the model that it stands for, its solution, and how near the kernel is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov import surface
from gp_core.grid.markov.dissection import dissect
from gp_core.grid.markov.elimination_upwards import eliminate, find_filled
from gp_core.grid.markov.front_arrays import Factors
from gp_core.grid.markov.fronts import BORDER, NODES, PIVOTS, Fronts
from gp_core.grid.markov.mean_solution import residual
from gp_core.grid.markov.mean_solution import solve as solve_means
from gp_core.grid.markov.prior import lags_within, make_markov_prior
from gp_core.grid.markov.substitution_downwards import substitute
from gp_core.grid.workers import Workers
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
    """Means, corrected once, and covariances."""
    filled = np.zeros(len(plan.boxes), dtype=bool)
    F, X, shared = (np.empty(plan.lengths[k], dtype=np.float32) for k in (0, 1, 3))
    factors = Factors(filled, F, X)
    triangles = np.empty(plan.lengths[2], dtype=plan.precision)
    covariances = np.zeros((right.shape[1], 13))
    in_single = True if plan.precision == np.float32 else None
    for job in plan.jobs[::-1]:
        find_filled(job.boxes, plan.boxes, plan.nodes, stencil, filled)
        assert eliminate(job.boxes, plan.tables, stencil, 1.0, factors, triangles, in_single, job.stack_up)
    for job in plan.jobs:
        substitute(job.boxes, plan.tables, factors, shared, covariances, job.stack_down)
    means = solve_means(right, plan, factors, Workers(2))
    means += solve_means(residual(means, right, stencil, plan, Workers(2)), plan, factors, Workers(2))
    return means, covariances


@pytest.mark.parametrize("leaves", [(1, 1), (2, 1), (3, 5), (7, 4)])
def test_every_coefficient_is_a_pivot_once_and_borders_come_before(leaves):
    boxes = dissect(leaves, ((1, (3,)), (0, (0, 6))))
    done = np.zeros((9 * leaves[0] - 2) * (9 * leaves[1] - 2), dtype=int)
    for box in boxes:
        assert (done[box.border] == 1).all()
        done[box.pivots] += 1
    assert (done == 1).all()


@pytest.mark.parametrize(
    ("nu", "size", "single"), [(1.5, (40, 30), True), (1.5, (40, 30), False), (2.5, (25, 34), False)]
)
def test_means_and_covariances_are_those_of_the_dense_model_and_near_those_of_the_kernel(nu, size, single):
    rng = np.random.default_rng(3)
    prior = make_markov_prior(1.0 * Matern(1.0, nu=nu), (1.0 / 12.0,) * 2, (1.0, 1.0), 1.0, 8, 24)
    plan = Fronts(prior).plan(*size, single=single)
    n_y, n_x = plan.size
    C = lattice_covariance(prior, n_y, n_x)
    A, stencil = data_with_a_hole(n_y, n_x, rng)
    heights = linalg.cholesky(C, lower=True) @ rng.standard_normal((len(C), 2))
    half = np.linalg.cholesky(A + 1e-9 * np.eye(len(A)))
    right = np.ascontiguousarray((A @ heights + half @ rng.standard_normal(heights.shape)).T)
    means, covariances = solve(plan, stencil, right)

    S = linalg.inv(model_precision(plan, C) + A)
    sd = np.sqrt(np.diagonal(S))
    assert np.abs((means - right @ S) / sd).max() < 1e-4
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


def test_slopes_have_a_variance_also_where_two_panes_meet_far_from_data(monkeypatch):
    monkeypatch.setattr(surface, "_MOST", 140)
    rng = np.random.default_rng(4)
    xy = rng.uniform((0.0, 0.0), (1.5, 6.0), (4_000, 2))
    gp = GridGP(Grid((0.0, 0.0), (60, 160), 0.1), 1.0 * Matern(3.0, nu=1.25), 1e-3)
    gp.update(xy, np.sin(xy[:, 0]))
    p = gp.posterior()
    assert len(gp._surface._panes) > 1
    # beyond all data slopes have about the variance of the prior, also between panes that know the height otherwise
    far = p.gradient_variance[:, 30:]
    typical = np.median(far)
    assert (far > 0.3 * typical).all()
    assert (far < 1.5 * typical).all()


@pytest.mark.parametrize("repeated", [50, 2_000, 100_000])
def test_many_points_in_one_spot_leave_the_map_around_as_it_is(repeated):
    """They say nothing of the ground beside them: numbers as large as theirs must not drown what other points say."""
    rng = np.random.default_rng(5)
    xy = rng.uniform(0.0, 4.0, (3_000, 2))
    spots = rng.uniform(1.0, 3.0, (20, 2))
    found = []
    for count in (50, repeated):
        gp = GridGP(Grid((0.0, 0.0), (40, 40), 0.1), 0.09 * Matern(1.5, nu=1.5), 1e-3)
        gp.update(xy, np.sin(xy[:, 0]))
        many = np.repeat(spots, count, axis=0)
        gp.update(many, np.sin(many[:, 0]), np.full(len(many), 1e-8))
        found.append(gp.posterior())
    one, other = found
    change = np.abs(other.mean - one.mean) / np.sqrt(one.variance)
    apart = np.hypot(*(gp.grid.centers[:, :, None] - spots).transpose(3, 0, 1, 2)).min(axis=-1) > 0.3
    assert change.max() < 1.0
    assert change[apart].max() < 0.05
    assert (other.variance > 0.0).all()
    np.testing.assert_allclose(other.variance[apart], one.variance[apart], rtol=0.02)
