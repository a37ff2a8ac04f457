"""The page itself: template, style and script beside this file, and the content, in one HTML file."""

from __future__ import annotations

import dataclasses
import json
import re
from html import escape
from pathlib import Path

from gpgmap_ros.io.staged import write_text
from gpgmap_ros.report.content import Content

FOLDER = Path(__file__).resolve().parent


def page_of(content: Content) -> str:
    """The whole page as text: no reference leads out of it."""
    # No "<" of a topic's or file's name may be read as markup: "</script" would end the element,
    # "<!--<script" would hide its end.
    data = json.dumps(dataclasses.asdict(content), allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")
    parts = {
        "{{title}}": escape(content.title),
        "{{style}}": (FOLDER / "page.css").read_text(),
        "{{script}}": (FOLDER / "page.js").read_text(),
        "{{data}}": data,
    }
    # in one go: what is filled in may itself look like a mark
    return re.sub(
        "|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], (FOLDER / "page.html").read_text()
    )


def write_report(path: Path, content: Content) -> None:
    write_text(path, page_of(content))
