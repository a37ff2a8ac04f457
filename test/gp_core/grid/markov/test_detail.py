"""Detail below the lattice: exact for what it models, better on rough ground, nothing on smooth ground."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov.detail import (
    TERMS,
    Detail,
    compile_detail,
    detail_prior,
    fill_blocks,
    fill_places,
    join_details,
)
from gp_core.grid.markov.splines import weights
from gp_core.kernels import Matern

SIZE, STATED = 24.0, 0.02**2
KERNEL = 100.0 * Matern(30.0, nu=1.25)


def rough(seed: int, exponent: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Waves (2, K) of 0.5 to 40 cells, their phases and amplitudes, which grow with the length to this power."""
    rng = np.random.default_rng(seed)
    length = np.exp(rng.uniform(np.log(0.5), np.log(40.0), 500))
    angle = rng.uniform(0.0, 2.0 * np.pi, 500)
    direction = np.array([np.cos(angle), np.sin(angle)])
    return 2.0 * np.pi / length * direction, rng.uniform(0.0, 2.0 * np.pi, 500), 0.01 * length**exponent


def height(ground: tuple[np.ndarray, np.ndarray, np.ndarray], xy: np.ndarray) -> np.ndarray:
    waves, phase, amplitude = ground
    out: np.ndarray = np.cos(xy @ waves + phase) @ amplitude
    return out


def make_map(xy: np.ndarray, z: np.ndarray, detail: bool = True) -> GridGP:
    gp = GridGP(Grid((0.0, 0.0), (24, 24), 1.0), KERNEL, 1.0)
    gp.update(xy, z, STATED)
    gp.learn_scale(detail=detail)
    gp.calibrate_by_own(xy, z, STATED)
    return gp


def learned(exponent: float, count: int, detail: bool = True) -> tuple[GridGP, np.ndarray, np.ndarray]:
    """A map, and the true heights at new places."""
    ground, rng = rough(1, exponent), np.random.default_rng(2)
    xy, new = rng.uniform(0.0, SIZE, (count, 2)), rng.uniform(2.0, SIZE - 2.0, (3000, 2))
    gp = make_map(xy, height(ground, xy) + 0.005 * rng.normal(size=count), detail)
    return gp, new, height(ground, new)


