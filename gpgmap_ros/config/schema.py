"""What a setting is: a dataclass field with a default, a unit, a range and a meaning, checked when it is set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

Value = bool | int | float | str | tuple[str, ...]


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range: which, and what would be right."""


def setting(
    default: Value,
    meaning: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
) -> Any:
    """A dataclass field with what people need to know about it; `low` and `high` are allowed themselves.

    dynamic: may change while a map is being made; the others take effect with a new map.
    """
    metadata = {
        "meaning": meaning, "unit": unit, "low": low, "high": high, "choices": choices, "dynamic": dynamic,
    }  # fmt: skip
    return field(default=default, metadata=metadata)


class Checked:
    """Checks each setting of a dataclass against its own description. group: prefix of its settings' names."""

    group: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            if "meaning" in item.metadata:
                checked = check_value(
                    self.group + item.name, getattr(self, item.name), default_of(item), item.metadata
                )
                object.__setattr__(self, item.name, checked)


def default_of(item: dataclasses.Field[Any]) -> Value:
    """Default of a field that `setting` made: every setting has one."""
    default: Value = item.default  # type: ignore[assignment]
    return default


def require_order(group: Any, prefix: str, *pairs: tuple[str, str], equal: bool = False) -> None:
    """Refuse a group whose lower limits are not below (or, with `equal`, at) its upper ones."""
    for low, high in pairs:
        a, b = getattr(group, low), getattr(group, high)
        if a > b or (a == b and not equal):
            raise ConfigError(f"{prefix}.{low} ({a}) must be below {prefix}.{high} ({b})")


def check_value(name: str, value: Any, default: Value, metadata: Mapping[str, Any]) -> Value:
    """`value` in the type of the default, or a ConfigError that names the setting, the value and what is allowed."""
    kind = type(default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is tuple and isinstance(value, list):
        value = tuple(value)
    if (
        kind is tuple
        and isinstance(value, tuple)
        and value != default
        and not all(isinstance(item, str) and item for item in value)
    ):
        raise ConfigError(f"{name}: expected a list of names, got {list(value)!r}")
    if type(value) is not kind:
        expected = "a list of names" if kind is tuple else kind.__name__
        raise ConfigError(f"{name}: expected {expected}, got {value!r} ({type(value).__name__})")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name}: {value} is not a finite number")
    low, high, unit = metadata["low"], metadata["high"], metadata["unit"]
    if (low is not None and value < low) or (high is not None and value > high):
        raise ConfigError(f"{name}: {value} is outside [{low}, {high}]{' ' + unit if unit else ''}")
    if metadata["choices"] and value not in metadata["choices"]:
        raise ConfigError(f"{name}: {value!r} is not one of {', '.join(map(repr, metadata['choices']))}")
    return value
