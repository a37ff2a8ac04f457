"""Who maps a survey: this process or several, by the size of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpgmap_ros.apps import survey_cluster
from gpgmap_ros.apps.survey_cluster import choose_scheduler, is_scheduler, process_count

MB = 10**6


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_cluster, "process_count", lambda memory: 4)
    monkeypatch.setattr(survey_cluster, "dask_is_installed", lambda: True)


def files_of(folder: Path, *sizes: tuple[str, int]) -> list[Path]:
    """Files that take no room on the disk, whatever size they have."""
    paths = [folder / name for name, _ in sizes]
    for path, (_, size) in zip(paths, sizes, strict=True):
        with path.open("wb") as file:
            file.truncate(size)
    return paths


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([("a.laz", 100 * MB)], "local"),
        ([("a.laz", 300 * MB)], "processes"),
        ([("a.LAZ", 150 * MB), ("b.laz", 150 * MB)], "processes"),
        ([("a.las", 1000 * MB)], "local"),
        ([("a.npz", 1600 * MB)], "processes"),
        ([("a.laz", 150 * MB), ("b.las", 900 * MB)], "processes"),
        ([("a.laz", 50 * MB), ("b.las", 900 * MB)], "local"),
    ],
)
def test_large_files_are_mapped_by_several_processes(
    tmp_path: Path, sizes: list[tuple[str, int]], expected: str
) -> None:
    assert choose_scheduler(files_of(tmp_path, *sizes), 1 << 30) == expected


@pytest.mark.parametrize(("cores", "dask"), [(1, True), (4, False)])
def test_one_process_maps_them_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, dask: bool
) -> None:
    monkeypatch.setattr(survey_cluster, "process_count", lambda memory: cores)
    monkeypatch.setattr(survey_cluster, "dask_is_installed", lambda: dask)
    assert choose_scheduler(files_of(tmp_path, ("a.laz", 900 * MB)), 1 << 30) == "local"


@pytest.mark.usefixtures("four_cores")
def test_files_that_are_not_there_are_left_to_those_who_read_them(tmp_path: Path) -> None:
    assert choose_scheduler([tmp_path / "gone.laz"], 1 << 30) == "local"


def test_there_are_no_more_processes_than_memory_for_them() -> None:
    assert process_count(1 << 60) == 1


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("local", True), ("processes", True), ("tcp://head:8786", True), ("tls://10.0.0.1:8786", True),
        ("tcp://head", False), ("head:8786", False), ("threads", False), ("", False),
    ],
)  # fmt: skip
def test_schedulers_have_names_or_addresses(text: str, valid: bool) -> None:
    assert is_scheduler(text) == valid
