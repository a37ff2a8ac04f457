"""The log of a session: what a killed program leaves is read, nothing that was kept is lost, nonsense is refused."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from limits import PATIENCE
from session_writer import CONFIG, hills, shifted, submap_of, write_submaps

from gpgmap_ros.closure import LoopCloser, LoopClosure
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.session.session_file import KIND, read_session, write_session
from gpgmap_ros.closure.session.session_log import SessionLog, log_path
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import ArchiveError, GPGMap
from gpgmap_ros.storage.archive import read_archive, write_archive


@pytest.fixture(scope="module")
def ground() -> GPGMap:
    return hills()


def content(closer: LoopCloser) -> list[object]:
    """Everything that is kept, to compare."""
    nodes = [
        (s.id, s.drive, s.driven, s.T_odom_submap.tolist(), s.stamps.tolist(), s.track.tolist())
        for s in closer.nodes
    ]
    return [nodes, [(c.a, c.b, c.accepted, c.reason, c.T_a_b.tolist()) for c in closer.closures]]


def test_what_is_kept_step_by_step_is_what_is_saved_at_once(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    closer, logged = LoopCloser(CONFIG), 0
    for number in range(60):
        closer.add(submap_of(number, ground))
        closer.keep(path)
        logged += log_path(path).exists()
        again = LoopCloser.load(path, CONFIG, lambda _: ground) if number % 13 == 0 else None
        if again is not None:
            assert content(again) == content(closer)
            closer = again  # and goes on from what was read
    assert logged > 40, "most submaps are appended, not written with all others again"
    closer.save(tmp_path / "once.npz", surfaces=False)
    assert content(LoopCloser.load(tmp_path / "once.npz", CONFIG)) == content(LoopCloser.load(path, CONFIG))


def test_what_is_written_is_a_small_multiple_of_what_is_kept(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    closer, total, last = LoopCloser(CONFIG), 0, (0, 0)
    for number in range(120):
        closer.add(submap_of(number, ground))
        closer.keep(path)
        log = log_path(path).stat().st_size if log_path(path).exists() else 0
        now = (path.stat().st_mtime_ns, log)
        total += log - last[1] if now[0] == last[0] else path.stat().st_size
        last = now
    kept = path.stat().st_size + last[1]
    assert total < 4.0 * kept


def test_a_log_cut_anywhere_keeps_all_whole_records(ground: GPGMap, tmp_path: Path) -> None:
    """As after kill -9, or a power cut, at any moment of an append."""
    path = tmp_path / "closures.npz"
    closer = LoopCloser(CONFIG)
    ends: dict[int, int] = {}
    number = 0
    while len(ends) < 3:
        closer.add(submap_of(number, ground))
        closer.keep(path)
        number += 1
        if log_path(path).exists():
            ends[log_path(path).stat().st_size] = number
        else:
            ends.clear()  # it was merged into the file
    whole = log_path(path).read_bytes()
    before = len(read_session(path).nodes)
    for cut in [
        0,
        5,
        25,
        29,
        30,
        *(end + d for end in ends for d in (-1, 0, 1, 9)),
        *range(31, len(whole), 997),
    ]:
        log_path(path).write_bytes(whole[:cut])
        expected = max([count for end, count in ends.items() if end <= cut], default=before)
        loaded = LoopCloser.load(path, CONFIG, lambda _: ground)
        assert len(loaded.nodes) == expected, cut
        # and it goes on over what was left unfinished
        loaded.add(submap_of(expected, ground))
        loaded.keep(path)
        assert len(LoopCloser.load(path, CONFIG, lambda _: ground).nodes) == expected + 1
        # the file may have been written anew
        write_session(path, closer.nodes[:before], {}, [], False)


def test_blocks_that_did_not_reach_the_disk_are_dropped(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    closer = LoopCloser(CONFIG)
    while not log_path(path).exists():
        closer.add(submap_of(len(closer.nodes), ground))
        closer.keep(path)
    data = bytearray(log_path(path).read_bytes())
    data[-200:] = bytes(200)
    log_path(path).write_bytes(data)
    assert len(LoopCloser.load(path, CONFIG, lambda _: ground).nodes) == len(closer.nodes) - 1


def test_killed_between_the_file_and_the_log_nothing_is_there_twice(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    closer = LoopCloser(CONFIG)
    while not log_path(path).exists():
        closer.add(submap_of(len(closer.nodes), ground))
        closer.keep(path)
    shutil.copy(log_path(path), tmp_path / "old.log")
    closer.save(path, surfaces=False)
    assert not log_path(path).exists()
    shutil.copy(tmp_path / "old.log", log_path(path))  # as if it had not been removed yet
    loaded = LoopCloser.load(path, CONFIG, lambda _: ground)
    assert content(loaded) == content(closer)
    loaded.add(submap_of(len(loaded.nodes), ground))
    loaded.keep(path)
    assert len(LoopCloser.load(path, CONFIG, lambda _: ground).nodes) == len(closer.nodes) + 1


def test_a_log_of_another_file_is_refused(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    closer = LoopCloser(CONFIG)
    while not log_path(path).exists():
        closer.add(submap_of(len(closer.nodes), ground))
        closer.keep(path)
    write_session(path, [], {}, [], False)
    with pytest.raises(ArchiveError, match="it continues a file of"):
        LoopCloser.load(path, CONFIG)
    log_path(path).write_bytes(b"something else altogether, and long enough to have a header")
    with pytest.raises(ArchiveError, match="no log of closures"):
        LoopCloser.load(path, CONFIG)


def test_rejections_are_kept(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    nodes, found = session(8)
    write_session(path, nodes, found, [], False)
    closer = LoopCloser.load(path, CONFIG, lambda _: ground)
    closer.reject(0, 7)
    closer.keep(path)
    assert log_path(path).exists()
    (closure,) = LoopCloser.load(path, CONFIG, lambda _: ground).closures
    assert closure.reason == "rejected by request"


# ------------------------------------------------ whole bytes, impossible numbers


def session(count: int) -> tuple[list[SubmapNode], dict[tuple[int, int], LoopClosure]]:
    nodes = [
        SubmapNode(
            k, 5, shifted(4.0 * k), 1000 * k, 4.0 * k, 4.0, 9.0,
            np.array([1000 * k, 1000 * k + 1]), np.tile(np.eye(4), (2, 1, 1)),
        )
        for k in range(count)
    ]  # fmt: skip
    T = inverse(nodes[0].T_odom_submap) @ nodes[-1].T_odom_submap
    return nodes, {
        (0, count - 1): LoopClosure(0, count - 1, T, 0.01 * np.eye(6), 0.99, 0.5, True, "it fits", 3.0, True)
    }


def with_closure(
    found: dict[tuple[int, int], LoopClosure], **changes: object
) -> dict[tuple[int, int], LoopClosure]:
    return {pair: replace(item, **changes) for pair, item in found.items()}


NAN_POSE = np.eye(4)
NAN_POSE[0, 3] = np.nan
INDEFINITE = np.diag([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("pose", "rigid"),
        ("mirror", "rigid"),
        ("track", "track"),
        ("twice", "twice"),
        ("driven", "driven"),
        ("driven too far", "driven"),
        ("number", "numbers from 0 to 1,000,000,000"),
        ("drive", "drive has more than 64 bits"),
        ("stamp", "first stamp has more than 64 bits"),
        ("closure pose", "rigid"),
        ("covariance", "positive definite"),
        ("nan covariance", "positive definite"),
        ("unknown submap", "no submap 7"),
        ("itself", "one submap"),
        ("rejected", "there is none"),
        ("probability", "not in 0 to 1"),
        ("score", "score"),
    ],
)
def test_a_file_that_means_nothing_is_refused(what: str, why: str, tmp_path: Path) -> None:
    nodes, found = session(4)
    rejected: list[tuple[int, int]] = []
    (pair, item) = next(iter(found.items()))
    if what == "pose":
        nodes[2] = replace(nodes[2], T_odom_submap=NAN_POSE)
    elif what == "mirror":
        nodes[2] = replace(nodes[2], T_odom_submap=np.diag([1.0, -1.0, 1.0, 1.0]))
    elif what == "track":
        nodes[1] = replace(nodes[1], track=np.full((2, 4, 4), np.inf))
    elif what == "twice":
        nodes.append(nodes[1])
    elif what == "driven":
        nodes[1] = replace(nodes[1], driven=float("nan"))
    elif what == "number":
        nodes[3] = replace(nodes[3], id=10**40)
    elif what == "drive":
        nodes[3] = replace(nodes[3], drive=10**40)
    elif what == "stamp":
        nodes[3] = replace(nodes[3], first_stamp=-(10**40))
    elif what == "driven too far":
        nodes[3] = replace(nodes[3], driven=1e300)
    elif what == "closure pose":
        found = with_closure(found, T_a_b=NAN_POSE)
    elif what == "covariance":
        found = with_closure(found, covariance=INDEFINITE)
    elif what == "nan covariance":
        found = with_closure(found, covariance=np.full((6, 6), np.nan))
    elif what == "unknown submap":
        found = {(0, 7): replace(item, b=7)}
    elif what == "itself":
        found = {(2, 2): replace(item, a=2, b=2)}
    elif what == "rejected":
        rejected = [(1, 2)]
    elif what == "probability":
        found = {pair: replace(item, probability=2.0)}
    elif what == "score":
        found = {pair: replace(item, score=float("nan"))}
    path = tmp_path / "closures.npz"
    write_session(path, nodes, found, rejected, False)
    with pytest.raises(ArchiveError, match=why):
        LoopCloser.load(path, CONFIG)
    if what == "twice":
        return  # in the log that is what a program leaves which was killed while it merged
    whole, _ = session(4)
    write_session(path, whole[:0], {}, [], False)
    log = SessionLog.begin(path, 0, 0)
    assert log.append([(node, found if k == 3 else {}) for k, node in enumerate(nodes)], rejected)
    with pytest.raises(ArchiveError, match=why):
        LoopCloser.load(path, CONFIG)


@pytest.mark.parametrize(
    "name", ["T_odom_submap", "track_poses", "track_stamps", "T_target_source", "covariance"]
)
@pytest.mark.parametrize("kind", ["?", "f4", "c16"])
def test_arrays_of_another_type_are_refused(name: str, kind: str, tmp_path: Path) -> None:
    """The checksum is right, and identities are rigid whatever their type: sums over them are not."""
    path = tmp_path / "closures.npz"
    write_session(path, *session(4), [], False)
    values, arrays = read_archive(path, KIND)
    write_archive(path, KIND, values, {**arrays, name: arrays[name].astype(kind)})
    with pytest.raises(ArchiveError, match="its content makes no sense"):
        LoopCloser.load(path, CONFIG)


def test_a_log_that_is_no_regular_file_is_refused(ground: GPGMap, tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    LoopCloser(CONFIG).keep(path)
    os.mkfifo(log_path(path))
    with pytest.raises(ArchiveError, match=r"closures\.log: cannot be read: it is not a regular file"):
        LoopCloser.load(path, CONFIG)


def test_an_old_file_is_read_and_goes_on_with_a_log(ground: GPGMap, tmp_path: Path) -> None:
    """Files of earlier versions have no log beside them."""
    path = tmp_path / "closures.npz"
    nodes, found = session(40)
    write_session(path, nodes, found, [], False)
    closer = LoopCloser.load(path, CONFIG, lambda _: ground)
    closer.add(submap_of(40, ground))
    closer.keep(path)
    assert log_path(path).exists()
    assert len(LoopCloser.load(path, CONFIG, lambda _: ground).nodes) == 41


def test_a_writer_killed_at_any_moment_loses_nothing_that_it_kept(tmp_path: Path) -> None:
    """Twenty times kill -9 of a real process, while records are appended and merged into the file."""
    path = tmp_path / "closures.npz"
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["gpgmap_ros.closure"])  # imported once, not twenty times
    rng = np.random.default_rng()
    newest = -1
    for _ in range(20):
        announcements, sender = processes.Pipe(duplex=False)
        writer = processes.Process(target=write_submaps, args=(path, sender), daemon=True)
        writer.start()
        sender.close()
        try:
            for _ in range(int(rng.integers(1, 8))):
                assert announcements.poll(PATIENCE), "the writer does nothing"
                newest = announcements.recv()
            time.sleep(rng.uniform(0.0, 0.02))
        finally:
            writer.kill()
            writer.join()
        with contextlib.suppress(EOFError):
            while True:
                newest = announcements.recv()
        announcements.close()
        closer = LoopCloser.load(path, CONFIG)
        ids = [node.id for node in closer.nodes]
        assert ids == list(range(len(ids)))
        assert len(ids) > newest, f"submap {newest} was kept, and is lost"
        assert [closure.reason for closure in closer.closures] == [f"refused {id}" for id in ids[1:]]
