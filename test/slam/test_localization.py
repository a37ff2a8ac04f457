"""A robot is found in a saved map without a guess, followed, lost and found again; never where it is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from saved_runs import CONFIG, StraightDrive, save_run

from gpgmap_ros.closure import PosePrior
from gpgmap_ros.config import with_settings
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.submaps import align_with_gravity, yaw_of
from gpgmap_ros.slam import MappingPipeline, Session, SessionError, localizer
from gpgmap_ros.slam.footprints import Footprints, shared_area
from gpgmap_ros.slam.localization import Localization
from gpgmap_ros.slam.localizer import LOST, SEARCHING, TRACKING
from gpgmap_ros.slam.pose_belief import PoseBelief
from gpgmap_ros.slam.work_queue import InlineExecutor
from gpgmap_ros.storage import archive
from gpgmap_ros.storage.folder_lock import FolderLock

MAP = StraightDrive((60.0, 60.0), 0.0, 49.0, seed=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    folder.mkdir()
    save_run(folder, MAP)
    return folder


@pytest.fixture(scope="module")
def session(run: Path) -> Session:
    return Session.load(run)


class Robot:
    """Drives with a localisation; `errors` are metres against where the map has the ground."""

    def __init__(self, session: Session, **settings: float) -> None:
        changes = {f"localization.{name}": value for name, value in settings.items()}
        self.config = with_settings(CONFIG, changes)
        localizer = session.localizer(self.config.localization)
        self.localization = Localization(localizer, self.config.localization, InlineExecutor(self.fail))
        self.mapping = MappingPipeline(self.config)
        self.errors: list[float] = []
        self.beliefs: list[PoseBelief] = []
        self.statuses: list[str] = []
        self._T_before = np.eye(4)
        self._stamp = 0

    def fail(self, error: Exception) -> None:
        raise error

    def drive(self, way: StraightDrive, carried: bool = False) -> None:
        """carried: the odometry goes on as if the robot had driven there from where it was"""
        offset = self._T_before if carried else np.eye(4)
        for step in way:
            T_odom = offset @ step.T_odom_robot
            self._stamp = max(self._stamp + 1, step.stamp)
            self.mapping.add_cloud(step.points, T_odom, self._stamp)
            self.localization.add(1, T_odom, self.mapping)
            self._T_before = T_odom
            found = self.localization.pose()
            self.statuses.append(self.localization.state.status)
            if found is not None:
                self.beliefs.append(found)
                truth = inverse(align_with_gravity(MAP.pose(0.0))) @ step.T_world_robot
                self.errors.append(float(np.linalg.norm((found.T - truth)[:2, 3])))


def test_a_robot_is_found_and_followed_without_a_guess(session: Session) -> None:
    robot = Robot(session)
    robot.drive(StraightDrive((95.0, 66.0), np.pi + 0.2, 16.0, seed=7))
    first = robot.statuses.index(TRACKING)
    assert first <= 12
    assert set(robot.statuses[:first]) == {SEARCHING}
    assert set(robot.statuses[first:]) == {TRACKING}
    # the map bends by its own odometry, 0.1 degrees a metre: a metre in the middle of it
    assert max(robot.errors) < 2.0
    assert "recognised in submap" in robot.localization.state.reason


def test_the_covariance_grows_with_odometry_and_shrinks_with_fixes(session: Session) -> None:
    robot = Robot(session)
    robot.drive(StraightDrive((95.0, 66.0), np.pi + 0.2, 8.0, seed=7))
    state = robot.localization.state
    assert state.anchor is not None
    near, far = (state.locate(state.anchor.T_odom_robot, state.anchor.driven + way) for way in (1.0, 50.0))
    assert near is not None
    assert far is not None
    assert far.position_std > 5.0 * near.position_std
    assert max(belief.position_std for belief in robot.beliefs) < 1.0


def test_the_ground_around_the_robot_corrects_a_bent_submap(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odometry turns by half a degree on each metre: what fits all of a submap is off by degrees at its end."""
    way = StraightDrive((95.0, 62.0), np.pi, 25.0, seed=7, turn=0.01)
    heading = yaw_of(session.poses[1]) + np.pi  # where the drive ends, the map begins this submap

    def last_error() -> float:
        robot = Robot(session, step=2.0)
        robot.drive(way)
        assert robot.statuses[-1] == TRACKING
        turn = yaw_of(robot.beliefs[-1].T) - heading
        return float(np.degrees(abs((turn + np.pi) % (2.0 * np.pi) - np.pi)))

    corrected = last_error()
    monkeypatch.setattr(localizer.Localizer, "_measure_around", lambda *_: None)
    assert last_error() > corrected + 0.4


