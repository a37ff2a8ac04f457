"""Loop closures in this process: every request is answered, with all that is known."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.closure_local import LocalClosures
from gpgmap_ros.slam.closure_messages import Answer, GlobalMap, MakeGlobalMap, Reject, Rejected, Update
from gpgmap_ros.slam.work_queue import ThreadExecutor


def flat_submap(id: int) -> Submap:
    """Level ground, on which no place can be recognised."""
    level = {name: np.zeros((20, 20), dtype=np.float32) for name in ("elevation", "gradient_x", "gradient_y")}
    level |= {
        name: np.full((20, 20), 1e-4, dtype=np.float32)
        for name in ("variance", "gradient_x_variance", "gradient_y_variance")
    }
    T = np.eye(4)
    T[0, 3] = 10.0 * id
    return Submap(id, 1, T, GPGMap(Grid((0.0, 0.0), (20, 20), 0.2), level), id, id, 10.0, "distance")


@pytest.fixture
def answers() -> list[Answer]:
    return []


@pytest.fixture
def closures(answers: list[Answer]) -> LocalClosures:
    errors: list[Exception] = []
    return LocalClosures(Config(), answers.append, ThreadExecutor("test", 2, errors.append))


def test_each_submap_is_answered_with_all_that_are_known(
    closures: LocalClosures, answers: list[Answer]
) -> None:
    closures.start()
    for id in range(4):
        closures.add(flat_submap(id), stored=False)
    closures.wait()
    updates = [answer for answer in answers if isinstance(answer, Update)]
    assert [update.ids.tolist() for update in updates] == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert all(update.complete for update in updates)
    np.testing.assert_allclose(updates[-1].poses[:, 0, 3], [0.0, 10.0, 20.0, 30.0])
    closures.close()


def test_after_close_the_pose_graph_can_be_read(closures: LocalClosures) -> None:
    for id in range(3):
        closures.add(flat_submap(id), stored=False)
    closures.close()
    assert [node.id for node in closures.closer.nodes] == [0, 1, 2]
    assert closures.closer.skipped.keys() == {0, 1, 2}


def test_a_closure_that_is_not_there_cannot_be_rejected(
    closures: LocalClosures, answers: list[Answer]
) -> None:
    closures.add(flat_submap(0), stored=False)
    closures.ask(Reject(0, 1, token=5))
    closures.close()
    answer = answers[-1]
    assert isinstance(answer, Rejected)
    assert (answer.token, answer.done) == (5, False)
    assert "no closure between submaps 0 and 1" in answer.message


def test_without_a_folder_there_is_no_global_map_and_it_says_why(
    closures: LocalClosures, answers: list[Answer]
) -> None:
    closures.add(flat_submap(0), stored=False)
    closures.ask(MakeGlobalMap())
    closures.close()
    answer = answers[-1]
    assert isinstance(answer, GlobalMap)
    assert answer.gpgmap is None
    assert "map_folder" in answer.problem
