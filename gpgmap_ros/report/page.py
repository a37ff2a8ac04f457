"""The page itself: template, style and script beside this file, and the content, in one HTML file."""

from __future__ import annotations

import dataclasses
import json
from html import escape
from pathlib import Path

from gpgmap_ros.io.staged import write_text
from gpgmap_ros.report.content import Content

FOLDER = Path(__file__).resolve().parent


def page_of(content: Content) -> str:
    """The whole page as text: no reference leads out of it."""
    # "</" must not end the script element early, whatever a topic or file is called
    data = json.dumps(dataclasses.asdict(content), allow_nan=False, separators=(",", ":")).replace(
        "</", "<\\/"
    )
    parts = {
        "{{title}}": escape(content.title),
        "{{style}}": (FOLDER / "page.css").read_text(),
        "{{script}}": (FOLDER / "page.js").read_text(),
        "{{data}}": data,
    }
    page = (FOLDER / "page.html").read_text()
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def write_report(path: Path, content: Content) -> None:
    write_text(path, page_of(content))
