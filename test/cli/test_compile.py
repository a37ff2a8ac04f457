"""gpgmap compile: after it, nothing is left for the first start to compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

USES = """
from numba.core.event import Listener, register

class Compiled(Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

register("numba:compile", Compiled())
from gpgmap_ros.closure.warm_up import warm_up
from gpgmap_ros.config import Config
from gpgmap_ros.pipeline import MappingPipeline
MappingPipeline(Config()).warm_up()
warm_up()
print(Compiled.names)
"""


@pytest.mark.slow
def test_after_it_neither_the_node_nor_the_closures_compile_anything(
    executables: Path, tmp_path: Path
) -> None:
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
        )

    first = run(str(executables / "gpgmap"), "compile")
    assert "compiling the inner loops for this CPU" in first.stderr
    assert run(sys.executable, "-c", USES).stdout == "[]\n"
    second = run(str(executables / "gpgmap"), "compile", "--json")
    assert "inner loops" not in second.stderr
    assert set(json.loads(second.stdout)["seconds"]) == {"mapping", "loop closure"}
