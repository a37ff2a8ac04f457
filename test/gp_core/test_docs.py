"""The examples in the pages and docstrings run and print what they say."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import gp_core

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "models").glob("*.md"))
EXAMPLES = re.compile(r"^```(?:pycon|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ESTIMATORS = [name for name in gp_core.__all__ if name not in gp_core._CLASSIFIERS]


def run(test: doctest.DocTest) -> doctest.TestResults:
    return doctest.DocTestRunner(optionflags=OPTIONS).run(test)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page(page):
    examples = "\n".join(EXAMPLES.findall(page.read_text()))
    assert ">>>" in examples, "a page needs an example with >>>"
    result = run(doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(m.name for m in pkgutil.walk_packages(gp_core.__path__, "gp_core.")))
def test_docstrings(name):
    for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        assert run(test).failed == 0


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_regressor_has_a_page(name):
    assert any(re.search(rf"\b{name}\b", page.read_text().splitlines()[0]) for page in PAGES)
