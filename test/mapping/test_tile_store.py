"""Tiles within a limit of memory: the same sums to the last bit, whatever went through files meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP, Lattice
from gp_core.grid.tiled_statistics import TILE_BLOCKS, TILE_BYTES
from gp_core.kernels import RBF
from gpgmap_ros.mapping.tile_store import MIN_TILES, POINT_BYTES, TileStore

KEYS = [(row, column) for row in range(2) for column in range(3)]
LIMITED = MIN_TILES * TILE_BYTES


@pytest.fixture(scope="module")
def lattice() -> Lattice:
    return GridGP(Grid((0.0, 0.0), (10, 10), 0.1), RBF(0.5), noise_variance=1e-4).lattice


def points_in(lattice: Lattice, key: tuple[int, int], seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    side = TILE_BLOCKS * np.array(lattice.spacing)
    xy = (np.array([key[1], key[0]]) + rng.uniform(0.01, 0.99, (count, 2))) * side
    return xy, rng.normal(size=count)


def fill(store: TileStore, lattice: Lattice) -> None:
    """Points in more tiles than fit into the memory, in turns."""
    for turn in range(3):
        for number, key in enumerate(KEYS):
            store.add(key, *points_in(lattice, key, 10 * turn + number, 50))


def test_a_limit_of_memory_changes_no_bit(lattice: Lattice, tmp_path: Path) -> None:
    free = TileStore(lattice, 1e-4, tmp_path / "free", 100 * TILE_BYTES)
    limited = TileStore(lattice, 1e-4, tmp_path / "limited", LIMITED)
    for store in (free, limited):
        fill(store, lattice)
    for key in [*KEYS, *KEYS]:
        for mine, other in zip(free.tile(key).arrays, limited.tile(key).arrays, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert limited.bytes_in_memory <= LIMITED
    assert not (tmp_path / "free").exists(), "what fits into the memory needs no folder"


def test_points_of_a_tile_that_is_not_in_memory_wait_in_a_file(lattice: Lattice, tmp_path: Path) -> None:
    store = TileStore(lattice, 1e-4, tmp_path / "tiles", LIMITED)
    fill(store, lattice)
    waiting = len(KEYS) - MIN_TILES
    assert store.bytes_stored == waiting * 3 * 50 * POINT_BYTES
    assert len(list((tmp_path / "tiles").iterdir())) == waiting


def test_a_lower_limit_takes_effect_at_once(lattice: Lattice, tmp_path: Path) -> None:
    store = TileStore(lattice, 1e-4, tmp_path / "tiles", 100 * TILE_BYTES)
    fill(store, lattice)
    before = [array.copy() for array in store.tile(KEYS[0]).arrays]
    store.limit_memory(0)
    assert store.bytes_in_memory == MIN_TILES * TILE_BYTES
    for mine, other in zip(before, store.tile(KEYS[0]).arrays, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_forgotten_tile_is_empty(lattice: Lattice, tmp_path: Path) -> None:
    store = TileStore(lattice, 1e-4, tmp_path / "tiles", LIMITED)
    fill(store, lattice)
    for key in KEYS:
        assert store.tile(key).occupied.any()
    for key in KEYS:
        store.forget(key)
        assert not store.tile(key).occupied.any()
    assert store.bytes_stored == 0
