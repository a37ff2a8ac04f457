"""Configurations as text: YAML files, which are ROS parameter files, and the table of the documentation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpgmap_ros.config.access import settings, with_settings
from gpgmap_ros.config.schema import ConfigError, Value
from gpgmap_ros.config.settings import Config
from gpgmap_ros.storage.atomic import write_text

LONGEST_FILE = 1_000_000
"""Bytes; all settings with their meanings take 15,000."""
LIKE_ANOTHER_TYPE = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"}
"""Plain words that PyYAML or the parser of ROS would not read as text."""


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases, as in ROS: a dozen lines of them can stand for more values than fit into memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(
                f"line {event.start_mark.line + 1}: aliases (*{event.anchor}) are not supported: write the value out"
            )
        return super().compose_node(parent, index)


def parse_yaml(text: str | bytes) -> Any:
    """The values in a text; ConfigError where it is no YAML, or more than settings can be."""
    if len(text) > LONGEST_FILE:
        raise ConfigError(f"longer than {LONGEST_FILE:,} bytes: this is not a settings file")
    try:
        return yaml.load(text, Loader=PlainLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError("not valid YAML: nested too deeply") from error
    except (ValueError, OverflowError) as error:  # 2026-99-99 looks like a date, and 0b2 like a number
        raise ConfigError(f"not valid YAML: {error}") from error


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"mapping": {"resolution": 0.1}}` as `{"mapping.resolution": 0.1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def load_config(path: str | Path) -> Config:
    """Read a YAML file: ROS parameter files (`/**: ros__parameters:`) and plain nested settings both do."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            tree = parse_yaml(file.read(LONGEST_FILE + 1))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error.__cause__
    tree = tree or {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: expected settings as 'name: value', got {type(tree).__name__}")
    changes: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and "ros__parameters" in value:
            parameters = value["ros__parameters"] or {}
            if not isinstance(parameters, Mapping):
                raise ConfigError(
                    f"{path}: expected settings as 'name: value' below ros__parameters,"
                    f" got {type(parameters).__name__}"
                )
            changes.update(flatten(parameters))
        else:
            changes.update(flatten({key: value}))
    try:
        return with_settings(Config(), changes)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def config_yaml(config: Config | None = None) -> str:
    """`config` as a ROS parameter file that any node name may load, with the meaning of each setting beside it."""
    lines = ["/**:", "  ros__parameters:"]
    group = ""
    for item in settings(config):
        head, _, name = item.name.rpartition(".")
        if head != group:
            lines.append(f"    {head}:")
            group = head
        indent = "      " if head else "    "
        unit = f" [{item.unit}]" if item.unit else ""
        lines.append(f"{indent}{name}: {_yaml_scalar(item.value)}  # {item.meaning}{unit}")
    return "\n".join(lines) + "\n"


def config_table() -> str:
    """All settings as a Markdown table, for the documentation."""
    lines = ["| parameter | default | unit | range | when | meaning |", "|---|---|---|---|---|---|"]
    for item in settings():
        limits = f"{item.low:g} to {item.high:g}" if item.low is not None and item.high is not None else ""
        limits = limits or ", ".join(f"`{choice}`" for choice in item.choices)
        when = "any time" if item.dynamic else "at start"
        default = _yaml_scalar(item.default)
        lines.append(f"| `{item.name}` | `{default}` | {item.unit} | {limits} | {when} | {item.meaning} |")
    return "\n".join(lines) + "\n"


def _yaml_scalar(value: Value) -> str:
    """On one line, and such that PyYAML and the parser of ROS read the same value."""
    if isinstance(value, tuple):
        return f"[{', '.join(_yaml_scalar(item) for item in value)}]"
    if isinstance(value, str) and value and not _reads_as_text(value):
        return _dump(value, '"')
    text = _dump(value)
    # ROS reads 2 as an integer and refuses it for a float parameter; 1e-05 it reads as a string
    if isinstance(value, float) and "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def _reads_as_text(value: str) -> bool:
    plain = re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_/.-]*", value) is not None
    return plain and value.lower() not in LIKE_ANOTHER_TYPE


def _dump(value: Value, style: str | None = None) -> str:
    text = str(yaml.safe_dump(value, default_flow_style=True, default_style=style, width=math.inf))
    return text.removesuffix("\n").removesuffix("\n...")


def save_config(config: Config, path: str | Path) -> None:
    """Write the settings as YAML, atomically."""
    write_text(path, config_yaml(config))
