"""Figures that the documentation quotes: what measures them keeps them here, `make docs` puts them into the text.

A page has `<!-- figure nclt_replay.submaps -->21<!-- end -->`; docs/figures.json has the value and the command that
printed it. A program records with `--record`; a test compares the pages with the file, and the file with a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "figures.json"


def record(name: str, command: str, values: Mapping[str, str | int]) -> None:
    """Keep the figures of one run, as the text is to show them. command: what a reader types to see them"""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    known[name] = {"command": command, "values": dict(values)}
    FILE.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")
    print(f"recorded as '{name}' in {FILE.name}: `make docs` writes it into the pages")
