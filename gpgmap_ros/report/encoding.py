"""Arrays as text for the page, and nothing lost that a reader could see.

A layer becomes 16-bit numbers between its smallest and largest value (65,534 steps, 0 for unknown), differences along
each row, Deflate, base64. The page undoes it with what every browser since 2023 has.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNKNOWN = 0
STEPS = 65_534


def encoded(layer: NDArray[Any], levels: int | None = None) -> dict[str, Any]:
    """low, high: the values of the smallest and largest number; data: the numbers

    levels: that are told apart, as many as there are numbers unless given: fewer pack better
    """
    known = np.isfinite(layer)
    low, high = (float(layer[known].min()), float(layer[known].max())) if known.any() else (0.0, 1.0)
    span = (high - low) or 1.0
    with np.errstate(invalid="ignore"):
        steps = (layer.astype(np.float64) - low) / span
        if levels is not None:
            steps = np.rint(steps * levels) / levels
        steps = np.rint(steps * STEPS)
    numbers = np.where(known, np.nan_to_num(steps) + 1, UNKNOWN).astype("<u2")
    differences = np.diff(numbers, axis=1, prepend=np.zeros((len(numbers), 1), dtype="<u2"))
    return {"low": low, "high": low + span, "data": text_of(differences.astype("<u2").tobytes())}


def decoded(described: dict[str, Any], shape: tuple[int, int]) -> NDArray[np.float64]:
    """The inverse of `encoded`, as the page does it."""
    raw = zlib.decompress(base64.b64decode(described["data"]))
    numbers = np.cumsum(np.frombuffer(raw, dtype="<u2").reshape(shape), axis=1, dtype=np.uint16)
    span = described["high"] - described["low"]
    values = described["low"] + (numbers.astype(np.float64) - 1.0) / STEPS * span
    return np.where(numbers == UNKNOWN, np.nan, values)


def text_of(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 6)).decode()


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
