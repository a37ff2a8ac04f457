"""Names that are imported when they are first used, and what a start need not wait for."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from gpgmap_ros.lazy_names import lazy_names


@pytest.mark.parametrize("name", ["gpgmap_ros.closure", "gpgmap_ros.slam"])
def test_every_public_name_is_there(name: str) -> None:
    package = importlib.import_module(name)
    for public in package.__all__:
        assert getattr(package, public).__name__ == public
    assert set(package.__all__) <= set(dir(package))


def test_other_names_are_refused_with_the_name_of_the_package() -> None:
    resolve, _ = lazy_names("gpgmap_ros.slam", {"Slam": "loop"})
    with pytest.raises(AttributeError, match=r"'gpgmap_ros\.slam' has no attribute 'Slalom'"):
        resolve("Slalom")
    with pytest.raises(ImportError, match="Slalom"):
        exec("from gpgmap_ros.slam import Slalom")


def imported(code: str, modules: list[str]) -> str:
    program = f"import sys\n{code}\nprint([name for name in {modules!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


NOT_NEEDED = [
    "gpgmap_ros.closure.registration.pipeline", "gpgmap_ros.closure.loop_closer", "gpgmap_ros.slam.localizer",
    "scipy.interpolate", "scipy.optimize", "scipy.stats", "sklearn", "matplotlib",
]  # fmt: skip


def test_mapping_imports_neither_the_closures_nor_what_only_learning_needs() -> None:
    code = """
from gpgmap_ros.config import Config
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline
MappingPipeline(Config())
"""
    assert imported(code, NOT_NEEDED) == "[]\n"


def test_the_node_imports_no_more() -> None:
    pytest.importorskip("rclpy")
    assert imported("import gpgmap_ros.nodes.mapping_run", NOT_NEEDED) == "[]\n"
