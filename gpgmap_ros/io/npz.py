"""NPZ archives that others wrote: their contents, looked at before anything is unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Some arrays of an archive. ValueError where one is none: NumPy hands out its bytes then."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in names}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"its '{name}' is no array: it is damaged")
    return arrays
