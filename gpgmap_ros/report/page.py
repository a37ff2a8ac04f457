"""The page itself: template, style and scripts beside this file, and the content, in one HTML file."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from gpgmap_ros.report.content import Content
from gpgmap_ros.storage.atomic import write_text

FOLDER = Path(__file__).resolve().parent
SCRIPTS = (
    "dom.js", "decoding.js", "shading.js", "map_view.js", "map_tiles.js", "linking.js", "map_drawing.js",
    "map_input.js", "map.js", "terrain_mesh.js", "terrain_view.js", "closures.js", "charts.js", "trajectory.js",
    "tables.js", "start.js",
)  # fmt: skip
"""Of the page, in the order in which they are joined: one script, so that the page needs no other file."""


def page_of(content: Content) -> str:
    """The whole page as text: no reference leads out of it."""
    # No "<" of a topic's or file's name may be read as markup: "</script" would end the element,
    # "<!--<script" would hide its end.
    data = json.dumps(dataclasses.asdict(content), allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")
    parts = {
        "{{title}}": escape(content.title),
        "{{style}}": (FOLDER / "page.css").read_text(),
        "{{script}}": "\n".join((FOLDER / "script" / name).read_text() for name in SCRIPTS),
        "{{data}}": data,
    }
    return fill_template((FOLDER / "page.html").read_text(), parts)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """The template with each mark replaced by its part, in one go: what is filled in may itself look like a mark."""
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], template)


def write_report(path: Path, content: Content) -> None:
    write_text(path, page_of(content))
