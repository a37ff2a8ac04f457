"""What changed between two made surveys."""

from __future__ import annotations

import numpy as np
import pytest
from made_maps import SHAPE, STD, H, make_errors, make_ground, make_map, mound

from gpgmap_ros.change import NoCommonGround, compare_maps
from gpgmap_ros.change.detection import adjust_p_values
from gpgmap_ros.change.error_correlation import draw_fields, estimate_correlation


def surveys(seed: int, change: np.ndarray | float = 0.0, offset: float = 0.0):
    rng = np.random.default_rng(seed)
    ground = make_ground(rng)
    return make_map(ground + make_errors(rng)), make_map(ground + make_errors(rng) + change + offset)


def test_no_change_is_none() -> None:
    found = compare_maps(*surveys(1, offset=0.05), draws=30)
    assert found.patches == ()
    assert not np.nan_to_num(found.change).any()
    assert 0.03 < found.share_at_level < 0.07
    # both surveys err by STD; the maps state three times less
    assert np.nanmedian(found.std) == pytest.approx(np.sqrt(2.0) * STD, rel=0.15)
    assert abs(found.motion[2] - 0.05) < 4.0 * found.motion_std[2] < 0.02


def test_cut_and_fill_are_found_with_their_volumes() -> None:
    change = mound(0.4, 6.0, 6.0, 1.4) + mound(-0.8, 16.0, 12.0, 1.8)
    found = compare_maps(*surveys(2, change, offset=0.05), draws=40)
    assert [patch.kind for patch in found.patches] == ["cut", "fill"]
    cut, fill = found.patches
    assert np.hypot(fill.x - 6.0, fill.y - 6.0) < 0.5
    assert np.hypot(cut.x - 16.0, cut.y - 12.0) < 0.5
    for patch, volume in ((fill, 0.4), (cut, -0.8)):
        assert patch.interval[0] < volume < patch.interval[1]
        assert 0.0 < patch.std < 0.15
    assert found.change[int(6.0 / H), int(6.0 / H)] == 1.0
    assert found.change[int(12.0 / H), int(16.0 / H)] == -1.0
    assert found.net[0] == pytest.approx(fill.volume + cut.volume)
    # correlated errors do not average out as independent ones would
    assert found.independent_ratio > 2.0


def test_a_moved_survey_is_aligned() -> None:
    rng = np.random.default_rng(3)
    ground = make_ground(rng, (SHAPE[0], SHAPE[1] + 1))
    before = make_map(ground[:, :-1] + make_errors(rng))
    after = make_map(
        ground[:, 1:] + make_errors(rng)
    )  # its cells show what lies one cell further: off by -H along x
    found = compare_maps(before, after, draws=30)
    assert found.motion[0] == pytest.approx(-H, abs=0.1 * H)
    assert found.patches == ()
    kept = compare_maps(before, after, draws=30, align=False)
    assert np.nanstd(kept.difference) > 2.0 * np.nanstd(found.difference)


def test_the_whole_ground_may_have_moved() -> None:
    """With the frames kept, an offset of the whole area is no error of the alignment."""
    found = compare_maps(*surveys(4, offset=0.3), draws=30, align=False)
    assert np.nanmedian(found.difference) == pytest.approx(0.3, abs=0.01)
    assert (found.change[found.compared] == 1.0).mean() > 0.95
    assert found.motion[2] == pytest.approx(0.3, abs=0.02)


def test_another_pose_is_resampled() -> None:
    rng = np.random.default_rng(5)
    ground = make_ground(rng)
    before = make_map(ground + make_errors(rng))
    T = np.eye(4)
    T[:3, 3] = 100.0 + 0.5 * H, -50.0, 7.0
    moved = make_map(ground + make_errors(rng) - 7.0, origin=(-100.0 - 0.5 * H, 50.0))
    found = compare_maps(before, moved, T, draws=30)
    assert found.patches == ()
    assert np.abs(found.motion[:3]).max() < 0.02


def test_the_result_is_repeatable() -> None:
    maps = surveys(6, mound(0.5, 8.0, 8.0, 1.5))
    first, second = (compare_maps(*maps, draws=30) for _ in range(2))
    assert first.patches == second.patches
    np.testing.assert_array_equal(first.std, second.std)


def test_unmeasured_ground_is_not_compared() -> None:
    before, after = surveys(7)
    variance, z = after["variance"].copy(), after["elevation"].copy()
    variance[:20, :20] *= 1e4
    z[:20, :20] += 0.5
    layers = {**{name: after[name] for name in after.layers}, "variance": variance, "elevation": z}
    found = compare_maps(before, type(after)(after.grid, layers), draws=30)
    assert not found.compared[:20, :20].any()
    assert found.patches == ()


def test_maps_without_common_ground_are_refused() -> None:
    before, after = surveys(8)
    apart = make_map(after["elevation"].astype(float), origin=(500.0, 0.0))
    with pytest.raises(NoCommonGround, match="share 0 cells"):
        compare_maps(before, apart)
    coarse = make_map(after["elevation"].astype(float), resolution=0.5)
    with pytest.raises(NoCommonGround, match=r"0.2 m and 0.5 m"):
        compare_maps(before, coarse)


def test_the_correlation_of_drawn_fields_is_recovered() -> None:
    rng = np.random.default_rng(9)
    scores = make_errors(rng, (200, 200), 3.0) / STD
    found = estimate_correlation(scores, np.ones(scores.shape, dtype=bool))
    # a Gaussian filter of 3 cells makes exp(-h^2 / (4 9))
    assert found.at(np.array(4.0)) == pytest.approx(np.exp(-16.0 / 36.0), abs=0.1)
    fields = np.array(list(draw_fields(found, (60, 60), 20, rng)))
    assert fields.std() == pytest.approx(1.0, abs=0.1)
    assert np.mean(fields[:, :, 4:] * fields[:, :, :-4]) == pytest.approx(
        float(found.at(np.array(4.0))), abs=0.1
    )


def test_false_discovery_rates_by_hand() -> None:
    np.testing.assert_allclose(
        adjust_p_values(np.array([0.01, 0.04, 0.03, 0.5])), [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )
