"""Bags that are written: whole, under their own name, and never over what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

from gpgmap_ros.io.bags import BagError, Stamped, write_bag


def message(text: str) -> Stamped:
    kind = get_typestore(Stores.ROS2_JAZZY).types["std_msgs/msg/String"]
    return Stamped("/said", 1, kind(data=text))


def test_the_files_in_a_bag_have_its_name(tmp_path: Path) -> None:
    for text in ("once", "again"):
        write_bag(tmp_path / "notes", [message(text)])
        names = sorted(item.name for item in (tmp_path / "notes").iterdir())
        assert names == ["metadata.yaml", "notes.db3"]
    with Reader(tmp_path / "notes") as reader:
        assert reader.message_count == 1
    assert [item.name for item in tmp_path.iterdir()] == ["notes"]


def test_what_is_no_bag_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(BagError, match="is there already and no bag"):
        write_bag(tmp_path / "mine", [message("hello")])
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"


def test_a_failure_leaves_the_old_bag(tmp_path: Path) -> None:
    write_bag(tmp_path / "notes", [message("once")])

    def broken():  # type: ignore[no-untyped-def]
        yield message("again")
        raise RuntimeError("the source ends")

    with pytest.raises(RuntimeError, match="the source ends"):
        write_bag(tmp_path / "notes", broken())
    with Reader(tmp_path / "notes") as reader:
        assert reader.message_count == 1
    assert [item.name for item in tmp_path.iterdir()] == ["notes"]
