"""NPZ archives that others wrote: their contents, looked at before anything is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path


def array_sizes(path: Path) -> dict[str, int]:
    """Names of the arrays in an archive, and the bytes each says it has; ValueError or BadZipFile where it is damaged.

    Every entry is compared with what is at its place: damage to the list must not make an array disappear unnoticed.
    """
    sizes: dict[str, int] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError(
                    f"it holds {info.filename!r}, expected arrays (.npy): it is damaged, or no NPZ"
                )
            archive.open(info).close()
            name = info.filename.removesuffix(".npy")
            if name in sizes:
                raise ValueError(f"it holds '{name}' twice: it is damaged")
            sizes[name] = info.file_size
    return sizes
