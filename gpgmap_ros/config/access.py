"""Settings by their dotted names, as YAML files, ROS parameters and the command line have them."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpgmap_ros.config.schema import ConfigError, Value, check_value, default_of
from gpgmap_ros.config.settings import Config


@dataclass(frozen=True)
class Setting:
    """One setting as seen from outside: `name` is dotted, as in `mapping.resolution`."""

    name: str
    value: Value
    default: Value
    meaning: str
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    dynamic: bool


def settings(config: Config | None = None) -> Iterator[Setting]:
    """All settings in order, with their values in `config` (default: the defaults)."""
    yield from _settings(config or Config(), "")


def _settings(group: Any, prefix: str) -> Iterator[Setting]:
    for item in dataclasses.fields(group):
        value = getattr(group, item.name)
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{prefix}{item.name}.")
        else:
            yield Setting(f"{prefix}{item.name}", value, default_of(item), **item.metadata)


def with_settings(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with some settings changed, by dotted name. Unknown names are refused with the nearest known one."""
    known = {item.name for item in settings()}
    for name in changes:
        if name not in known:
            raise ConfigError(describe_unknown(name, known))
    changed: Config = _replace(config, changes, "")
    return changed


def _replace(group: Any, changes: Mapping[str, Any], prefix: str) -> Any:
    new = {}
    for item in dataclasses.fields(group):
        value, name = getattr(group, item.name), f"{prefix}{item.name}"
        if dataclasses.is_dataclass(value):
            new[item.name] = _replace(value, changes, f"{name}.")
        elif name in changes:
            new[item.name] = check_value(name, changes[name], default_of(item), item.metadata)
    return dataclasses.replace(group, **new)


def describe_unknown(name: str, known: set[str]) -> str:
    """Error message for a setting that does not exist, with the nearest known name."""
    # People forget the group as often as they misspell: compare with the last part as well.
    tails: dict[str, list[str]] = {}
    for full in sorted(known):
        tails.setdefault(full.rsplit(".", 1)[-1], []).append(full)
    near = difflib.get_close_matches(name, known, 1) if name not in tails else [name]
    near = near or difflib.get_close_matches(name.rsplit(".", 1)[-1], tails, 1)
    meant = " or ".join(f"'{full}'" for full in tails.get(near[0], near)) if near else ""
    hint = f"did you mean {meant}?" if meant else "`gpgmap config` lists all settings"
    return f"unknown setting '{name}': {hint}"
