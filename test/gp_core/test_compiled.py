"""How loops are compiled: shared options, where the machine code is kept, and what the user is told."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.event import Listener, install_listener

from gp_core.compiled import compiled


@compiled()
def _quotients(a, b, out):
    for k in range(out.size):
        out[k] = a[k] / b[k]


def test_a_division_by_zero_raises_nothing():
    out = np.zeros(3)
    _quotients(np.array([1.0, -1.0, 0.0]), np.zeros(3), out)
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan])


class _Collecting(Listener):
    """Whether garbage is collected while something is compiled."""

    def __init__(self):
        self.seen = []

    def on_start(self, event):
        self.seen.append(gc.isenabled())

    def on_end(self, event):
        pass


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_a_loop_is_compiled(enabled):
    @compiled()
    def increased(x):
        return x + 1.0

    assert increased(2.0) == 3.0
    listener = _Collecting()
    try:
        if not enabled:
            gc.disable()
        with install_listener("numba:compile", listener):
            increased.recompile()
        assert gc.isenabled() == enabled  # as it was
    finally:
        gc.enable()
    assert listener.seen
    assert not any(listener.seen)


MODULE = """
from gp_core.compiled import compiled

@compiled()
def doubled(x):
    return 2.0 * x
"""


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a module whose machine code cannot be kept beside it."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "module.py").write_text(MODULE)
    (folder / "__pycache__").touch()  # no folder, and none can be made
    return folder


def use(folder: Path) -> str:
    return (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from module import doubled; print(doubled(21.0))"
    )


def test_what_cannot_be_kept_beside_the_source_is_kept_for_the_user(installed: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    environment = {"HOME": str(user), "XDG_CACHE_HOME": str(user), "NUMBA_CACHE_DIR": ""}
    assert run_python(use(installed), **environment).stdout == "42.0\n"
    assert list(user.rglob("module.doubled*.nbc"))


def test_without_any_folder_to_write_to_it_works_all_the_same(installed: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    environment = {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere), "NUMBA_CACHE_DIR": ""}
    code = use(installed) + "; from gp_core.compiled import cache_folder; print(cache_folder())"
    assert run_python(code, **environment).stdout == "42.0\nNone\n"


@pytest.mark.parametrize("noticeable", [0.0, 3600.0])
def test_a_first_start_that_takes_a_while_says_so_and_the_next_one_is_quiet(
    tmp_path: Path, noticeable: float
) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    code = f"import gp_core.compiled as c; c._NOTICEABLE = {noticeable}; " + use(tmp_path)
    first, second = (run_python(code) for _ in range(2))
    assert first.stderr.count("compiling the inner loops for this CPU") == (noticeable == 0.0)
    assert first.stdout == second.stdout == "42.0\n"
    assert second.stderr == ""


def test_an_index_of_another_version_is_not_used(tmp_path):
    """It names classes that are gone: the loop is compiled anew, and nothing is raised."""
    module = tmp_path / "loops_of_a_user.py"
    module.write_text(
        "from typing import NamedTuple\n"
        "from gp_core.compiled import compiled\n"
        "class Pair(NamedTuple):\n    a: float\n    b: float\n"
        "@compiled()\ndef total(pair):\n    return pair.a + pair.b\n"
    )
    script = "import loops_of_a_user as m; print(m.total(m.{name}(1.0, 2.0)), m.total.stats.cache_hits)"

    def run(name: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", script.format(name=name)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split("}")[0]

    assert run("Pair").startswith("3.0")
    module.write_text(module.read_text().replace("Pair", "Couple"))
    assert run("Couple").startswith("3.0")
