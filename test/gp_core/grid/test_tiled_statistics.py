"""Statistics over tiles: parts that are merged, pickled, kept on file, cut out and solved."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from agreement import assert_agree

from gp_core.grid import Grid, GridGP, TiledStatistics
from gp_core.grid.tiled_statistics import TILE_BLOCKS, TileStatistics, merge
from gp_core.kernels import RBF, Kernel, Matern

NOISE = 1e-3
GP = GridGP(Grid((0.0, 0.0), (1, 1), 0.1), 0.09 * RBF(0.4), NOISE)


def points(n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over several tiles, on both sides of the origin."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(-12.0, 20.0, (n, 2))
    return xy, 0.3 * np.sin(xy[:, 0]) * np.cos(xy[:, 1]) + np.sqrt(NOISE) * rng.standard_normal(n)


def statistics_of(xy: np.ndarray, z: np.ndarray, gp: GridGP = GP) -> TiledStatistics:
    out = TiledStatistics(gp.lattice)
    out.add(xy, z, NOISE)
    return out


def assert_equal(a: TiledStatistics, b: TiledStatistics, rtol: float = 0.0) -> None:
    assert set(a) == set(b)
    for key in a:
        for one, other in zip(a[key].arrays, b[key].arrays, strict=True):
            scale = np.abs(other).max(axis=tuple(range(2, other.ndim)), keepdims=True)
            assert (np.abs(one - other) <= rtol * scale).all()


def test_every_point_is_in_the_tile_that_covers_it() -> None:
    xy, z = points()
    s = statistics_of(xy, z)
    keys = np.floor(xy / s.lattice.tile_size).astype(int)[:, ::-1]
    expected = {(int(row), int(column)) for row, column in keys}
    assert set(s) == expected
    assert len(expected) >= 4
    assert s.count == len(z)
    for key, tile in s.items():
        assert tile.count == (keys == key).all(axis=1).sum()


@pytest.mark.parametrize("order", [lambda parts: parts, lambda parts: parts[::-1]])
def test_parts_merge_in_any_order(order: Callable[[list], list]) -> None:
    xy, z = points()
    whole = statistics_of(xy, z)
    parts = [statistics_of(xy[k::7], z[k::7]) for k in range(7)]
    before = pickle.dumps(parts)
    assert_equal(merge(order(parts)), whole, rtol=1e-12)
    assert pickle.dumps(parts) == before  # merging leaves the parts as they were


def test_a_tree_of_merges_of_tiles_gives_the_same_sums() -> None:
    xy, z = points()
    whole = statistics_of(xy, z)
    key = max(whole, key=lambda k: whole[k].count)
    level = [statistics_of(xy[k::8], z[k::8])[key] for k in range(8)]
    while len(level) > 1:
        level = [merge(pair)[key] for pair in zip(level[::2], level[1::2], strict=True)]
    np.testing.assert_allclose(level[0].arrays[0], whole[key].arrays[0], rtol=0, atol=1e-9 / NOISE)
    assert level[0].count == whole[key].count


def test_a_pickled_part_is_the_same_and_small() -> None:
    part = statistics_of(np.array([[0.5, 0.5], [-0.5, 3.0]]), np.array([1.0, 2.0]))
    content = pickle.dumps(part)
    assert_equal(pickle.loads(content), part)
    assert len(content) < 10_000  # not 2.9 MB for each tile


@pytest.mark.parametrize("kernel", [0.09 * RBF(0.4), 0.09 * Matern(1.0, nu=1.5)], ids=["tiles", "strips"])
def test_a_window_with_halo_is_solved_as_if_from_its_points(kernel: Kernel) -> None:
    xy, z = points(60_000)
    grid = Grid((-2.0, -2.0), (50, 40), 0.1)
    gp = GridGP(grid, kernel, NOISE)
    halo = 4.0
    x_min, y_min, x_max, y_max = grid.bounds
    around = Grid((x_min - halo, y_min - halo), (130, 120), 0.1)
    direct = gp.like(around)
    direct.update(xy, z)
    solved = gp.like(around)
    solved.add_blocks(
        statistics_of(xy, z, gp).window((x_min - halo, y_min - halo, x_max + halo, y_max + halo))
    )
    part = np.s_[20:-20, 20:-20]  # blocks at the edge of the window hold points from outside it as well
    a, b = solved.posterior(), direct.posterior()
    assert np.isfinite(a.mean).all()
    assert np.abs(a.mean - b.mean)[part].max() < 0.02 * np.sqrt(b.variance[part].max())
    np.testing.assert_allclose(a.variance[part], b.variance[part], rtol=0.01)


def test_a_window_is_all_there_is_in_it() -> None:
    xy, z = points()
    s = statistics_of(xy, z)
    everything = s.window((-20.0, -20.0, 30.0, 30.0))
    gp = GP.like(Grid((-12.0, -12.0), (320, 320), 0.1))
    gp.update(xy, z)
    fed = gp.like(gp.grid)
    fed.add_blocks(everything)
    assert fed.count == gp.count == len(z)
    assert_agree(fed.posterior(), gp.posterior())
    assert len(s.window((100.0, 100.0, 101.0, 101.0)).index) == 0


def test_information_is_limited_block_by_block() -> None:
    s = statistics_of(np.full((1000, 2), 0.05), np.ones(1000))
    s.add(np.array([[5.0, 5.0]]), np.zeros(1), NOISE)
    limited = s.window((-10.0, -10.0, 10.0, 10.0), max_information=5.0 / NOISE)
    assert sorted(limited.weights[:, 0, 0]) == pytest.approx(
        [1.0 / (NOISE + s.lattice.unresolved), 5.0 / NOISE]
    )
    assert (limited.heights[:, 0, 0] / limited.weights[:, 0, 0]).max() == pytest.approx(1.0)


def test_a_saved_file_holds_the_same_sums(tmp_path: Path) -> None:
    s = statistics_of(*points())
    path = tmp_path / "part.npz"
    s.save(path)
    again = TiledStatistics.load(path)
    assert again.lattice == s.lattice
    assert_equal(again, s)
    again.merge(s)
    again.save(path)
    assert TiledStatistics.load(path).count == 2 * s.count
    assert [item.name for item in tmp_path.iterdir()] == ["part.npz"]


def test_an_empty_part_can_be_saved(tmp_path: Path) -> None:
    TiledStatistics(GP.lattice).save(tmp_path / "empty.npz")
    assert TiledStatistics.load(tmp_path / "empty.npz").count == 0.0


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x40]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage", [flip, lambda c: c[: len(c) // 2], lambda c: b"", lambda c: b"not a zip file at all"]
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "part.npz"
    statistics_of(*points(500)).save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"part\.npz: this is no intact file"):
        TiledStatistics.load(path)


def test_a_file_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.npz"
    np.savez(path, header=np.array([{"format": "x"}], dtype=object))
    with pytest.raises(ValueError, match="no intact file"):
        TiledStatistics.load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "part.npz"
    s = statistics_of(*points(500))
    s.save(path)
    old = path.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("gp_core.npz.os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        s.save(path)
    assert path.read_bytes() == old
    assert [item.name for item in tmp_path.iterdir()] == ["part.npz"]


def test_other_lattices_and_places_are_refused() -> None:
    other = GridGP(Grid((0.0, 0.0), (1, 1), 0.1), 0.09 * RBF(0.8), NOISE)
    s = statistics_of(*points(100))
    with pytest.raises(ValueError, match="different lattices"):
        s.merge(TiledStatistics(other.lattice))
    with pytest.raises(ValueError, match="different places"):
        TileStatistics(GP.lattice, (0, 0)).merge(TileStatistics(GP.lattice, (0, 1)))
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])


def test_points_that_do_not_belong_are_refused() -> None:
    tile = TileStatistics(GP.lattice, (0, 0))
    edge = TILE_BLOCKS * GP.lattice.spacing[0]
    with pytest.raises(ValueError, match=r"outside tile \(0, 0\)"):
        tile.add(np.array([[0.1, 0.1], [1.1 * edge, 0.1]]), np.zeros(2), NOISE)
    assert tile.count == 0.0
    tile.add(np.array([[0.0, 0.0], [np.nextafter(edge, 0.0), 0.0]]), np.zeros(2), NOISE)
    assert tile.count == 2.0
    s = TiledStatistics(GP.lattice)
    for xy, z, variance in (
        ([[np.nan, 0.0]], [0.0], NOISE),
        ([[0.0, 0.0]], [np.inf], NOISE),
        ([[0.0, 0.0]], [0.0], 0.0),
        ([[0.0, 0.0]], [0.0, 1.0], NOISE),
    ):
        with pytest.raises(ValueError, match="xy, z"):
            s.add(xy, z, variance)
    assert reduce(lambda total, tile: total + tile.count, s.values(), 0.0) == 0.0
