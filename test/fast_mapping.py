"""The settings that are mapped fastest, for tests of commands, nodes and reports that do not test the kernel.

The default (Matern 5/4 with learned noise) takes several times the CPU of the RBF with stated noise. Every command and
the node have a test with the default settings too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpgmap_ros.config import Config, with_settings

FAST: Final[Mapping[str, Any]] = {"mapping.kernel": "rbf", "mapping.learn_noise": False}


def fast_config(more: Mapping[str, Any] | None = None) -> Config:
    """The defaults but for the kernel, with these settings on top."""
    return with_settings(Config(), {**FAST, **(more or {})})


def options(settings: Mapping[str, Any] = FAST) -> list[str]:
    """Settings as a command takes them."""
    words = []
    for name, value in settings.items():
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return words
