"""What /diagnostics says about the loop closures, update by update, without a process."""

from __future__ import annotations

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from graph_updates import update_of

from gpgmap_ros.config import Config
from gpgmap_ros.nodes import closure_status
from gpgmap_ros.nodes.closure_status import ClosureStatus
from gpgmap_ros.slam.closure_process import ClosureProcess


@pytest.fixture
def status() -> ClosureStatus:
    """Of a process that has not been started."""
    return ClosureStatus(ClosureProcess(Config(), None, lambda answer: None))


def values(message: DiagnosticStatus) -> dict[str, str]:
    return {item.key: item.value for item in message.values}


def test_before_the_first_submap_nothing_is_wrong(status: ClosureStatus) -> None:
    message = status.diagnostics("mapping_node")
    assert message.level == DiagnosticStatus.OK
    assert message.name == "mapping_node: loop closure"
    assert message.message == "no submap has been compared yet"
    assert values(message) == {"requests waiting": "0", "submaps waiting to be compared": "0"}


def test_closures_and_the_correction_are_told(status: ClosureStatus) -> None:
    T = np.eye(4)
    T[:2, :2] = [[0.0, -1.0], [1.0, 0.0]]
    T[:3, 3] = 3.0, 4.0, 0.0
    accepted = np.array([True, False, True])
    status.update = update_of(
        [0, 1, 2, 3], [(0, 2), (0, 3), (1, 3)], True, accepted=accepted, T_map_odom=T, skipped=1, count=6
    )
    message = status.diagnostics("mapping_node")
    assert message.message == "2 closures over 4 submaps"
    found = values(message)
    assert found["closures in the graph"] == "2"
    assert found["closures overruled or rejected"] == "1"
    assert found["submaps in the graph"] == "4"
    assert found["submaps that show no place"] == "1"
    assert found["comparisons"] == "6"
    assert found["correction map <- odom (m)"] == "5.000"
    assert found["correction map <- odom (deg)"] == "90.00"


@pytest.mark.parametrize(
    ("changes", "end"),
    [({"earlier": True}, " of earlier drives"), ({"located": False}, "; not found in the earlier map yet")],
    ids=["earlier", "not located"],
)
def test_it_says_where_the_drive_belongs(status: ClosureStatus, changes: dict[str, object], end: str) -> None:
    status.update = update_of([0, 1], [(0, 1)], True, **changes)
    assert status.diagnostics("n").message == "1 closures over 2 submaps" + end


def test_a_problem_of_the_solver_is_a_warning(status: ClosureStatus) -> None:
    status.update = update_of([0, 1], [], True, problem="there is no solver")
    message = status.diagnostics("n")
    assert message.level == DiagnosticStatus.WARN
    assert message.message == "there is no solver"


def test_a_backlog_that_does_not_shrink_is_a_warning(
    status: ClosureStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(closure_status.time, "monotonic", lambda: now)
    monkeypatch.setattr(ClosureProcess, "backlog", 408)
    status.update = update_of([0, 1], [(0, 1)], True)
    assert status.diagnostics("n").level == DiagnosticStatus.OK, "it may have begun this moment"
    now += 3_600.0
    message = status.diagnostics("n")
    assert message.level == DiagnosticStatus.WARN
    assert "408 submaps" in message.message
    assert values(message)["submaps waiting to be compared"] == "408"
