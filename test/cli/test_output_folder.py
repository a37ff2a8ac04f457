"""A folder that somebody writes into is not taken, and not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpgmap_ros.cli.common import MARK, output_folder
from gpgmap_ros.storage.folder_lock import FolderInUse, FolderLock


def test_a_run_that_is_being_written_is_not_overwritten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with FolderLock(run, "gpgmap"):
        (run / MARK).write_text("{}")
        with pytest.raises(FolderInUse, match="name another folder with --out"):
            output_folder(run, "name", overwrite=True)
        assert (run / MARK).exists()
    assert output_folder(run, "name", overwrite=True) == run
    assert not (run / MARK).exists()


def test_a_new_folder_is_owned_until_the_process_ends(tmp_path: Path) -> None:
    folder = output_folder(tmp_path / "new" / "run", "name", overwrite=False)
    with pytest.raises(FolderInUse, match="in use by gpgmap"):
        FolderLock(folder, "mapping_node")


def test_a_folder_with_nothing_but_a_free_lock_is_empty(tmp_path: Path) -> None:
    FolderLock(tmp_path, "somebody").release()
    assert output_folder(tmp_path, "name", overwrite=False) == tmp_path
