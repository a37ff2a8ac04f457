"""A griffe extension: docstrings as Markdown. Parameters and tables of names become lists, examples become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

NAMES = r"\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[\w.]+)*"
ENTRY = re.compile(rf"^({NAMES})(?:: |\s{{2,}})(\S.*)$")
"""A line that names something, and says what it means: `name: meaning`, or in two columns."""


class MarkdownDocstrings(griffe.Extension):
    """Rewrites the docstrings of all objects."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The docstring with its runs of entries as lists and its examples as code. The first line stays as it is."""
    blocks = text.split("\n\n")
    return "\n\n".join([blocks[0], *map(convert_block, blocks[1:])])


def convert_block(block: str) -> str:
    """One paragraph of a docstring."""
    lines = block.splitlines()
    if lines and lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if not lines or not ENTRY.match(lines[0]):
        return block
    converted: list[str] = []
    for line in lines:
        entry = ENTRY.match(line)
        converted.append(f"- `{entry[1]}`: {entry[2]}" if entry else "  " + line.strip())
    return "\n".join(converted)
