"""A folder that somebody writes into is not taken, and not deleted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fast_mapping import options

from gpgmap_ros.cli import main
from gpgmap_ros.cli.common import MARK, output_folder, release_folders
from gpgmap_ros.storage.folder_lock import FolderInUse, FolderLock, describe_owner


def test_a_run_that_is_being_written_is_not_overwritten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with FolderLock(run, "gpgmap"):
        (run / MARK).write_text("{}")
        with pytest.raises(FolderInUse, match="name another folder with --out"):
            output_folder(run, "name", overwrite=True)
        assert (run / MARK).exists()
    assert output_folder(run, "name", overwrite=True) == run
    assert not (run / MARK).exists()


def test_a_new_folder_is_owned_until_it_is_released(tmp_path: Path) -> None:
    folder = output_folder(tmp_path / "new" / "run", "name", overwrite=False)
    with pytest.raises(FolderInUse, match="in use by gpgmap"):
        FolderLock(folder, "mapping_node")
    release_folders()
    FolderLock(folder, "mapping_node").release()


@pytest.mark.parametrize("points", [5, 500])
def test_a_command_that_has_ended_owns_nothing(tmp_path: Path, points: int) -> None:
    """Also one that failed, in a Python program that goes on."""
    xyz = np.random.default_rng(0).uniform(0.0, 5.0, (points, 3))
    np.save(tmp_path / "points.npy", xyz * [1.0, 1.0, 0.01])
    out = tmp_path / "run"
    code = main(["map", str(tmp_path / "points.npy"), "--out", str(out), *options()])
    assert code == (0 if points == 500 else 1)
    assert describe_owner(out) == ""


def test_a_folder_with_nothing_but_a_free_lock_is_empty(tmp_path: Path) -> None:
    FolderLock(tmp_path, "somebody").release()
    assert output_folder(tmp_path, "name", overwrite=False) == tmp_path
