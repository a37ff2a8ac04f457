"""Tables of a rough kernel on disk: the same map from them as without, and only for the same kernel."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov import fronts, kept_tables
from gp_core.grid.posterior import GridPosterior
from gp_core.kernels import RBF, FunctionKernel, Kernel, Matern

KERNEL = 1.0 * Matern(3.0, nu=1.25)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the tables."""
    monkeypatch.setattr(kept_tables, "folder_of", lambda _: tmp_path)
    return tmp_path


def make_map(kernel: Kernel = KERNEL, size: int = 30) -> GridGP:
    gp = GridGP(Grid((0.0, 0.0), (size, size), 0.1), kernel, 1e-3)
    xy = np.random.default_rng(0).uniform(0.0, 0.1 * size, (500, 2))
    gp.update(xy, np.sin(xy[:, 0]))
    return gp


def keep(kernel: Kernel = KERNEL, size: int = 30) -> GridPosterior:
    gp = make_map(kernel, size)
    posterior = gp.posterior()
    gp.keep_tables()
    return posterior


def refuse_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(fronts, "_shape_tables", refuse)
    monkeypatch.setattr("gp_core.grid.solvers.prior_on", refuse)


def test_the_map_from_kept_tables_is_the_same_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = keep()
    refuse_to_compute(monkeypatch)
    found = make_map().posterior()
    for name in ("mean", "variance", "gradient", "gradient_variance"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_kept_plan_is_the_one_that_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = make_map().prior
    made = kept_tables.KeptFronts(prior)
    computed = made.plan(40, 60)
    made.keep()
    refuse_to_compute(monkeypatch)
    read = kept_tables.KeptFronts(prior).plan(40, 60)
    for field in dataclasses.fields(computed):
        if field.name != "jobs":
            np.testing.assert_array_equal(getattr(read, field.name), getattr(computed, field.name))
    assert len(read.jobs) == len(computed.jobs)
    for ours, theirs in zip(read.jobs, computed.jobs, strict=True):
        np.testing.assert_array_equal(ours.boxes, theirs.boxes)
        assert dataclasses.replace(ours, boxes=theirs.boxes) == theirs


def test_nothing_is_written_unless_asked_for(folder: Path) -> None:
    make_map().posterior()
    assert not list(folder.iterdir())
    keep()
    assert len(list(folder.iterdir())) == 2  # prior and plan
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    keep()
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        (1.0 * Matern(np.nextafter(3.0, 4.0), nu=1.25), 30),
        (1.0 * Matern(3.0, nu=1.3), 30),
        (1.1 * Matern(3.0, nu=1.25), 30),
        (KERNEL, 60),
    ],
)
def test_other_kernels_and_sizes_have_tables_of_their_own(
    kernel: Kernel, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep()
    refuse_to_compute(monkeypatch)
    with pytest.raises(AssertionError, match="computed again"):
        make_map(kernel, size).posterior()


@pytest.mark.parametrize("name", ["describe_sources", "describe_machine"])
def test_another_version_or_machine_computes_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    monkeypatch.setattr(kept_tables, name, lambda *_: "another")
    refuse_to_compute(monkeypatch)
    with pytest.raises(AssertionError, match="computed again"):
        make_map().posterior()


def test_damaged_tables_are_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = keep()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    np.testing.assert_array_equal(keep().mean, expected.mean)
    refuse_to_compute(monkeypatch)
    np.testing.assert_array_equal(make_map().posterior().mean, expected.mean)


def test_a_kernel_that_is_a_function_is_not_kept(folder: Path) -> None:
    kernel = FunctionKernel(_rough, vectorized=True) * Matern(3.0, nu=1.25)
    assert kept_tables._key("plan", kernel, "") is None
    assert kept_tables._key("plan", KERNEL, "") is not None


def _rough(X, Z):
    return np.exp(-np.linalg.norm(np.asarray(X)[:, None] - np.asarray(Z), axis=-1))


def test_a_lattice_of_before_is_not_taken_for_the_one_that_a_learned_kernel_needs(folder: Path) -> None:
    gp = make_map()
    gp.fit_hyperparameters(max_iterations=2)
    learned, spacing = gp.kernel, gp.prior.spacing
    gp.posterior()
    gp.keep_tables()
    fresh = GridGP(gp.grid, learned, 1e-3)
    assert fresh.prior.spacing != spacing


def test_smooth_kernels_keep_nothing(folder: Path) -> None:
    keep(RBF(0.5))
    assert not list(folder.iterdir())


def test_without_a_folder_it_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = keep()
    monkeypatch.setattr(kept_tables, "folder_of", lambda _: None)
    np.testing.assert_array_equal(keep().mean, expected.mean)


def test_a_copy_in_another_process_reads_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    gp = make_map()
    expected = gp.posterior()
    gp.keep_tables()
    text = pickle.dumps(gp.like(gp.grid))
    refuse_to_compute(monkeypatch)
    copy = pickle.loads(text)
    xy = np.random.default_rng(0).uniform(0.0, 3.0, (500, 2))
    copy.update(xy, np.sin(xy[:, 0]))
    np.testing.assert_array_equal(copy.posterior().mean, expected.mean)
