"""Hooks of the documentation site: pages made from the files at the top of the repository, and links that leave docs/.

On GitHub the pages link to files anywhere in the repository. The site has only the pages: a link to one of them is
kept, a link to any other file of the repository becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
TOP_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security_policy.md",
}
"""File at the top of the repository, and the page made from it."""
LINK = re.compile(r"(?P<text>(?<!!)\[(?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*\])\((?P<target>[^)\s]+)\)")
IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
HTML_IMAGE = re.compile(r'(?P<before><img [^>]*\bsrc=")(?P<target>[^"]+)')


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages that are made from files outside docs/."""
    for source, page in TOP_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links and pictures of a page to pages and files of the site; unlink what the site does not have."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # the tabs above are enough; the tables need the room
    place = source_path(page.file.src_uri)

    def relink(match: re.Match[str]) -> str:
        text = IMAGE.sub(reimage, match["text"])
        target = site_target(match["target"], place, page.file.src_uri)
        return f"{text}({target})" if target else text[1:-1]

    def reimage(match: re.Match[str]) -> str:
        target = site_target(match["target"], place, page.file.src_uri)
        return f"![{match['text']}]({target})" if target else match["text"]

    def reimage_html(match: re.Match[str]) -> str:
        target = site_target(match["target"], place, page.file.src_uri)
        return match["before"] + (target or match["target"])

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for number in range(0, len(parts), 2):  # the others are blocks of code
        parts[number] = LINK.sub(relink, parts[number])
        parts[number] = re.sub(r"(?<!\[)" + IMAGE.pattern, reimage, parts[number])
        parts[number] = HTML_IMAGE.sub(reimage_html, parts[number])
    return "".join(parts)


def source_path(page: str) -> str:
    """The file in the repository that a page comes from."""
    made = {target: source for source, target in TOP_PAGES.items()}
    return made.get(page, f"docs/{page}")


def site_target(target: str, source: str, page: str) -> str | None:
    """Where a link in the file `source` leads on the site; None if the site does not have it."""
    if re.match(r"[a-z]+:|#", target):
        return target
    path, mark, anchor = target.partition("#")
    absolute = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    wanted = TOP_PAGES.get(absolute, absolute.removeprefix("docs/"))
    inside = absolute in TOP_PAGES or absolute.startswith("docs/")
    if not inside:
        # a file of the repository that is no page; a path that leads nowhere stays, and mkdocs warns of it
        return None if (ROOT / absolute).exists() else target
    return posixpath.relpath(wanted, posixpath.dirname(page) or ".") + mark + anchor
