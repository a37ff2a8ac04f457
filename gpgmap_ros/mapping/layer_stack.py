"""The layers of one map. Nothing is computed before it is asked for, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.mapping.derived_layers import Layer, LayerContext
from gpgmap_ros.mapping.layers import LAYERS


class LayerStack(Mapping[str, Layer]):
    """Given layers, and those that the table derives from them, computed on first use; read-only.

    float32, gradient_visual uint8. Two threads that ask for the same layer at once may both compute it; both get the
    same values.

    given: a dict, another stack, or a mapping that reads its layers from a file when they are asked for
    """

    def __init__(self, given: Mapping[str, Layer], context: LayerContext) -> None:
        self._given: Mapping[str, Layer] = {}
        self._layers: dict[str, Layer] = {}
        if isinstance(given, LayerStack):  # dict() of it would compute all of its layers
            self._given, self._layers = given._given, dict(given._layers)
        elif isinstance(given, dict):
            self._layers = dict(given)
        else:
            self._given = given
        there = dict.fromkeys((*self._given, *self._layers))
        derived = (row.name for row in LAYERS.values() if row.formula is not None and not row.display_only)
        self._names = (*there, *(name for name in derived if name not in there))
        self._context = context

    def __getitem__(self, name: str) -> Layer:
        if name not in self._layers and name in self._given:
            self._layers[name] = self._given[name]
        if name not in self._layers:
            formula = LAYERS[name].formula if name in LAYERS else None
            if formula is None:
                raise KeyError(f"no layer '{name}'; there are {', '.join(self._names)}")
            self._layers[name] = make_read_only(formula(self, self._context))
        return self._layers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would compute the layer

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def make_read_only(layer: NDArray[Any]) -> Layer:
    """A contiguous copy in a layer's type that nobody can change by accident."""
    out = np.array(layer, dtype=np.uint8 if layer.dtype == np.uint8 else np.float32, order="C")
    out.flags.writeable = False
    return out
