"""NPZ archives that others wrote: their contents, looked at before anything is unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gpgmap_ros.storage import untrusted


def array_sizes(path: Path) -> dict[str, int]:
    """Names of the arrays, and the bytes each says it has; ValueError or BadZipFile where the archive is damaged."""
    with zipfile.ZipFile(path) as archive:
        return untrusted.array_sizes(archive)


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Some arrays of an archive, and READING_ERRORS where one is damaged."""
    with zipfile.ZipFile(path) as archive:
        return {name: untrusted.read_array(archive, name) for name in names}
