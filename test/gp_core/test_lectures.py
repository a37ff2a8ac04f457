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
    assert len(ROWS) == len(LINES)


def test_no_heading_is_missing():
    """The lectures are not part of the package: their headings were counted, the fifth one's in the first."""
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        cells = [line.split("|")[1] for line in lines if ROW.match(line)]
        headings = [heading.strip() for cell in cells for heading in cell.split(";")]
        assert all(headings)
        found[title.split(":")[0].split(",")[0]] = len(headings)
    assert found == {
        "Kernels and Gaussian processes": 83,
        "Dual Linear Regression": 17,
        "Gaussian inference": 5,
        "Kernel regression and gaussian processes": 13,
    }


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
