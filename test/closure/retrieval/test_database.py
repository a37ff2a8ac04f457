"""The database: the right submap first, nothing lost on disk, clear refusals."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os

import numpy as np
import pytest
from fractal_world import World, pose_error

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureDatabase, DatabaseError, NotComparable
from gpgmap_ros.closure.retrieval.database_file import HEADER, MAGIC, VERSION
from gpgmap_ros.geometry import inverse

PLACES = {"a": (40.0, 40.0), "b": (40.0, 140.0), "c": (150.0, 60.0), "d": (200.0, 200.0), "e": (120.0, 140.0)}


@pytest.fixture(scope="module")
def submaps(world: World):
    return {
        name: world.map_at(place, ord(name), yaw=0.3 * k) for k, (name, place) in enumerate(PLACES.items())
    }


@pytest.fixture
def database(submaps):
    found = ClosureDatabase()
    for name, (map_, _) in submaps.items():
        found.add(name, map_)
    return found


@pytest.fixture(scope="module")
def visit(world: World):
    """A second visit near c, turned."""
    return world.map_at((156.0, 66.0), 77, yaw=2.0)


def test_the_place_comes_first_with_its_rough_pose(database, submaps, visit):
    matches = database.query(visit[0])
    assert matches[0].name == "c"
    assert [m.likelihood for m in matches] == sorted((m.likelihood for m in matches), reverse=True)
    truth = submaps["c"][1] @ inverse(visit[1])
    shift, yaw = pose_error(matches[0].T_target_source, truth, np.zeros(3))
    assert shift < 6.0
    assert yaw < 13.0


def test_closures_are_verified(database, submaps, visit):
    found = database.closures(visit[0], max_matches=3)
    assert [name for name, r in found if r.accepted] == ["c"]
    truth = submaps["c"][1] @ inverse(visit[1])
    assert pose_error(found[0][1].T_target_source, truth, np.zeros(3))[0] < 0.3


def test_excluded_submaps_are_not_looked_at(database, visit):
    assert "c" not in [m.name for m in database.query(visit[0], exclude={"c"})]
    assert database.query(visit[0], exclude=set(database)) == []


def test_saved_and_loaded_it_answers_the_same(database, visit, tmp_path):
    path = tmp_path / "submaps.db"
    database.save(path)
    loaded = ClosureDatabase.load(path)
    assert list(loaded) == list(database)
    for one, other in zip(database.query(visit[0]), loaded.query(visit[0]), strict=True):
        assert one.name == other.name
        assert one.likelihood == other.likelihood
        np.testing.assert_array_equal(one.T_target_source, other.T_target_source)
    assert [p.name for p in tmp_path.iterdir()] == ["submaps.db"]


def test_an_empty_database_survives(tmp_path, visit):
    ClosureDatabase().save(tmp_path / "none.db")
    loaded = ClosureDatabase.load(tmp_path / "none.db")
    assert len(loaded) == 0
    assert loaded.query(visit[0]) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data[: len(MAGIC) + 5], "damaged"),
        (lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:], "damaged"),
        (lambda data: b"something else", "not a database"),
        (lambda data: b"", "not a database"),
        (lambda data: MAGIC + HEADER.pack(VERSION + 1, 0, bytes(32)), f"version {VERSION + 1}"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(database, tmp_path, damage, message):
    path = tmp_path / "submaps.db"
    database.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatabaseError, match=message):
        ClosureDatabase.load(path)


def rewritten(path, change, version=VERSION):
    """The file with other arrays, its length and checksum made right."""
    start = len(MAGIC) + HEADER.size
    with np.load(io.BytesIO(path.read_bytes()[start:])) as file:
        arrays = dict(file)
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getvalue()
    path.write_bytes(MAGIC + HEADER.pack(version, len(content), hashlib.sha256(content).digest()) + content)


@pytest.mark.parametrize(("version", "missing"), [(1, ("way", "drift_rates")), (2, ("drift_rates",))])
def test_files_of_earlier_versions_lack_what_came_later(database, tmp_path, version, missing):
    path = tmp_path / "submaps.db"
    database.save(path)

    def without(arrays):
        for name in [name for name in arrays if name.endswith(missing)]:
            del arrays[name]

    rewritten(path, without, version)
    loaded = ClosureDatabase.load(path)
    assert list(loaded) == list(database)
    assert all(not loaded._maps[name].drift_rates.any() for name in loaded)
    assert version == 2 or all(len(loaded._maps[name].way) == 0 for name in loaded)


def put(name, index, value):
    def change(arrays):
        arrays[name][index] = value

    return change


def cast(name, kind):
    return lambda arrays: arrays.update({name: arrays[name].astype(kind)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: None, ""),
        (lambda arrays: arrays.pop("0/slope_x"), "55 arrays"),
        (lambda arrays: arrays.update({"0/slope_x": arrays["0/slope_x"][:, :-1]}), "slope_x is float32"),
        (cast("0/height", np.float64), "height is float64"),
        (put("0/height", (0, 0), np.nan), "height is not finite"),
        (put("1/slope_variance", (0, 0), -1.0), "slope_variance is negative"),
        (put("0/weight", (0, 0), 2.0), "not from 0 to 1"),
        (put("0/height", (30, 30), 1e30), "heights are beyond"),
        (put("0/numbers", 0, 0.0), "its resolution"),
        (put("0/numbers", 0, np.nan), "its resolution"),
        (put("0/numbers", 0, 3.0), "cells of"),
        (put("0/numbers", 1, np.inf), "its base"),
        (put("0/numbers", 2, 1e9), "its radius"),
        (put("0/numbers", 3, 1.0), "its area"),
        (cast("0/numbers", np.float32), "its numbers are"),
        (put("0/origin", 0, 1e300), "origin is out of range"),
        (put("0/centre", 1, -5.0), "centre is out of range"),
        (cast("0/centre", np.complex128), "centre is complex128"),
        (lambda arrays: arrays.update(names=np.frombuffer(b'["a","a","b","c","d"]', np.uint8)), "same name"),
        (lambda arrays: arrays.update(names=np.frombuffer(b"[1,2,3,4,5]", np.uint8)), "no list of texts"),
        (lambda arrays: arrays.update(names=np.frombuffer(b"[" * 99999, np.uint8)), "recursion"),
    ],
)
def test_content_that_no_database_has_is_refused(database, tmp_path, change, message):
    path = tmp_path / "submaps.db"
    database.save(path)
    rewritten(path, change)
    if not message:
        assert list(ClosureDatabase.load(path)) == list(database)
        return
    with pytest.raises(DatabaseError, match=rf"submaps\.db: its content makes no sense: .*{message}"):
        ClosureDatabase.load(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DatabaseError, match="can't be read"):
        ClosureDatabase.load(tmp_path / "nowhere.db")


def test_a_failed_save_leaves_the_old_file(database, tmp_path, monkeypatch):
    path = tmp_path / "submaps.db"
    database.save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    database.remove("a")
    with pytest.raises(DatabaseError, match="No space left"):
        database.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["submaps.db"]


def test_two_sessions_merge(database, submaps, visit, world: World):
    other = ClosureDatabase()
    other.add("a", world.map_at((158.0, 60.0), 5)[0])
    with pytest.raises(DatabaseError, match="prefix"):
        database.merge(other)
    assert len(database) == len(PLACES)
    database.merge(other, prefix="robot2/")
    assert len(database) == len(PLACES) + 1
    assert {m.name for m in database.query(visit[0])[:2]} == {"c", "robot2/a"}


def test_names_are_used_once(database, submaps):
    with pytest.raises(ValueError, match="already"):
        database.add("a", submaps["a"][0])
    database.remove("a")
    assert "a" not in database
    database.add("a", submaps["a"][0])
    with pytest.raises(KeyError):
        database.remove("nobody")


def test_other_resolutions_are_refused(database, submaps):
    map_ = submaps["a"][0]
    fine = dataclasses.replace(map_, grid=Grid(map_.grid.origin, map_.grid.shape, 0.5))
    with pytest.raises(NotComparable, match=r"0\.5 m"):
        database.add("fine", fine)
    with pytest.raises(NotComparable, match=r"0\.5 m"):
        database.query(fine)


def test_a_larger_submap_is_taken_in(database, world: World, visit):
    database.query(visit[0])
    database.add("large", world.map_at((156.0, 70.0), 9, radius=40.0)[0])
    assert "large" in [m.name for m in database.query(visit[0])[:2]]


def test_a_query_gives_back_the_memory_of_what_it_read(database, visit, monkeypatch):
    """A robot that is localised asks for hours and adds nothing."""
    map_, _ = visit
    released = []
    monkeypatch.setattr(database._fields, "release", lambda: released.append(True))
    database.query(map_)
    assert len(released) == 1
    database.closures(map_, max_matches=1)
    assert len(released) == 2
