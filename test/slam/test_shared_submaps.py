"""Submaps of other robots: archives that are whole are taken in once, all others are refused with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from saved_runs import CONFIG, StraightDrive

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config, ConfigError, with_settings
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.closure_messages import Add, Answer, Start, Update
from gpgmap_ros.slam.closure_server import ClosureServer
from gpgmap_ros.slam.shared_submaps import (
    MAX_BYTES,
    SharedSubmapError,
    SharedSubmaps,
    decode_submap,
    encode_submap,
    session_here,
)

TOPIC = "/robot_b/mapping_node/submap"
FAST = with_settings(CONFIG, {"mapping.kernel": "rbf", "mapping.learn_noise": False})


def submaps_of(drive: StraightDrive) -> list[Submap]:
    pipeline, found = MappingPipeline(FAST), []
    for step in drive:
        report = pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp)
        found += [report.submap] if report.submap is not None else []
    return found


@pytest.fixture(scope="module")
def theirs() -> list[Submap]:
    return submaps_of(StraightDrive((0.0, 0.0), 0.0, 17.0, seed=1))


@pytest.fixture(scope="module")
def ours() -> list[Submap]:
    return submaps_of(StraightDrive((16.0, 1.0), np.pi, 17.0, seed=2))


def test_an_archive_brings_everything_over(theirs: list[Submap]) -> None:
    sent = theirs[0]
    got = decode_submap(encode_submap(sent), FAST)
    assert (got.session, got.first_stamp, got.last_stamp) == (sent.session, sent.first_stamp, sent.last_stamp)
    np.testing.assert_array_equal(got.T_map_submap, sent.T_map_submap)
    np.testing.assert_array_equal(got.gpgmap["elevation"], sent.gpgmap["elevation"])
    np.testing.assert_array_equal(got.track.poses, sent.track.poses)
    assert got.points is not None


def damaged(data: bytes) -> Iterator[tuple[bytes, str]]:
    yield b"", "damaged, or not a map file"
    yield data[: len(data) // 2], "damaged, or not a map file"
    yield bytes(MAX_BYTES + 1), "are allowed"
    changed = bytearray(data)
    changed[len(data) // 2] ^= 0x40
    yield bytes(changed), "damaged"


def test_what_is_no_submap_is_refused(theirs: list[Submap]) -> None:
    for data, reason in damaged(encode_submap(theirs[0])):
        with pytest.raises(SharedSubmapError, match=reason) as error:
            decode_submap(data, FAST)
        assert "gpgmap_share" not in str(error.value)


def test_maps_that_do_not_fit_are_refused(theirs: list[Submap]) -> None:
    data = encode_submap(theirs[0])
    with pytest.raises(SharedSubmapError, match=r"its cells are 0.5 m wide and ours 1 m"):
        decode_submap(data, with_settings(FAST, {"submap.resolution": 1.0}))
    bare = dataclasses.replace(theirs[0], points=None)
    with pytest.raises(SharedSubmapError, match="no statistics"):
        decode_submap(encode_submap(bare), FAST)


def test_each_submap_is_taken_in_once(theirs: list[Submap], tmp_path: Path) -> None:
    """Also over a restart; its number and the name of its drive are ours."""
    config = with_settings(FAST, {"map_folder": str(tmp_path)})
    for run in range(2):
        pipeline = MappingPipeline(config)
        shared = SharedSubmaps(config, pipeline.adopt, pipeline.submaps)
        found = [shared.receive(TOPIC, encode_submap(item)) for item in (*theirs, *theirs)]
        taken = [item for item in found if item is not None]
        assert [item.id for item in taken] == ([0, 1] if run == 0 else [])
    store = SubmapStore(tmp_path / "submaps", config)
    assert store.sessions() == dict.fromkeys((0, 1), session_here(TOPIC, theirs[0].session))
    assert store.load(1).gpgmap.frame_id == "submap_1"
    other = shared.receive("/robot_c/mapping_node/submap", encode_submap(theirs[0]))
    assert other is not None
    assert other.id == 2


def test_robots_with_the_same_clock_have_different_drives() -> None:
    names = {session_here(f"/robot_{k}/submap", 1_700_000_000_000_000_000) for k in range(20)}
    assert len(names) == 20
    assert 1_700_000_000_000_000_000 not in names


def test_our_frame_is_the_maps(ours: list[Submap], theirs: list[Submap]) -> None:
    """Submaps of others wait for ours; then both drives are in our frame, and what is told is about our drive."""
    answers: list[Answer] = []
    server = ClosureServer(Start(FAST, None, 0), answers.append)
    shared = [dataclasses.replace(item, id=10 + k, session=7) for k, item in enumerate(theirs)]
    for item in shared:
        server.serve(Add(item.id, item, own=False))
    assert not answers
    for item in ours:
        server.serve(Add(item.id, item))
    update = answers[-1]
    assert isinstance(update, Update)
    assert set(update.ids) == {0, 1, 10, 11}
    assert update.newest == 1
    np.testing.assert_allclose(update.T_map_odom[:3, 3], 0.0, atol=0.5)
    np.testing.assert_allclose(server.closer.pose(0), ours[0].T_map_submap, atol=1e-6)
    # they drove towards us, and began 16 m ahead of where we did
    assert server.closer.pose(10)[0, 3] == pytest.approx(16.0, abs=0.5)


def test_the_newest_submap_stays_ours(ours: list[Submap], theirs: list[Submap]) -> None:
    closer = LoopCloser(FAST.closure)
    closer.add(ours[0])
    closer.add(dataclasses.replace(theirs[0], id=10, session=7), own=False)
    assert closer.newest == ours[0].id
    assert len(closer.recorded()[0]) == len(ours[0].track.stamps)


def test_other_robots_need_closures() -> None:
    with pytest.raises(ConfigError, match=r"closure.enabled must be true"):
        with_settings(Config(), {"submaps": [TOPIC], "closure.enabled": False})
    with pytest.raises(ConfigError, match=r"set localization.update"):
        with_settings(Config(), {"submaps": [TOPIC], "localization.map": "run"})
    assert with_settings(Config(), {"submaps": [TOPIC]}).submaps == (TOPIC,)
