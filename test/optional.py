"""Packages that some tests need and that not every machine has."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def require_open3d() -> Any:
    """Open3D; skips where it is not installed, or a library of the system is missing (libusb-1.0-0, libgl1).

    pytest's own importorskip does not do that alike in all versions that robots have.
    """
    try:
        return importlib.import_module("open3d")
    except ImportError as error:
        pytest.skip(f"Open3D does not import here: {error}")
