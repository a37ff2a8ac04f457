"""The layers of a map: derived ones on demand, once, and none that can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from gpgmap_ros.config import Config
from gpgmap_ros.mapping.derived_layers import LayerContext
from gpgmap_ros.mapping.layer_stack import LayerStack, make_read_only


@pytest.fixture
def stack() -> LayerStack:
    given = {
        "elevation": np.ones((2, 3), dtype=np.float32),
        "variance": np.full((2, 3), 0.04, dtype=np.float32),
        "gradient_x": np.full((2, 3), 3.0, dtype=np.float32),
        "gradient_y": np.full((2, 3), 4.0, dtype=np.float32),
    }
    return LayerStack(given, LayerContext(0.1, Config()))


def test_derived_layers_follow_from_the_given_ones(stack: LayerStack) -> None:
    np.testing.assert_allclose(stack["gradient_magnitude"], 5.0)
    np.testing.assert_allclose(stack["slope"], np.arctan(5.0), rtol=1e-6)


def test_a_layer_is_computed_once(stack: LayerStack) -> None:
    assert stack["slope"] is stack["slope"]


def test_a_given_layer_is_not_derived() -> None:
    given = {"gradient_magnitude": np.full((1, 1), 7.0, dtype=np.float32)}
    stack = LayerStack(given, LayerContext(0.1, Config()))
    np.testing.assert_array_equal(stack["gradient_magnitude"], 7.0)
    assert list(stack).count("gradient_magnitude") == 1


def test_layers_of_a_file_are_read_when_they_are_asked_for(stack: LayerStack) -> None:
    asked: list[str] = []

    class Reading(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.append(name)
            return stack[name]

        def __iter__(self) -> Iterator[str]:
            return iter(("elevation", "gradient_x", "gradient_y"))

        def __len__(self) -> int:
            return 3

        def __contains__(self, name: object) -> bool:
            return name in tuple(self)

    lazy = LayerStack(Reading(), LayerContext(0.1, Config()))
    assert {"slope", "elevation"} <= set(lazy)
    assert "variance" not in lazy
    assert asked == []
    np.testing.assert_array_equal(lazy["slope"], stack["slope"])
    again = LayerStack(lazy, LayerContext(0.1, Config()))
    np.testing.assert_array_equal(again["gradient_magnitude"], 5.0)
    assert sorted(asked) == ["gradient_x", "gradient_y"], "each once, and no others"
    np.testing.assert_array_equal(again["elevation"], 1.0)


def test_it_lists_given_and_derived_layers_without_computing_them() -> None:
    stack = LayerStack({}, LayerContext(0.1, Config()))  # nothing can be computed of nothing
    assert "slope" in stack
    assert "elevation" not in stack
    assert len(stack) == len(list(stack)) > 0


def test_derived_layers_are_read_only_single_precision(stack: LayerStack) -> None:
    layer = stack["slope"]
    assert layer.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        layer[0, 0] = 1.0


def test_an_unknown_layer_is_refused_with_those_that_there_are(stack: LayerStack) -> None:
    with pytest.raises(KeyError, match=r"no layer 'colour'; there are elevation, .*slope"):
        stack["colour"]


def test_read_only_copies_do_not_follow_their_source() -> None:
    source = np.arange(6, dtype=np.float64).reshape(2, 3).T
    copy = make_read_only(source)
    source[0, 0] = 9.0
    assert copy[0, 0] == 0.0
    assert copy.flags.c_contiguous
    assert copy.dtype == np.float32
    assert make_read_only(np.zeros((2, 2), dtype=np.uint8)).dtype == np.uint8
