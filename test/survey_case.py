"""Small surveys in files, mapped in the process of the test or by a runner of its own."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fast_mapping import FAST

from gpgmap_ros.apps.survey_files import SurveyRequest, prepare
from gpgmap_ros.apps.survey_job import SurveyJob
from gpgmap_ros.apps.survey_run import resume_plan, run_survey
from gpgmap_ros.apps.survey_runner import LocalRunner, Runner
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.run_folder import RunFolder

SETTINGS = {
    **FAST, "mapping.resolution": 1.0, "mapping.length_scale": 3.0,
}  # fmt: skip
"""Windows of 256 cells at the least: the files below make two of them."""
MEMORY = 600 << 20


def hills(count: int, corner: tuple[float, float], seed: int) -> np.ndarray:
    """Points (N, 3) on 100 m x 100 m of smooth hills."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, 100.0, (count, 2)) + corner
    z = 3.0 * np.sin(xy[:, 0] / 16.0) * np.cos(xy[:, 1] / 17.0) + 0.02 * rng.normal(size=count) + 250.0
    return np.column_stack([xy, z])


def write_tiles(folder: Path, count: int = 4, points: int = 4000) -> list[Path]:
    """Files side by side, so that the map is wider than one window."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        path = folder / f"tile_{number}.npz"
        np.savez(path, xyz=hills(points, (100.0 * number, 0.0), number), epsg=32611)
        paths.append(path)
    return paths


def request_of(
    files: Sequence[Path], *, settings: Mapping[str, Any] = SETTINGS, **options: Any
) -> SurveyRequest:
    return SurveyRequest(tuple(files), with_settings(Config(), settings), frozenset(settings), **options)


def map_files(
    files: Sequence[Path], out: Path, runner: Runner | None = None, *, resume: bool = False, **options: Any
) -> dict[str, Any]:
    """What `gpgmap map` does; its summary."""
    runner = runner or LocalRunner()
    request, folder = request_of(files, **options), RunFolder(out)
    prepared = resume_plan(folder, request, runner) if resume else prepare(request, runner)
    out.mkdir(exist_ok=True)
    return run_survey(SurveyJob("survey", request, prepared, folder, MEMORY, runner), time.monotonic())


def assert_same_map(one: Path, other: Path) -> None:
    """Up to round-off."""
    with np.load(one / "map.npz") as a, np.load(other / "map.npz") as b:
        assert a.files == b.files
        for name in a.files:
            if a[name].ndim == 2:
                assert np.isfinite(a[name]).any()
                np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-5, err_msg=name)
            else:
                assert np.array_equal(a[name], b[name])


def kill_this_worker(mark: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function; the first call of all ends its process a moment after it has begun."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return function(*arguments)
    threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGKILL)).start()
    function(*arguments)
    threading.Event().wait(60.0)  # it was faster: the end is near
    return None


def limit_files(size: int) -> None:
    """Files of this process may not grow beyond it: the errors of a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
