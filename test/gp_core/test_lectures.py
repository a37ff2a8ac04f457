"""The table that maps the lectures to gp_core: every name, page and picture in it exists."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from gp_core import BayesianLinearRegression, GaussianProcessRegressor
from gp_core.kernels import RBF

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models" / "lectures.md"
ROW = re.compile(
    r"^\| (?P<heading>[^|]+) \| `(?P<name>[\w.]+)` "
    r"\| \[.*?\]\((?P<page>.*?)\) \| \[.*?\]\((?P<picture>.*?)\) \|$"
)
LINES = [
    line
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| heading")
]
ROWS = [match for match in map(ROW.match, LINES) if match]


def found(name):
    """Whether the dotted name is a module, class, function, method, or an attribute that a fit sets."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        break
    for attribute in parts[depth:]:
        if inspect.isclass(thing) and attribute.endswith("_") and not hasattr(thing, attribute):
            kernel = {"kernel": RBF([1.0])} if thing is GaussianProcessRegressor else {}
            thing = thing(**kernel).fit(np.arange(6.0)[:, None], np.arange(6.0))
        if not hasattr(thing, attribute):
            return False
        thing = getattr(thing, attribute)
    return True


def test_every_line_of_the_table_is_a_row():
    assert len(ROWS) == len(LINES) > 60
    assert PAGE.read_text().count("\n## ") == 4  # the fifth lecture is the first half of the first


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["heading"][:40])
def test_the_row_leads_to_something(row):
    assert found(row["name"]), f"{row['name']} does not exist"
    assert (PAGE.parent / row["page"]).is_file()
    picture = PAGE.parent / row["picture"]
    assert picture.is_file()
    assert picture.stat().st_size > 10_000


def test_a_name_that_is_not_there_is_found_out():
    assert not found("gp_core.GaussianProcess")
    assert not found("gp_core.BayesianLinearRegression.nothing_")
    assert found(f"gp_core.{BayesianLinearRegression.__name__}.weight_posterior_")
