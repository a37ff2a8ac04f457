"""Files of a session: names that older versions gave to merged submaps, and checks of what was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_nodes import closure, node
from session_writer import CONFIG, hills, submap_of

from gpgmap_ros.closure import ClosureDatabase, LoopCloser
from gpgmap_ros.closure.session.session_check import is_rigid
from gpgmap_ros.closure.session.session_file import KIND, read_session, write_session
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.storage.archive import ArchiveError, read_archive, write_archive


@pytest.fixture(scope="module")
def ground() -> GPGMap:
    return hills()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    nodes, found = [node(0), node(4)], {(0, 4): closure(0, 4, off=1.0)}
    write_session(tmp_path / "s.npz", nodes, found, [(0, 4)], surfaces=False)
    saved = read_session(tmp_path / "s.npz")
    assert [n.id for n in saved.nodes] == [0, 4]
    assert saved.names == {0: "0", 4: "4"}
    assert saved.rejected == [(0, 4)]
    assert saved.closures[0, 4].registered
    np.testing.assert_array_equal(saved.closures[0, 4].T_a_b, found[0, 4].T_a_b)
    np.testing.assert_array_equal(saved.nodes[1].track, nodes[1].track)


def test_what_waits_is_kept(tmp_path: Path) -> None:
    waiting = replace(closure(0, 4, registered=False), weak=True, chance=7.5)
    write_session(tmp_path / "s.npz", [node(0), node(4)], {(0, 4): waiting}, [], surfaces=False)
    saved = read_session(tmp_path / "s.npz").closures[0, 4]
    assert (saved.weak, saved.chance, saved.registered) == (True, 7.5, False)
    broken = replace(waiting, covariance=-np.eye(6))
    write_session(tmp_path / "s.npz", [node(0), node(4)], {(0, 4): broken}, [], surfaces=False)
    with pytest.raises(ArchiveError, match="not positive definite"):
        read_session(tmp_path / "s.npz")


def test_names_of_an_older_version_lead_to_their_submaps(ground: GPGMap, tmp_path: Path) -> None:
    """Version 0.1 called submaps that came from another robot from_N/K in the database."""
    path = tmp_path / "s.npz"
    closer = LoopCloser(CONFIG)
    for number in range(3):
        closer.add(submap_of(number, ground))
    closer.save(path)
    values, arrays = read_archive(path, KIND)
    values["stations"][2]["name"] = "from_1/1"
    write_archive(path, KIND, values, arrays)
    database = ClosureDatabase.load(path.with_suffix(".db"))
    database.rename({"0": "0", "1": "1", "2": "from_1/1"})
    database.save(path.with_suffix(".db"))
    loaded = LoopCloser.load(path, CONFIG)
    assert list(loaded.database) == [0, 1, 2]
    loaded.save(path)
    assert read_session(path).names == {0: "0", 1: "1", 2: "2"}


def test_rigid_transforms_are_told_from_others() -> None:
    good = np.tile(np.eye(4), (3, 1, 1))
    assert is_rigid(good)
    for change in (-np.eye(4), 2.0 * np.eye(4), np.full((4, 4), np.nan), np.diag([1.0, -1.0, 1.0, 1.0])):
        bad = good.copy()
        bad[1] = change
        assert not is_rigid(bad)
    assert not is_rigid(good[0])
