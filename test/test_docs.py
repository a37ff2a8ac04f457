"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest


def test_the_table_of_settings_is_current(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_docs", root / "tools" / "make_docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (root / "docs" / "ros.md").read_text()
    assert text == module.with_settings(text), "docs/ros.md is out of date: run `make docs`"


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
