"""What a call of `gpgmap map` asks for: ground, and a window of the files."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from survey_case import hills, map_files

from gpgmap_ros.apps.survey_files import SurveyRequest
from gpgmap_ros.cli.common import UsageError
from gpgmap_ros.cli.map_command import add_arguments, request_from
from gpgmap_ros.io.points import Window


def request(*options: str) -> SurveyRequest:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return request_from(parser.parse_args(["tile.laz", *options]))


def test_ground_reads_all_classes_but_noise() -> None:
    asked = request("--ground")
    assert asked.ground_width == 20.0
    assert asked.classes is not None
    assert {1, 2, 5, 6} <= set(asked.classes)
    assert not {7, 18} & set(asked.classes)
    assert request("--ground", "--class", "1,2", "--object-width", "40").classes == (1, 2)
    assert request().ground_width == 0.0


def test_a_window_is_given_by_its_corners_and_a_spacing() -> None:
    assert request().window == Window()
    asked = request("--bounds=-10,20,30,40.5", "--spacing", "0.5").window
    assert asked == Window((-10.0, 20.0, 30.0, 40.5), 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--object-width", "40"), "--object-width is for --ground"),
        (("--ground", "--object-width", "0"), "--object-width 0: expected"),
        (("--bounds", "1,2,3"), "expected four numbers"),
        (("--bounds", "5,2,3,4"), "the smallest x and y come first"),
        (("--spacing", "-1"), "expected a distance"),
    ],
)
def test_what_can_not_be_is_refused(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        request(*options)


def test_only_the_points_in_the_window_are_mapped(tmp_path: Path) -> None:
    xyz = hills(4000, (0.0, 0.0), 2)
    np.savez(tmp_path / "tile.npz", xyz=xyz)
    box = (20.0, 30.0, 60.0, 90.0)
    summary = map_files([tmp_path / "tile.npz"], tmp_path / "out", window=Window(box))
    inside = ((xyz[:, :2] >= box[:2]) & (xyz[:, :2] <= box[2:])).all(axis=1)
    assert summary["points"]["used"] == inside.sum()
    assert summary["map"]["cells"] == [60, 40]
