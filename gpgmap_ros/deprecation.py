"""Old names that stay importable for one version: each use warns and names the replacement."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def deprecated_names(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that resolves old names.

    module: `__name__` of the module that had the names
    moved: old name -> "package.module:name" (or "package.module" for a module) that replaces it
    """

    def resolve(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, attribute = moved[name].partition(":")
        new = f"{home}.{attribute}" if attribute else home
        warnings.warn(
            f"{module}.{name} is deprecated and will be removed in version 0.3: use {new}",
            DeprecationWarning,
            stacklevel=2,
        )
        found = importlib.import_module(home)
        return getattr(found, attribute) if attribute else found

    return resolve
