"""The short form of the chaos campaign: test/campaigns/chaos.py has the long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_minute_of_trouble_loses_nothing(root: Path) -> None:
    program = root / "test" / "campaigns" / "chaos.py"
    result = subprocess.run(
        [sys.executable, str(program), "--seconds", "60", "--kills", "0", "--seed", "1", "--points", "1000000"],
        capture_output=True, text=True, timeout=550.0, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stdout[-5000:]}\n{result.stderr[-5000:]}"
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["findings"] == 0
    assert summary["starts"] >= 1
