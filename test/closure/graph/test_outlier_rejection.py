"""Which registered closures are used."""

from __future__ import annotations

import pytest
from graph_nodes import closure, node

from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.graph.outlier_rejection import OutlierRejection
from gpgmap_ros.closure.graph.pairwise_consistency import OdometryPoses


@pytest.fixture
def outliers() -> OutlierRejection:
    nodes = [node(k) for k in range(10)] + [node(k, drive=2, place=k - 10) for k in range(10, 15)]
    odometry = OdometryPoses(
        {n.id: n.T_odom_submap for n in nodes},
        {n.id: n.driven for n in nodes},
        {n.id: n.drive for n in nodes},
    )
    return OutlierRejection(odometry, Drift(0.05, 0.001), accept=0.95)


def test_what_the_registration_refused_takes_no_part(outliers: OutlierRejection) -> None:
    assert not outliers.add(closure(0, 5, registered=False))
    assert outliers.select() == []
    assert not outliers.objections
    assert not outliers.remove((0, 5))


def test_odometry_rules_out_what_is_far_off_within_a_drive_only(outliers: OutlierRejection) -> None:
    assert not outliers.add(closure(0, 2, off=30.0))
    assert "contradicts the odometry" in outliers.objections[0, 2]
    assert outliers.add(closure(0, 12, off=30.0)), "no odometry joins two drives"
    assert outliers.select() == [(0, 12)]


def test_the_majority_decides_and_is_decided_anew(outliers: OutlierRejection) -> None:
    # all within what odometry allows, two against one
    assert outliers.add(closure(0, 9, off=1.5, score=99.0))
    assert outliers.select() == [(0, 9)]
    assert outliers.add(closure(0, 8, off=-0.5))
    assert outliers.add(closure(1, 9, off=-0.5))
    assert outliers.select() == [(0, 8), (1, 9)]
    assert "contradicts 2 of 2 other closures, 0 - 8" in outliers.objections[0, 9]
    assert outliers.remove((0, 8))
    assert outliers.remove((1, 9))
    assert outliers.select() == [(0, 9)]
    assert not outliers.objections
