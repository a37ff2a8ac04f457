"""What is promised about repeating a map: the same bits on one machine, near enough on another (docs/grid_gp.md, 7)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from agreement import assert_agree

from gp_core.grid import Grid, GridPosterior

GRID = Grid((-1.0, 2.0), (70, 90), 0.1)
MAP = """
import sys
import numpy as np
from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Matern
gp = GridGP(Grid((-1.0, 2.0), (70, 90), 0.1), 0.09 * eval(sys.argv[3]), 1e-3, threads=int(sys.argv[2]))
rng = np.random.default_rng(0)
for _ in range(3):
    xy = rng.uniform((-1.0, 2.0), (8.0, 9.0), (8000, 2))
    xy = xy[np.hypot(xy[:, 0] - 3.0, xy[:, 1] - 5.0) > 1.2]  # a hole
    gp.update(xy, 0.3 * np.sin(2.0 * xy[:, 0]) * np.cos(xy[:, 1]) + 0.03 * rng.standard_normal(len(xy)))
    p = gp.posterior()
np.savez(sys.argv[1], mean=p.mean, variance=p.variance, gradient=p.gradient, gradient_variance=p.gradient_variance)
"""


def map_made_elsewhere(path: Path, kernel: str, threads: int = 1, **environment: str) -> GridPosterior:
    """The posterior of the same data, in a process of its own."""
    command = [sys.executable, "-c", MAP, str(path), str(threads), kernel]
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    with np.load(path) as arrays:
        return GridPosterior(grid=GRID, **arrays)


@pytest.fixture(scope="module", params=["RBF(0.5)", "Matern(1.0, nu=1.5)"])
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, kernel: str) -> GridPosterior:
    return map_made_elsewhere(tmp_path_factory.mktemp("map") / "here.npz", kernel)


def test_on_one_machine_a_map_repeats_bit_for_bit(here: GridPosterior, tmp_path: Path, kernel: str) -> None:
    again = map_made_elsewhere(tmp_path / "again.npz", kernel, threads=3)
    for name in ("mean", "variance", "gradient", "gradient_variance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(here, name), err_msg=name)


@pytest.fixture(scope="module")
def other_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Machine code for another CPU: what both kernels use is compiled once."""
    return tmp_path_factory.mktemp("code")


@pytest.mark.slow
@pytest.mark.parametrize("blas", ["Prescott", "Haswell"])
def test_on_another_cpu_it_is_near(
    here: GridPosterior, tmp_path: Path, other_code: Path, kernel: str, blas: str
) -> None:
    """Without the instructions that this CPU has: other loops by the compiler, other kernels of BLAS."""
    environment = {"OPENBLAS_CORETYPE": blas}
    if blas == "Prescott":
        environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(other_code)}
    there = map_made_elsewhere(tmp_path / "there.npz", kernel, **environment)
    assert_agree(there, here)
    if blas == "Prescott":  # the kernels of Haswell are those of this CPU, if it is a Haswell or a Zen
        assert (there.variance != here.variance).any(), "the other CPU was not another one"