def test_the_ground_around_the_robot_is_found_in_a_bent_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map's odometry turned by half a degree on each metre, the robot's did not. It has driven four metres: its own
    submap is as straight as can be, but as one piece it fits none of the map's."""
    bent = StraightDrive((60.0, 60.0), 0.0, 33.0, seed=1, turn=0.01)
    save_run(tmp_path, bent)
    bent_session = Session.load(tmp_path)
    mapped = list(bent)

    def turn_error(x: float, heading: float) -> float:
        """Degrees, against how the map's odometry stood next to where the robot is."""
        robot, way = Robot(bent_session), StraightDrive((x, 60.5), heading, 5.0, seed=7, turn=0.0)
        robot.drive(way)
        assert robot.statuses[-1] == TRACKING
        T = way.pose(5.0)
        next_to = mapped[round(float(T[0, 3])) - 60]
        truth = next_to.T_odom_robot @ inverse(next_to.T_world_robot) @ T
        return float(np.degrees(abs(yaw_of(truth[:3, :3].T @ robot.beliefs[-1].T[:3, :3]))))

    starts = ((66.0, np.pi), (72.0, 0.0), (78.0, 0.0))
    around = np.mean([turn_error(*start) for start in starts])
    monkeypatch.setattr(localizer.Localizer, "_measure_around", lambda *_: None)
    assert around < 0.7 * np.mean([turn_error(*start) for start in starts])


def test_a_robot_elsewhere_is_never_placed_in_the_map(session: Session) -> None:
    for seed in range(2):
        robot = Robot(session)
        robot.drive(StraightDrive((60.0, 60.0), 0.3 * seed, 9.0, seed=seed, world=20 + seed))
        assert set(robot.statuses) == {SEARCHING}
        assert robot.localization.localizer.first_fix is None


def test_a_carried_robot_is_lost_and_found_again(session: Session) -> None:
    robot = Robot(session, lost_after=12.0)
    robot.drive(StraightDrive((100.0, 62.0), np.pi, 8.0, seed=3))
    assert robot.statuses[-1] == TRACKING
    begun = len(robot.statuses)
    robot.drive(StraightDrive((64.0, 62.0), 0.1, 30.0, seed=4), carried=True)
    after = robot.statuses[begun:]
    assert after[-1] == TRACKING
    assert robot.errors[-1] < 2.0
    # it said so, or it moved to the right place at once: what it said once it was found again is right
    found = after.index(LOST) if LOST in after else 0
    assert found < 25


def test_another_odometry_frame_begins_the_search_again(session: Session) -> None:
    robot = Robot(session)
    robot.drive(StraightDrive((95.0, 62.0), np.pi, 14.0, seed=3))
    assert robot.localization.state.status == TRACKING
    robot.localization.add(2, np.eye(4), robot.mapping)
    assert robot.localization.state.status == SEARCHING
    assert robot.localization.pose() is None


def test_an_initial_pose_is_a_prior_and_never_a_must(session: Session) -> None:
    way = StraightDrive((95.0, 62.0), np.pi, 14.0, seed=3)
    truth = inverse(align_with_gravity(MAP.pose(0.0))) @ way.pose(0.0)
    covariance = np.diag([1.0, 1.0, 1e4, 0.01, 0.01, 0.05])
    right, wrong = Robot(session), Robot(session)
    for robot, T in ((right, truth), (wrong, np.eye(4))):
        robot.localization.add(1, np.eye(4), robot.mapping)
        robot.localization.set_prior(T, covariance)
        assert (
            robot.localization.state.status == SEARCHING
        )  # it is not believed before the ground confirms it
        robot.drive(way)
        assert robot.statuses[-1] == TRACKING
        assert robot.errors[-1] < 2.0


def test_an_initial_pose_may_come_before_the_first_cloud(session: Session) -> None:
    way = StraightDrive((95.0, 62.0), np.pi, 3.0, seed=3)
    truth = inverse(align_with_gravity(MAP.pose(0.0))) @ way.pose(0.0)
    covariance = np.diag([1.0, 1.0, 1e4, 0.01, 0.01, 0.05])
    early, late = Robot(session), Robot(session)
    early.localization.set_prior(truth, covariance)
    assert "waits for the first cloud" in early.localization.state.reason
    late.localization.add(1, np.eye(4), late.mapping)
    late.localization.set_prior(truth, covariance)
    for robot in (early, late):
        robot.drive(way)
    assert early.localization.localizer.probability == late.localization.localizer.probability > 0.5


