"""Every estimator states its formula, parameters, attributes and an example, in numpydoc's sections."""

import inspect
import re

import pytest

import gp_core

NAMES = gp_core.__all__
ESTIMATORS = [name for name in NAMES if hasattr(getattr(gp_core, name), "fit")]


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
        assert "return" in annotations
