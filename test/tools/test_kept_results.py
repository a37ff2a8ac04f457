"""Results of long benchmarks: kept over kills, and stated with intervals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmark"))

from kept_results import KeptResults, make_once, wilson


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    path, made = tmp_path / "results.jsonl", []
    for _ in range(2):
        kept = KeptResults(path)
        for number in range(3):
            assert kept.get(f"{number}", lambda number=number: made.append(number) or {"n": number}) == {
                "n": number
            }
    assert made == [0, 1, 2]


def test_a_result_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    KeptResults(path).get("first", lambda: 1)
    with path.open("a") as file:
        file.write('{"name": "second", "val')
    kept = KeptResults(path)
    assert kept.get("first", lambda: 7) == 1
    assert kept.get("second", lambda: 2) == 2
    assert KeptResults(path).get("second", lambda: 7) == 2


def test_a_folder_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        (part / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_once(tmp_path / "map", fail)
    assert not list(tmp_path.iterdir())
    make_once(tmp_path / "map", lambda part: (part / "whole").touch())
    assert (tmp_path / "map" / "whole").exists()
    make_once(tmp_path / "map", fail)


def test_intervals_of_shares() -> None:
    assert wilson(0, 2000) == pytest.approx((0.0, 0.00192), abs=1e-5)
    assert wilson(90, 100) == pytest.approx((0.8256, 0.9448), abs=1e-4)
    assert wilson(100, 100) == pytest.approx((0.9630, 1.0), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
