"""The examples with >>> in the page with a closed loop run and print what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

pytest.importorskip("gtsam")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "loop_closure_example.md"
EXAMPLES = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_page() -> None:
    examples = "\n".join(EXAMPLES.findall(PAGE.read_text()))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.attempted > 20
    assert result.failed == 0
