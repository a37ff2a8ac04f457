"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def make_docs(root: Path) -> ModuleType:
    return loaded(root / "tools" / "make_docs.py")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_current(root: Path, make_docs: ModuleType) -> None:
    text = (root / "docs" / "ros.md").read_text()
    assert text == make_docs.with_settings(text), "docs/ros.md is out of date: run `make docs`"


def test_figures_are_those_that_were_recorded(make_docs: ModuleType) -> None:
    quoted = set()
    for page in make_docs.pages():
        text = page.read_text()
        assert text == make_docs.with_figures(text), f"{page.name} is out of date: run `make docs`"
        quoted |= {f"{mark[2]}.{mark[3]}" for mark in make_docs.FIGURE.finditer(text)}
        assert text.count("<!-- figure ") == len(make_docs.FIGURE.findall(text)), (
            f"{page.name}: a mark has no end"
        )
    assert {"nclt_replay.compared", "nclt_replay.accepted", "nclt_loop.after_m"} <= quoted


def test_a_figure_that_changes_changes_the_page(make_docs: ModuleType) -> None:
    text = "of <!-- figure nclt_replay.compared -->37<!-- end --> comparisons"
    recorded = json.loads(make_docs.FIGURES.read_text())["nclt_replay"]["values"]["compared"]
    assert make_docs.with_figures(text) == text.replace("37", str(recorded))
    with pytest.raises(KeyError, match="nobody"):
        make_docs.with_figures("<!-- figure nobody.compared -->1<!-- end -->")


@pytest.mark.slow
def test_the_recorded_replay_is_what_the_command_says(root: Path, data_folder: Path, tmp_path: Path) -> None:
    """The command gives the figures that the pages quote; comparisons may differ a little by machine."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: the recording can't be read")
    recorded = json.loads((root / "docs" / "figures.json").read_text())["nclt_replay"]
    assert recorded["command"] == "gpgmap replay bag_nclt_loop"
    command = [sys.executable, "-m", "gpgmap_ros.cli", "replay", str(data_folder / "bag_nclt_loop")]
    said = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--json"],
        check=True, capture_output=True, text=True, cwd=root,
    ).stdout  # fmt: skip
    sys.path.insert(0, str(root / "benchmark"))
    try:
        now = loaded(root / "benchmark" / "command_line.py").replay_figures(json.loads(said))
    finally:
        sys.path.remove(str(root / "benchmark"))
    values = recorded["values"]
    for name in ("clouds", "seconds", "way_m", "submaps", "cell_m", "accepted"):
        assert now[name] == values[name], (
            f"{name}: run `python benchmark/command_line.py --record` and `make docs`"
        )
    assert abs(now["compared"] - values["compared"]) <= 2
    assert abs(float(now["largest_correction_m"]) - float(values["largest_correction_m"])) < 0.3


def test_every_topic_is_documented(root: Path) -> None:
    pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")
    from gpgmap_ros.nodes.outputs import OUTPUTS

    text = (root / "docs" / "ros.md").read_text()
    assert not [topic for topic in OUTPUTS if f"`~/{topic}`" not in text]


def test_links_between_pages_lead_somewhere(root: Path) -> None:
    broken = []
    for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "interfaces").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http:", "https:")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(root)}: {target}")
    assert not broken, "\n".join(broken)


def test_the_python_of_the_readme_runs(root: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    code = code.replace("(100, 100), 0.1", "(20, 20), 0.5")  # the same, on fewer cells
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert abs(float(namespace["height"][0]) - (-0.959)) < 0.1
    assert float(namespace["std"][0]) < 0.1
