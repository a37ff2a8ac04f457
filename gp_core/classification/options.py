"""Options that are names: one error for a name that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")


def choose(table: Mapping[str, Value], name: Any, what: str) -> Value:
    """The entry of the table, or a ValueError that lists the names there are.

    table: name -> value
    name: what the user asked for
    what: the option, as the error calls it
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, table))}, got {name!r}")
    return table[name]
