"""Every estimator states its formula, parameters, attributes, lecture and an example, in numpydoc's sections."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import gp_core

NAMES = gp_core.__all__
ESTIMATORS = [name for name in NAMES if hasattr(getattr(gp_core, name), "fit")]
LECTURES = Path(__file__).resolve().parents[2] / "docs" / "models" / "lectures.md"


def section(doc, title):
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+$|\Z)", doc, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


@pytest.mark.parametrize("name", NAMES)
def test_sections(name):
    estimator = getattr(gp_core, name)
    doc = inspect.getdoc(estimator)
    assert "=" in doc.split("Parameters\n")[0], "the docstring begins with the formula or what is computed"
    parameters = section(doc, "Parameters")
    for parameter in inspect.signature(estimator).parameters:
        assert re.search(rf"^{parameter} : ", parameters, re.MULTILINE), f"{parameter} is not described"
    if hasattr(estimator, "fit"):
        assert re.search(r"^\w+_.* : ", section(doc, "Attributes"), re.MULTILINE)
    assert ">>>" in section(doc, "Examples")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_inputs_are_typed(name):
    for method in ("fit", "predict", "predict_proba", "transform", "score_samples"):
        function = getattr(getattr(gp_core, name), method, None)
        if function is None:
            continue
        annotations = function.__annotations__
        assert annotations["X"] not in ("Any", None)
        for argument in ("y", "sample_weight"):
            parameter = inspect.signature(function).parameters.get(argument)
            if parameter is None or (argument == "y" and parameter.default is None):  # y=None is ignored
                continue
            assert annotations[argument] not in ("Any", None)
        assert "return" in annotations


def lecture_headings():
    """Title of each lecture -> its headings, from the table that maps them to the package."""
    parts = re.split(r"^## ", LECTURES.read_text(), flags=re.MULTILINE)[1:]
    tables = {}
    for part in parts:
        title, _, table = part.partition("\n")
        cells = re.findall(r"^\| ([^|]+) \| `", table, re.MULTILINE)
        tables[title.split(":")[0]] = {heading.strip() for cell in cells for heading in cell.split(";")}
    return tables


@pytest.mark.parametrize("name", NAMES)
def test_the_lecture_that_holds_the_equation_is_cited(name):
    references = section(inspect.getdoc(getattr(gp_core, name)), "References")
    cited = re.findall(r'^Lecture "([^"]+)":((?:\s+"[^"]+"[,.])+)', references, re.MULTILINE)
    assert cited, f"{name} cites no lecture"
    for lecture, headings in cited:
        for heading in re.findall(r'"([^"]+)"', headings):
            assert heading in lecture_headings()[lecture], f"{lecture} has no heading {heading!r}"


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")
def test_attributes_are_those_that_a_fit_sets(name):
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (20, 2))
    y = X[:, 0] > 0.0 if name in gp_core._CLASSIFIERS else np.sin(X[:, 0])
    estimator = getattr(gp_core, name)()
    if "optimizer" in estimator.get_params():
        estimator.set_params(optimizer=None)
    estimator.fit(X, y) if "y" in inspect.signature(estimator.fit).parameters else estimator.fit(X)
    described = section(inspect.getdoc(type(estimator)), "Attributes")
    found = {attribute for attribute in vars(estimator) if re.fullmatch(r"[A-Za-z]\w*_", attribute)}
    missing = {a for a in found - {"n_features_in_"} if not re.search(rf"\b{a}(?= :|,)", described)}
    assert not missing
