"""Names of a package that are imported when they are first used: who needs one of them does not wait for all."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`.

    package: its `__name__`
    homes: name -> module of the package that has it, without the package's name
    otherwise: `__getattr__` for all other names, such as `deprecated_names`
    """

    def resolve(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *homes})

    return resolve, names
