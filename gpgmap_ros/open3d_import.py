"""Open3D, imported where it is needed: what to install where it does not import."""

from __future__ import annotations

import importlib
import re
from typing import Any

SYSTEM_PACKAGES = {
    "libGL.so": "libgl1",
    "libEGL.so": "libegl1",
    "libX11.so": "libx11-6",
    "libusb-1.0.so": "libusb-1.0-0",
    "libgomp.so": "libgomp1",
    "libvulkan.so": "libvulkan1",
}
"""Shared libraries that Open3D's wheels expect of the system, and the package of Debian and Ubuntu that has them."""


class Open3DMissing(ImportError):
    """Open3D is not installed, or a library of the system that it needs is not: which, and how to install it."""


def import_open3d() -> Any:
    """The module open3d. Open3DMissing, with what to install, where it does not import."""
    try:
        return importlib.import_module("open3d")
    except (ImportError, OSError) as error:
        raise Open3DMissing(explain_import_error(error)) from error


def explain_import_error(error: ImportError | OSError) -> str:
    """One line: what is missing and the command that installs it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "open3d":
        return "Open3D is not installed: pip install open3d-cpu"
    library = re.search(r"(lib[\w.+-]+\.so[\w.]*)", str(error))
    if library is None:
        return f"Open3D does not import: {' '.join(str(error).split())}"
    name = library[1]
    package = next((known for prefix, known in SYSTEM_PACKAGES.items() if name.startswith(prefix)), None)
    remedy = (
        f"sudo apt install {package}" if package else f"install the package of your system that has {name}"
    )
    return f"Open3D does not import because the library {name} is missing: {remedy}"
