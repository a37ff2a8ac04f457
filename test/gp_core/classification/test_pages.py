"""Every classifier has a page and a place in the gallery. That the examples run is tested with all pages."""

import re
from pathlib import Path

import pytest

from gp_core import classification

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("name", classification.__all__)
def test_every_classifier_has_a_page_with_formula_use_and_cost(name):
    pages = [p.read_text() for p in (DOCS / "models").glob("*.md")]
    page = next(text for text in pages if text.startswith(f"# {name}\n"))
    assert "**When to use it.**" in page
    assert "**Cost.**" in page
    assert f">>> from gp_core import {name}" in page or re.search(
        rf">>> from gp_core import .*\b{name}\b", page
    )
    assert name in (DOCS / "gallery_classification.py").read_text()


def test_the_gallery_shows_every_picture_that_is_drawn():
    drawn = re.findall(r'^    "(\w+)": \w+,$', (DOCS / "gallery_classification.py").read_text(), re.MULTILINE)
    page = (DOCS / "gallery" / "classification.md").read_text()
    assert drawn
    for name in drawn:
        assert f"({name}.png)" in page
        assert (DOCS / "gallery" / f"{name}.png").stat().st_size > 10_000
