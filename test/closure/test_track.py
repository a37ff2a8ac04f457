"""A trajectory that is thinned as it grows."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.closure.track import ThinnedTrack, thinned

MOST = 10


def track(count: int) -> tuple[np.ndarray, np.ndarray]:
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, 0, 3] = np.arange(count)
    return np.arange(count, dtype=np.int64), poses


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 21, 1234])
def test_a_thinned_path_is_even_and_keeps_its_ends(count: int) -> None:
    stamps, poses = thinned(*track(count), MOST)
    assert len(stamps) <= MOST + 1
    if count:
        assert (stamps[0], stamps[-1]) == (0, count - 1)
        np.testing.assert_array_equal(poses[:, 0, 3], stamps)
        assert len(set(np.diff(stamps)[:-1].tolist())) <= 1


@pytest.mark.parametrize("begin", [0, 1, 7, 12, 40])
@pytest.mark.parametrize("step", [1, 3, 25])
def test_grown_in_pieces_it_is_the_same_as_at_once(begin: int, step: int) -> None:
    stamps, poses = track(200)
    grown = ThinnedTrack(MOST)
    grown.replace(*thinned(stamps[:begin], poses[:begin], MOST), begin)
    for start in range(begin, 200, step):
        grown.extend(stamps[start : start + step], poses[start : start + step])
        expected = thinned(stamps[: start + step], poses[: start + step], MOST)
        for one, other in zip(grown.arrays(), expected, strict=True):
            np.testing.assert_array_equal(one, other)