def test_the_prior_is_that_of_the_residual_of_a_projection() -> None:
    """Against the covariance of the kernel on a patch of blocks, projected point by point."""
    samples, blocks, h = 6, 7, 0.9
    n = samples * blocks
    t = (2.0 * np.arange(samples) + 1.0) / samples - 1.0
    x, y = np.meshgrid(*2 * [(np.arange(n) + 0.5) * h / samples])
    places = np.column_stack([x.ravel(), y.ravel()])
    B = np.zeros((n, blocks + 2))
    for block in range(blocks):
        B[block * samples : (block + 1) * samples, block : block + 3] = weights(t)
    P = B @ np.linalg.pinv(B)
    middle = slice(blocks // 2 * samples, (blocks // 2 + 1) * samples)
    residual = np.kron(np.eye(n)[middle], np.eye(n)[middle]) - np.kron(P[middle], P[middle])
    s, u = np.meshgrid(t, t, indexing="ij")
    phi = np.array([(s**a * u**b).ravel() for a, b in TERMS]).T
    nearest = phi @ np.linalg.pinv(phi) @ residual
    expected = nearest @ KERNEL(places, places) @ nearest.T
    prior = detail_prior(KERNEL, (h, h))
    found = phi @ prior.root @ prior.root.T @ phi.T
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert np.trace(found) / samples**2 == pytest.approx(prior.variance, rel=0.1)


def test_the_detail_of_a_block_is_that_of_the_exact_process() -> None:
    ground, rng = rough(1, 1.0), np.random.default_rng(2)
    xy = rng.uniform(0.0, SIZE, (4000, 2))
    z = height(ground, xy)
    gp = make_map(xy, z)
    detail, surface, s = gp._detail, gp._surface, gp._observations.effective()
    assert detail is not None
    prior = detail_prior(gp.kernel, gp.prior.spacing)
    column, t = s.x.locate(xy[:, 0])
    row, v = s.y.locate(xy[:, 1])
    own = (column == column[0]) & (row == row[0])
    assert own.sum() >= 3
    phi = np.array([v[own] ** a * t[own] ** b for a, b in TERMS]).T @ prior.root
    at = np.ascontiguousarray(xy[own, 0]), np.ascontiguousarray(xy[own, 1])
    residual = z[own] - s.reference - surface.at(*at)[0][0, 0]
    noise = gp.noise_level * (STATED + gp.prior.unresolved)
    K = detail.ratio * phi @ phi.T
    gain = K @ np.linalg.inv(K + noise * np.eye(len(K)))
    found = surface.detail_at(*at, s, detail)
    np.testing.assert_allclose(found.mean, gain @ residual, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.own, np.diag(K - gain @ K), rtol=1e-5)
    _, leverage, pull = surface.detail_blocks(s, detail)
    j, i = int(row[0]), int(column[0])
    assert leverage[j, i] == pytest.approx(np.trace(gain), rel=1e-5)
    assert pull[j, i] == pytest.approx(1.0 - gain.mean(axis=1).sum(), rel=1e-5)
    np.testing.assert_allclose(gp.predict(xy[own]), z[own] - residual + gain @ residual, atol=1e-8)


@pytest.mark.parametrize("exponent", [0.75, 1.25])
def test_dense_points_on_rough_ground_show_detail(exponent: float) -> None:
    gp, new, true = learned(exponent, 6000)
    assert gp._detail is not None
    with_detail, std = gp.predict(new, return_std=True)
    error = with_detail - true
    gp._detail = None
    without = gp.predict(new) - true
    assert np.sqrt(np.mean(error**2)) < 0.9 * np.sqrt(np.mean(without**2))
    assert 0.5 < np.mean((error / std) ** 2) < 2.0, "and the variance is that of the map with detail"


def test_slopes_are_those_of_the_splines_and_no_surer() -> None:
    gp, new, _ = learned(1.0, 6000)
    assert gp._detail is not None
    plain = learned(1.0, 6000, detail=False)[0]
    assert plain._detail is None
    (slope, std), (before, scatter) = (one.predict_gradient(new, return_std=True) for one in (gp, plain))
    np.testing.assert_allclose(slope, before, atol=1e-9)
    layers = [one.posterior().gradient_variance for one in (gp, plain)]
    for stated, as_before in ((std**2, scatter**2), layers):
        assert 0.7 < np.median(stated) / np.median(as_before) < 1.4


def test_smooth_ground_and_few_points_show_none() -> None:
    rng = np.random.default_rng(3)
    xy = rng.uniform(0.0, SIZE, (6000, 2))
    assert make_map(xy, np.zeros(6000))._detail is None
    hills = 2.0 * np.sin(0.3 * xy[:, 0]) + np.cos(0.5 * xy[:, 1])
    assert make_map(xy, hills + 0.02 * rng.normal(size=6000))._detail is None
    assert learned(1.0, 200)[0]._detail is None


def test_detail_does_not_depend_on_order_or_batches() -> None:
    ground, rng = rough(1, 1.0), np.random.default_rng(2)
    xy = rng.uniform(0.0, SIZE, (4000, 2))
    z, new = height(ground, xy), rng.uniform(0.0, SIZE, (200, 2))
    one, other = make_map(xy, z), GridGP(Grid((0.0, 0.0), (24, 24), 1.0), KERNEL, 1.0)
    order = rng.permutation(4000)
    for part in np.array_split(order, 7):
        other.update(xy[part], z[part], STATED)
    other.learn_scale(detail=True)
    assert one._detail is not None
    assert other._detail is not None
    assert other._detail.ratio == one._detail.ratio
    assert other._detail.growth == pytest.approx(one._detail.growth)
    mean, std = one.predict(new, return_std=True)
    assert (np.abs(other.predict(new) - mean) < 0.01 * std).all()


def test_a_twin_and_a_map_that_moves_keep_their_detail() -> None:
    gp, new, _ = learned(1.0, 4000)
    before, std = gp.predict(new, return_std=True)
    np.testing.assert_allclose(gp.twin().predict(new), before, atol=1e-9)
    gp.move(0, 3)
    inside = new[:, 0] > 8.0
    change = (gp.predict(new[inside]) - before[inside]) / std[inside]
    assert np.sqrt(np.mean(change**2)) < 0.03, "the points that were left behind are far away"


def test_parts_share_the_detail_of_their_whole() -> None:
    joined = join_details([Detail(1.0, 2.0), Detail(4.0, 2.0), None])
    assert joined is not None
    assert (joined.ratio, joined.growth) == pytest.approx((2.0, 2.0))
    assert join_details([Detail(1.0, 2.0), None, None]) is None
    assert join_details([]) is None


def test_a_map_compiles_nothing_that_was_not_compiled_at_the_start() -> None:
    compile_detail(KERNEL, (0.9, 0.9))
    compiled = [list(loop.signatures) for loop in (fill_blocks, fill_places)]
    gp, new, _ = learned(1.0, 4000)
    gp.posterior()
    gp.measured_interval(new)
    assert gp._detail is not None
    assert [list(loop.signatures) for loop in (fill_blocks, fill_places)] == compiled
