"""Configurations as text: YAML files, which are ROS parameter files, and the table of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpgmap_ros.config import Config, settings, with_settings
from gpgmap_ros.setting import ConfigError, Value
from gpgmap_ros.storage.atomic import write_text


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"mapping": {"resolution": 0.1}}` as `{"mapping.resolution": 0.1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def load_config(path: str | Path) -> Config:
    """Read a YAML file: ROS parameter files (`/**: ros__parameters:`) and plain nested settings both do."""
    path = Path(path)
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    tree = tree or {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: expected settings as 'name: value', got {type(tree).__name__}")
    changes: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and "ros__parameters" in value:
            changes.update(flattened(value["ros__parameters"] or {}))
        else:
            changes.update(flattened({key: value}))
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
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    text = str(yaml.safe_dump(value, default_flow_style=True)).splitlines()[0]
    # ROS reads 2 as an integer and refuses it for a float parameter; 1e-05 it reads as a string
    if isinstance(value, float) and "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def save_config(config: Config, path: str | Path) -> None:
    """Replace the file at once when it is complete."""
    write_text(path, config_yaml(config))
