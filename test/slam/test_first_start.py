"""The process beside a first start (test/cli/test_compile.py has what is compiled by whom)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limits import PATIENCE

from gpgmap_ros.config import Config
from gpgmap_ros.slam import first_start

BOTH_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a second core")


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let another program be the process beside."""
    monkeypatch.setattr(first_start, "module_command", lambda *_: [sys.executable, "-c", code])


@BOTH_CORES
def test_the_process_beside_has_ended_when_the_map_is_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    child(monkeypatch, f"import sys; sys.stdin.buffer.read(); open({str(done)!r}, 'w')")
    with first_start._process_beside(Config(), closures_too=False):
        pass
    assert done.exists()


@BOTH_CORES
@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.close(0); os._exit(3)"])
def test_a_process_beside_that_fails_does_no_harm(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    child(monkeypatch, code)
    with first_start._process_beside(Config(), closures_too=False):
        pass


def test_a_process_beside_that_cannot_be_started_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_start, "module_command", lambda *_: ["/nowhere/python"])
    with first_start._process_beside(Config(), closures_too=False):
        pass


COMPILED = """
from numba.core.event import Listener, register

class Compiled(Listener):
    names = set()
    def on_start(self, event):
        self.names.add(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

register("numba:compile", Compiled())
from gpgmap_ros.config import Config
from gpgmap_ros.slam.first_start import Trial
Trial(Config()).draw_empty_map()
print(*Compiled.names)
"""


def test_an_empty_map_is_drawn_without_what_it_is_solved_by(tmp_path: Path) -> None:
    """So that the process beside can compile the one while this one compiles the other."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path)),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = set(done.stdout.split())
    assert "at_cells" in names
    assert not {"add_blocks", "eliminate", "substitute"} & names


@BOTH_CORES
def test_it_is_not_waited_for_after_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    child(
        monkeypatch,
        f"import os, time; open({str(number)!r}, 'w').write(str(os.getpid()) + '\\n'); time.sleep(3600)",
    )

    def interrupted() -> None:
        with first_start._process_beside(Config(), closures_too=False):
            while not (number.exists() and number.read_text().endswith("\n")):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


LATE = """
import numpy as np
from gp_core import compiled
from gpgmap_ros.config import Config
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.first_start import compile_mapping

def forms():
    return {(loop.__module__, loop.__name__, form) for loop in compiled._WATCH.loops for form in loop.overloads}

compile_mapping(Config())
before = forms()
pipeline, rng = MappingPipeline(Config(), solved_beside=True), np.random.default_rng(0)
for stamp in range(1, 4):
    points = np.column_stack([rng.uniform(-3.0, 3.0, (2000, 2)), rng.normal(-1.0, 0.1, 2000)])  # as they are decoded
    pipeline.add_cloud(points, np.eye(4), stamp * 1_000_000_000, np.eye(6) * 1e-6)
    task = pipeline.map_to_solve()
    pipeline.look_at(task.solve())
    task.renew()
assert forms() == before, forms() - before
"""


def test_no_cloud_of_a_run_has_to_wait_for_a_loop() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=PATIENCE)


DETAIL = """
import sys
import numpy as np
from gp_core import compiled
from gpgmap_ros.apps.first_start import compile_all_mapping, compile_surveys
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import gpgmap_from_points
from gpgmap_ros.slam.closure_warm_up import warm_up
from gpgmap_ros.slam.first_start import compile_mapping

def forms():
    return sum(len(loop.overloads) for loop in compiled._WATCH.loops if loop.__module__ == "gp_core.grid.markov.detail")

if sys.argv[1] == "compile":
    compile_all_mapping(Config())
    compile_surveys(Config())
    before = forms()
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.0, 40.0, (10_000, 2))
    z = sum(np.sin(xy @ rng.normal(0.0, 1.2, 2) + rng.uniform(0.0, 6.3)) for _ in range(40))
    gpgmap_from_points(np.column_stack([xy, 0.1 * z]), 1.0)
    assert forms() == before, "a map that has detail compiles nothing more"
else:
    compile_mapping(with_settings(Config(), {"mapping.detail": sys.argv[1]}))
    warm_up()  # the closures of the node
print(forms())
"""


@pytest.mark.parametrize(("what", "some"), [("batch", False), ("always", True), ("compile", True)])
def test_detail_is_compiled_by_who_may_need_it(what: str, some: bool) -> None:
    """Not by a first start of the node with the default, though `gpgmap compile` does it."""
    found = subprocess.run(
        [sys.executable, "-c", DETAIL, what], check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True
    )
    assert (int(found.stdout) > 0) == some
