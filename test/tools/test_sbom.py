"""The bill of materials: complete, valid, and without a trace of the machine that made it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

NO_NETWORK = (
    r"No matching distribution|Max retries exceeded|Failed to establish|Connection refused|name resolution"
)


@pytest.mark.slow
def test_the_bill_of_this_environment(root: Path, tmp_path: Path) -> None:
    if Path(sys.prefix) != root / ".venv":
        pytest.skip("tools/sbom.sh lists .venv, and this is another environment")
    file = tmp_path / "Stückliste 1" / "sbom.json"
    # a module of this name in the working directory must not run
    (tmp_path / "json.py").write_text("raise SystemExit('code of the working directory ran')")
    result = subprocess.run(
        ["sh", str(root / "tools" / "sbom.sh"), str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode and re.search(NO_NETWORK, result.stderr):
        pytest.skip("the package index cannot be reached")
    assert result.returncode == 0, result.stderr
    assert os.listdir(file.parent) == ["sbom.json"]
    text = file.read_text()
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    assert "file:" not in text
    assert str(root) not in text
    scope = {component["name"]: component["scope"] for component in bom["components"]}
    assert {item.metadata["Name"] for item in distributions()} <= set(scope)
    assert {scope[name] for name in ("gpgmap_ros", "numpy", "ros-fastrtps", "tf2_msgs") if name in scope} == {
        "required"
    }
    if "mypy" in scope:
        assert scope["mypy"] == "excluded"


def test_without_an_environment_it_says_what_to_do(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "sbom.sh"
    script.write_text((root / "tools" / "sbom.sh").read_text())
    result = subprocess.run(
        ["sh", str(script), "out/sbom.json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "run 'make setup' first" in result.stderr
