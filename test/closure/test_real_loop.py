"""A real drive that comes back to its start: the return is found, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("rosbags", reason="rosbags is not installed: the recording can't be read")

from fast_mapping import fast_config
from rosbags.typesys import get_typestore

from gpgmap_ros.closure import ClosureDatabase, PosePrior, register
from gpgmap_ros.geometry import inverse
from gpgmap_ros.io.bags import STORE, read_raw
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.sensing.pointcloud2 import read_xyz
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

DRIFT = (3.423, 0.848, 1.144, 0.72, -0.29, -1.62)
"""At the last pose, by GICP of all points of the last and the first scans (benchmark/closure_loop.py): x, y, z (m),
rotation vector (deg); good to 0.05 m and 0.3 deg."""
ENDS = 6
"""Submaps at each end of the drive that the tests look at."""


@pytest.fixture(scope="module")
def drive(data_folder: Path) -> tuple[list[Submap], np.ndarray, np.ndarray]:
    """The submaps by default settings, the last pose by odometry, and what takes the drift at the end away."""
    bag = data_folder / "bag_nclt_loop"
    if not bag.is_dir():
        pytest.skip("no bag_nclt_loop in the data folder")
    store, clouds, poses = get_typestore(STORE), {}, {}
    for raw in read_raw(bag):
        if raw.topic in ("/points", "/odom"):
            message = store.deserialize_cdr(raw.data, raw.type_name)
            stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
            if raw.topic == "/points":
                clouds[stamp] = read_xyz(message)
            else:
                p, q = message.pose.pose.position, message.pose.pose.orientation
                poses[stamp] = np.eye(4)
                poses[stamp][:3, :3] = Rotation.from_quat([q.x, q.y, q.z, q.w]).as_matrix()
                poses[stamp][:3, 3] = p.x, p.y, p.z
    pipeline = MappingPipeline(
        fast_config()
    )  # of the map around the robot; submaps have a kernel of their own
    submaps = [pipeline.add_cloud(clouds[s], poses[s], s).submap for s in sorted(clouds)]
    submaps.append(pipeline.finish_submap())
    last = poses[max(poses)]
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(DRIFT[3:], degrees=True).as_matrix()
    T[:3, 3] = last[:3, 3] + DRIFT[:3] - T[:3, :3] @ last[:3, 3]
    return [submap for submap in submaps if submap is not None], last, T


def test_the_return_to_the_start_takes_the_drift_away(drive):
    submaps, last, T_true_odom = drive
    first, end = submaps[0], submaps[-1]
    found = register(end.gpgmap, first.gpgmap)
    assert found.accepted, found.reason
    corrected = first.T_map_submap @ found.T_target_source @ inverse(end.T_map_submap) @ last
    truth = T_true_odom @ last
    assert np.linalg.norm((last - truth)[:3, 3]) > 3.0
    assert np.linalg.norm((corrected - truth)[:3, 3]) < 0.3
    turn = Rotation.from_matrix(corrected[:3, :3] @ truth[:3, :3].T)
    assert np.rad2deg(turn.magnitude()) < 0.5


def test_the_database_finds_it_and_nothing_else(drive):
    """The last submaps against the first ones: of all pairs, only that of the return is accepted."""
    submaps, _, _ = drive
    database = ClosureDatabase()
    for submap in submaps[:ENDS]:
        database.add(str(submap.id), submap.gpgmap)
    accepted = [
        (submap.id, name)
        for submap in submaps[-ENDS:]
        for name, found in database.closures(submap.gpgmap, max_matches=ENDS)
        if found.accepted
    ]
    assert accepted == [(submaps[-1].id, str(submaps[0].id))]


def test_odometry_as_a_prior_speaks_for_it(drive):
    """Odometry that may have drifted by metres and degrees adds to the evidence; a wrong prior rules it out."""
    submaps, _, _ = drive
    first, end = submaps[0], submaps[-1]
    covariance = np.diag([3.0**2, 3.0**2, 2.0**2, *np.deg2rad([2.0, 2.0, 3.0]) ** 2])
    expected = inverse(first.T_map_submap) @ end.T_map_submap
    alone = register(end.gpgmap, first.gpgmap)
    helped = register(end.gpgmap, first.gpgmap, prior=PosePrior(expected, covariance))
    assert helped.accepted, helped.reason
    assert helped.score > alone.score + 2.0
    np.testing.assert_allclose(helped.T_target_source, alone.T_target_source, atol=0.05)
    elsewhere = expected.copy()
    elsewhere[:2, 3] += 20.0
    assert not register(end.gpgmap, first.gpgmap, prior=PosePrior(elsewhere, covariance)).accepted
