"""Files with a right checksum and wrong content: refused with the reason, whatever they hold."""

from __future__ import annotations

import json
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import PATIENCE

from gp_core.grid import GridPosterior
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.map_file import load_map, save_map
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline
from gpgmap_ros.storage.archive import ArchiveError, read_archive, write_archive

Change = Callable[[dict[str, Any], dict[str, Any]], None]
CONFIG = with_settings(
    Config(),
    {
        "mapping.kernel": "rbf",
        "mapping.size_x": 4.0,
        "mapping.size_y": 4.0,
        "submap.size": 6.0,
        "closure.enabled": False,
    },
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a map and a submap."""
    folder = tmp_path_factory.mktemp("files")
    pipeline = MappingPipeline(with_settings(CONFIG, {"map_folder": str(folder)}))
    xy = np.random.default_rng(0).uniform(-1.5, 1.5, (800, 2))
    for stamp in (1, 2, 3):
        T = np.eye(4)
        T[0, 3] = 0.3 * stamp
        pipeline.add_cloud(np.column_stack([xy, np.full(len(xy), -1.0)]), T, stamp * 10**9)
    pipeline.save("map")
    pipeline.finish_submap()
    return folder


def repaired(path: Path, kind: str, to: Path, change: Change) -> Path:
    """The file with its content changed and its checksum right."""
    values, arrays = read_archive(path, kind)
    change(values, arrays)
    to.parent.mkdir(parents=True, exist_ok=True)
    write_archive(to, kind, values, arrays)
    return to


def value(name: str, new: Any) -> Change:
    return lambda values, arrays: values.update({name: new})


def array(name: str, new: Callable[[Any], Any]) -> Change:
    return lambda values, arrays: arrays.update({name: new(arrays[name].copy())})


def at(index: Any, new: Any) -> Callable[[Any], Any]:
    def put(array: Any) -> Any:
        array[index] = new
        return array

    return put


NESTED: Any = []
for _ in range(500):
    NESTED = [NESTED]

WRONG_MAPS: dict[str, Change] = {
    "reference NaN": value("reference", float("nan")),
    "reference infinite": value("reference", float("inf")),
    "reference text": value("reference", "1"),
    "centre 1e300": value("centre", [1e300, 0.0]),
    "centre NaN": value("centre", [0.0, float("nan")]),
    "centre of three": value("centre", [0.0, 0.0, 0.0]),
    "centre nested": value("centre", NESTED),
    "stamp infinite": value("stamp", float("inf")),
    "stamp 1e30": value("stamp", 10**30),
    "stamp a float": value("stamp", 1e9),
    "stamp negative": value("stamp", -1),
    "stamp true": value("stamp", True),
    "session 1e30": value("session", 10**30),
    "settings a list": value("settings", [1]),
    "settings none": lambda values, arrays: values.pop("settings"),
    "weights negative": array("weights", lambda a: -a),
    "weights zero": array("weights", lambda a: 0.0 * a),
    "weights huge": array("weights", lambda a: 1e200 * a),
    "moment too large": array("weights", at((0, 2, 2), 1e9)),
    "even moment negative": array("weights", lambda a: at((0, 2, 2), -0.5 * a[0, 0, 0])(a)),
    "weights NaN": array("weights", at((0, 0, 0), np.nan)),
    "weights single precision": array("weights", lambda a: a.astype(np.float32)),
    "weights to broadcast": array("weights", lambda a: a[:, :1, :1]),
    "heights beyond the planet": array("heights", lambda a: np.full_like(a, 1e30)),
    "squares negative": array("totals", at((slice(None), 0), -1e12)),
    "squares slightly negative": array("totals", at((0, 0), -1.0)),
    "squares smaller than those of the mean": lambda values, arrays: at(
        (0, 0, 0), 2.0 * np.sqrt(arrays["totals"][0, 0] * arrays["weights"][0, 0, 0]) + 1e5
    )(arrays["heights"]),
    "count negative": array("totals", at((0, 1), -1.0)),
    "blocks twice": array("index", lambda a: np.zeros_like(a)),
    "places unsigned": array("index", lambda a: a.astype(np.uint64)),
    "places of three": array("index", lambda a: np.zeros((len(a), 3), np.int64)),
    "fewer places": array("index", lambda a: a[:-1]),
    "spacing NaN": array("spacing", lambda a: a * np.nan),
    "no weights": lambda values, arrays: arrays.pop("weights"),
}


def test_what_was_saved_is_accepted(files: Path) -> None:
    loaded = load_map(files / "map.npz", CONFIG)
    assert loaded.stamp == 3 * 10**9
    assert SubmapStore(files / "submaps", CONFIG).load(0).id == 0


def test_a_map_keeps_the_kernel_it_was_made_with(files: Path, tmp_path: Path) -> None:
    rough = with_settings(CONFIG, {"mapping.kernel": "matern32"})
    assert load_map(files / "map.npz", rough).elevation_map.config.kernel == CONFIG.mapping.kernel
    elevation_map = ElevationMap(rough.mapping, (0.0, 0.0))
    xyz = np.random.default_rng(0).uniform(-2.0, 2.0, (5000, 3))
    elevation_map.add(xyz, np.full(len(xyz), 0.01))
    save_map(tmp_path / "map.npz", elevation_map, rough, 2, 1)
    kept = load_map(tmp_path / "map.npz", CONFIG).elevation_map
    assert kept.config.kernel == "matern32"
    save_map(tmp_path / "again.npz", kept, CONFIG, 2, 1)
    assert load_map(tmp_path / "again.npz", CONFIG).elevation_map.config.kernel == "matern32"
    with pytest.raises(ArchiveError, match=r"mapping\.rough_length 30\.0 \(here 20\.0\)"):
        load_map(tmp_path / "map.npz", with_settings(rough, {"mapping.rough_length": 20.0}))
    loaded = load_map(tmp_path / "map.npz", rough).elevation_map
    assert_same_map(loaded.posterior(), elevation_map.posterior())


def test_a_map_from_before_there_was_a_choice_of_kernels_is_an_rbf_map(files: Path, tmp_path: Path) -> None:
    def drop(values: dict[str, Any], arrays: dict[str, Any]) -> None:
        for name in ("kernel", "rough_length", "rough_relief"):
            del values["settings"][f"mapping.{name}"]

    path = repaired(files / "map.npz", "map", tmp_path / "map.npz", drop)
    assert load_map(path, CONFIG).stamp == 3 * 10**9
    loaded = load_map(path, with_settings(CONFIG, {"mapping.kernel": "matern52"}))
    assert loaded.elevation_map.config.kernel == "rbf"


def assert_same_map(found: GridPosterior, expected: GridPosterior) -> None:
    np.testing.assert_allclose(found.mean, expected.mean, atol=0.01 * np.sqrt(expected.variance.min()))
    np.testing.assert_allclose(found.variance, expected.variance, rtol=0.01)


@pytest.mark.parametrize("change", WRONG_MAPS.values(), ids=WRONG_MAPS)
def test_a_map_that_makes_no_sense_is_refused(files: Path, tmp_path: Path, change: Change) -> None:
    path = repaired(files / "map.npz", "map", tmp_path / "map.npz", change)
    with pytest.raises(ArchiveError, match=r"map\.npz: "):
        load_map(path, CONFIG)


WRONG_SUBMAPS: dict[str, Change] = {
    "anchor NaN": value("T_map_submap", np.full((4, 4), np.nan).tolist()),
    "anchor stretched": value("T_map_submap", (2.0 * np.eye(4)).tolist()),
    "anchor mirrored": value("T_map_submap", np.diag([1.0, 1.0, -1.0, 1.0]).tolist()),
    "anchor far": value("T_map_submap", (np.eye(4) + 1e30 * np.eye(4, k=3)).tolist()),
    "anchor ragged": value("T_map_submap", [[1.0], [2.0, 3.0]]),
    "stamps in disorder": value("first_stamp", 10**10),
    "stamp infinite": value("last_stamp", float("inf")),
    "stamp 1e30": value("last_stamp", 10**30),
    "session negative": value("session", -5),
    "distance NaN": value("distance", float("nan")),
    "distance negative": value("distance", -1.0),
    "number of another": value("id", 7),
    "number negative": value("id", -1),
    "format text": value("format", "new"),
    "grid none": value("grid", None),
    "resolution zero": value("grid", {"origin": [0, 0], "shape": [3, 3], "resolution": 0.0}),
    "resolution infinite": value("grid", {"origin": [0, 0], "shape": [3, 3], "resolution": float("inf")}),
    "cells without end": value("grid", {"origin": [0, 0], "shape": [10**6, 10**6], "resolution": 0.1}),
    "cells in fractions": value("grid", {"origin": [0, 0], "shape": [1e300, 2], "resolution": 0.1}),
    "origin NaN": value("grid", {"origin": [0, float("nan")], "shape": [3, 3], "resolution": 0.1}),
    "frame a number": value("frame_id", 3),
    "variance negative": array("variance", at((0, 0), -1.0)),
    "variance NaN": array("variance", at((0, 0), np.nan)),
    "elevation infinite": array("elevation", at((0, 0), np.inf)),
    "elevation beyond the planet": array("elevation", lambda a: a + np.float32(1e30)),
    "elevation double": array("elevation", lambda a: a.astype(np.float64)),
    "gradient missing where elevation is known": array("gradient_x", lambda a: a * np.nan),
    "layer cut": array("elevation", lambda a: a[1:]),
    "track of NaN": array("track_poses", lambda a: a * np.nan),
    "track sheared": array("track_poses", lambda a: 3.0 * a),
    "track back in time": array("track_stamps", lambda a: a[::-1].copy()),
    "track at the end of time": array("track_stamps", lambda a: a + np.int64(2**62)),
    "track longer than its stamps": array("track_stamps", lambda a: a[:-1]),
    "points NaN": array("points_xyz", at((0, 0), np.nan)),
    "points far": array("points_xyz", at((0, 0), 1e30)),
    "points without variance": array("points_variance", at(0, 0.0)),
    "points of infinite variance": array("points_variance", at(0, np.inf)),
    "points as text": array("points_xyz", lambda a: np.full(a.shape, "x")),
}  # fmt: skip


@pytest.mark.parametrize("change", WRONG_SUBMAPS.values(), ids=WRONG_SUBMAPS)
def test_a_submap_that_makes_no_sense_is_refused(files: Path, tmp_path: Path, change: Change) -> None:
    path = repaired(files / "submaps" / "submap_000000.npz", "submap", tmp_path / "submap_000000.npz", change)
    store = SubmapStore(tmp_path, CONFIG)
    if path.name not in store.damaged:
        with pytest.raises(ArchiveError, match=r"submap_000000\.npz: "):
            store.load(0)
    assert store.next_id == 1  # its number is not given to another


def with_header(path: Path, to: Path, header: bytes) -> Path:
    with np.load(path) as file:
        content = {name: file[name] for name in file.files if name != "checksum"}
    content["header"] = np.frombuffer(header, dtype=np.uint8)
    np.savez(to, **content)
    return to


def test_a_header_nested_without_end_is_refused(files: Path, tmp_path: Path) -> None:
    path = with_header(files / "map.npz", tmp_path / "map.npz", b"[" * 100_000)
    with pytest.raises(ArchiveError, match=r"map\.npz: damaged, or not a map file"):
        load_map(path, CONFIG)


def test_a_number_of_too_many_digits_is_refused(files: Path, tmp_path: Path) -> None:
    header = json.dumps({"kind": "map", "version": 1, "values": {}})[:-2] + '"stamp": ' + "9" * 5000 + "}}"
    path = with_header(files / "map.npz", tmp_path / "map.npz", header.encode())
    with pytest.raises(ArchiveError, match=r"map\.npz: damaged, or not a map file"):
        load_map(path, CONFIG)


def test_a_message_stays_short_whatever_the_file_says(files: Path, tmp_path: Path) -> None:
    header = json.dumps({"kind": "x" * 100_000, "version": 1, "values": {}}).encode()
    with pytest.raises(ArchiveError) as caught:
        load_map(with_header(files / "map.npz", tmp_path / "map.npz", header), CONFIG)
    assert len(str(caught.value)) < 1000


def test_a_small_file_that_declares_too_much_is_refused_unread(tmp_path: Path) -> None:
    """Zeros, compressed a thousand times: refused by what the directory of the archive declares."""
    path = tmp_path / "map.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("weights.npy", bytes(40 << 20))
    with pytest.raises(ArchiveError, match=r"declares 41,943,040 bytes; at most [\d,]+ are expected here"):
        load_map(path, CONFIG)


def test_an_array_that_declares_more_than_it_has_takes_no_memory(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.npz"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(files / "map.npz") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "weights.npy":
                data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
            new.writestr(name, data)
    with pytest.raises(ArchiveError, match="weights declares 8,000,000,000,000 bytes and has 0"):
        load_map(path, CONFIG)


def test_a_large_map_may_declare_what_it_holds(tmp_path: Path) -> None:
    config = with_settings(CONFIG, {"mapping.size_x": 30.0, "mapping.size_y": 30.0})
    pipeline = MappingPipeline(with_settings(config, {"map_folder": str(tmp_path)}))
    xy = np.random.default_rng(0).uniform(-15.0, 15.0, (30_000, 2))
    pipeline.add_cloud(np.column_stack([xy, np.full(len(xy), -1.0)]), np.eye(4), 10**9)
    load_map(pipeline.save("map"), config)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """A FIFO without a writer, and one with: neither is waited for."""
    path = tmp_path / "map.npz"
    os.mkfifo(path)
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(ArchiveError, match="it is not a regular file"):
            load_map(path, CONFIG)
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert ended.wait(PATIENCE)


def test_an_empty_map_can_be_saved_and_loaded(tmp_path: Path) -> None:
    from gpgmap_ros.mapping import ElevationMap

    save_map(tmp_path / "map.npz", ElevationMap(CONFIG.mapping, (0.0, 0.0)), CONFIG, 0, 0)
    assert load_map(tmp_path / "map.npz", CONFIG).elevation_map.blocks() is None
