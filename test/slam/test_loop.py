"""The loop: the same result wherever submaps are solved and compared, and errors that reach the one who maps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fast_mapping import fast_config

from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue
from gpgmap_ros.slam import Executors, Slam, Step
from gpgmap_ros.slam.closure_server import ClosureServer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ros"))
from returning_drive import PARAMETERS, ReturningDrive


def run(
    executors: Executors, clouds: int | None = None
) -> tuple[Slam, list[Step], list[Submap], list[LoopClosure]]:
    """A drive that returns to its start, one pose after each cloud as on a robot."""
    source = make_source("tf", SourceSetup.recorded("odom", "lidar", "lidar"))
    now = 0
    slam = Slam(fast_config(PARAMETERS), PoseQueue(source, 1.0, lambda: now), executors)
    steps: list[Step] = []
    with single_threaded_blas():
        for k, step in enumerate(ReturningDrive()):
            if k == clouds:
                break
            now = step.stamp
            outcomes = list(slam.add_cloud(Cloud(step.stamp, "lidar", step.points)))
            source.insert_transform(FrameTransform("odom", "lidar", step.stamp, step.T_odom_robot))
            outcomes += list(slam.advance())
            assert not any(isinstance(item, DroppedCloud) for item in outcomes)
            steps += [item for item in outcomes if isinstance(item, Step)]
        slam.wait()
        slam.end("end of the test")
    last = slam.take_results()
    submaps = [*(item for step in steps for item in step.submaps), *last[0]]
    closures = [*(item for step in steps for item in step.closures), *last[1]]
    return slam, steps, submaps, closures


def test_inline_and_in_threads_the_result_is_the_same() -> None:
    slam, steps, submaps, closures = run(Executors.inline())
    others = run(Executors.threads())
    assert len(steps) == len(others[1])
    assert [item.id for item in submaps] == [item.id for item in others[2]] == list(range(len(submaps)))
    pairs = [(item.a, item.b, item.accepted) for item in closures]
    assert pairs == [(item.a, item.b, item.accepted) for item in others[3]]
    assert any(item.accepted for item in closures)
    for mine, other in zip(submaps, others[2], strict=True):
        np.testing.assert_array_equal(mine.gpgmap["elevation"], other.gpgmap["elevation"])
    np.testing.assert_array_equal(slam.T_map_odom, others[0].T_map_odom)
    assert not np.array_equal(slam.T_map_odom, np.eye(4)), "the closures correct the odometry"
    last = steps[-1]
    np.testing.assert_allclose(last.T_map_robot[:3, :3] @ last.T_map_robot[:3, :3].T, np.eye(3), atol=1e-9)


@pytest.mark.parametrize("executors", [Executors.inline(), Executors.threads()], ids=["inline", "threads"])
def test_an_error_beside_the_mapping_reaches_the_one_who_maps(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ClosureServer, *arguments: object) -> None:
        raise ValueError("the comparison failed")

    monkeypatch.setattr(ClosureServer, "serve", fail)
    with pytest.raises(ValueError, match="the comparison failed"):
        run(executors, clouds=200)


def test_a_drive_has_its_own_reason_where_clouds_are_located_ahead_of_the_mapping() -> None:
    """Replay locates some clouds ahead: by the time the first drive is mapped, the source knows of all breaks."""
    pytest.importorskip("small_gicp")
    source = make_source("lidar", SourceSetup.recorded("odom", "lidar", "lidar"))
    slam = Slam(fast_config({}), PoseQueue(source, 1.0, lambda: 0), Executors.inline())
    rng, located = np.random.default_rng(0), []
    for stamp in (1.0, 1.1, 11.1, 31.1):
        walls = rng.uniform(-5.0, 5.0, (6000, 3))
        walls[np.arange(6000), np.arange(6000) % 3] = -5.0
        slam.poses.put(Cloud(round(stamp * 1e9), "lidar", walls))
        located += list(slam.poses.ready())
    for found in located:
        assert isinstance(found, LocatedCloud)
        assert isinstance(slam.register(found), Step)
    reasons = [drive.reason for drive in slam.drives.all]
    assert reasons == ["", "there is no cloud for 10.0 s", "there is no cloud for 20.0 s"]
