"""Fields of maps in a file: the same numbers, and memory that is given back."""

from __future__ import annotations

import os
from dataclasses import fields as fields_of

import numpy as np
import pytest

from gpgmap_ros.closure.registration.registration_map import FIELDS, RegistrationMap
from gpgmap_ros.closure.retrieval.field_file import FieldFile
from gpgmap_ros.memory import resident_bytes


def make_map(side: int, seed: int) -> RegistrationMap:
    rng = np.random.default_rng(seed)
    layers = {name: rng.random((side, side), dtype=np.float32) for name in FIELDS}
    return RegistrationMap(
        **layers, resolution=0.3, origin=np.zeros(2), base=0.0, centre=np.zeros(2), radius=1.0, area=1.0
    )


def test_fields_keep_their_values_and_stay_views_of_one_array() -> None:
    file = FieldFile()
    for seed in range(12):
        side = 100 + 37 * seed
        before, after = make_map(side, seed), file.take(make_map(side, seed))
        file.release()
        np.testing.assert_array_equal(after.fields, before.fields)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
            assert np.shares_memory(getattr(after, name), after.fields)
        assert {item.name for item in fields_of(after)} == {item.name for item in fields_of(before)}


@pytest.mark.skipif(not resident_bytes(), reason="the system does not say how much memory is used")
def test_memory_is_given_back() -> None:
    file = FieldFile()
    kept = []
    before = resident_bytes()
    for seed in range(60):
        kept.append(file.take(make_map(300, seed)))  # two megabytes each
        file.release()
    assert resident_bytes() - before < 40e6
    sums = [float(map_.fields.sum()) for map_ in kept]
    file.release()
    assert resident_bytes() - before < 40e6
    np.testing.assert_allclose(sums, [float(make_map(300, seed).fields.sum()) for seed in range(60)])


def test_maps_stay_in_memory_where_the_disk_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file, map_ = FieldFile(), make_map(50, 1)
    fields = map_.fields
    assert file.take(map_).fields is fields
    file.release()