def test_one_map_is_placed_at_once(session: Session) -> None:
    submap = session.submaps.load(3)
    place = session.localize(submap.gpgmap)
    assert place.accepted
    assert place.submap in (2, 3, 4)  # they overlap
    assert np.allclose(place.T_map_query, session.poses[3], atol=0.3)
    assert np.isfinite(place.covariance).all()
    prior = PosePrior(session.poses[3], np.eye(6))
    assert session.localize(submap.gpgmap, prior).accepted


def test_nothing_in_the_run_is_changed(run: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    robot = Robot(Session.load(run))
    robot.drive(StraightDrive((95.0, 62.0), np.pi, 9.0, seed=3))
    assert {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()} == before


def test_what_is_no_run_is_refused_in_a_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="not a run"):
        Session.load(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(SessionError, match="without submaps"):
        Session.load(tmp_path)
    (tmp_path / "submaps").mkdir()
    with pytest.raises(SessionError, match="without submaps"):
        Session.load(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"kind": "replay", "status": "running"}))
    with pytest.raises(SessionError, match="did not end"):
        Session.load(tmp_path)
    with FolderLock(run, "another test"), pytest.raises(SessionError, match="being written by another test"):
        Session.load(run)


def test_a_run_of_another_resolution_is_refused(run: Path) -> None:
    pytest.importorskip("rosbags", reason="rosbags is not installed: the command reads recordings")
    from gpgmap_ros.apps.localize import localization_config

    with pytest.raises(SessionError, match=r"cells of 0\.5 m, and the settings ask for 0\.7 m"):
        localization_config(Session.load(run), {"submap.resolution": 0.7})


def test_a_run_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "submaps").mkdir()
    (tmp_path / "submaps" / "submap_000000.npz").write_bytes(b"of the year 2100")
    with pytest.raises(SessionError, match="none of its submaps can be read"):
        Session.load(tmp_path)
    (tmp_path / "config.yaml").write_text("from_the_future: 1\n")
    with pytest.raises(SessionError, match="made by another version"):
        Session.load(tmp_path)


def test_submaps_of_a_later_version_are_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(run, mixed)
    newer = mixed / "submaps" / "submap_000002.npz"
    values, arrays = archive.read_archive(newer, "submap")
    with monkeypatch.context() as later:
        later.setattr(archive, "VERSION", archive.VERSION + 1)
        archive.write_archive(newer, "submap", values, arrays)
        with pytest.raises(SessionError, match=r"submap_000000\.npz.* format version"):
            Session.load(run)
    before = newer.read_bytes()
    session = Session.load(mixed)
    (warning,) = session.warnings
    assert warning.startswith("submap_000002.npz: not used: ")
    assert "format version" in warning
    assert 2 not in session.poses
    assert newer.read_bytes() == before


def test_beliefs_fuse_as_gaussians_do() -> None:
    a = PoseBelief(np.eye(4), np.diag([1.0] * 6))
    T = np.eye(4)
    T[0, 3] = 1.0
    both = a.fuse(PoseBelief(T, np.diag([1.0] * 6)))
    assert np.isclose(both.T[0, 3], 0.5)
    assert np.isclose(both.covariance[0, 0], 0.5)
    lever = np.eye(4)
    lever[0, 3] = 10.0
    moved = PoseBelief(np.eye(4), np.diag([0.0] * 5 + [0.01])).move(lever)
    assert np.isclose(moved.covariance[1, 1], 1.0)  # a turn of 0.1 moves what is 10 m ahead by a metre
    back = moved.in_frame(lever)
    assert np.allclose(back.T, np.eye(4))


def test_ground_that_is_mapped_again_adds_nothing_to_the_search() -> None:
    lap = np.array([[20.0 * k, 0.0, 15.0] for k in range(10)])
    once = Footprints(np.arange(10), lap)
    often = Footprints(np.arange(500), np.tile(lap, (50, 1)))
    assert once.cover() == list(range(10))
    assert often.cover() == list(range(490, 500))  # the newest
    small = Footprints(np.arange(2), np.array([[0.0, 0.0, 20.0], [1.0, 0.0, 5.0]]))
    assert small.cover() == [0, 1]  # the newer one shows a part of the older


def test_discs_share_the_area_between_their_arcs() -> None:
    away, radii = np.array([0.0, 3.0, 10.0]), np.full(3, 2.0)
    assert np.allclose(shared_area(away[[0, 2]], radii[:2], 2.0), [4.0 * np.pi, 0.0])
    xy = np.stack(np.meshgrid(*2 * [np.linspace(-3.0, 5.0, 1601)]))
    inside = (np.hypot(*xy) < 2.0) & (np.hypot(xy[0] - 3.0, xy[1]) < 2.0)
    assert np.isclose(shared_area(away[1:2], radii[:1], 2.0)[0], inside.sum() * 0.005**2, rtol=0.01)
