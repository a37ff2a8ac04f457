"""Messages of the loop closures."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")

from gpgmap_ros.nodes.messages import MOST_POSES, path_message


@pytest.mark.parametrize("count", [0, 1, 7, MOST_POSES, MOST_POSES + 1, 3 * MOST_POSES + 5])
def test_a_path_of_any_length_is_sent_with_its_end(count):
    poses = np.repeat(np.eye(4)[None], count, axis=0)
    poses[:, 0, 3] = np.arange(count)
    path = path_message(np.arange(count) * 10**9, poses, "map", 5)
    assert min(count, MOST_POSES // 2) <= len(path.poses) <= MOST_POSES
    if count:
        assert path.poses[-1].pose.position.x == count - 1
        assert path.poses[-1].header.stamp.sec == count - 1
