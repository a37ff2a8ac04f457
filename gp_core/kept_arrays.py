"""Arrays that take a while to compute, kept on disk beside the compiled loops.

A file holds the arrays of one key: a text with everything that decides them. What can't be read or written, or is
damaged, or is another's, is as if it were not there, and the caller computes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite.binding
import numba
import numpy as np
import scipy

from gp_core.npz import read_arrays, save_arrays
from gp_core.parallel import blas_descriptions

MOST_BYTES: Final = 256 * 2**20
"""Of all files of a folder together; the oldest are removed."""
LARGEST: Final = MOST_BYTES // 2
"""Bytes of the arrays of one key; larger ones are not kept."""
_SUFFIX: Final = ".kept.npz"
_LABEL: Final = "label"


def load_arrays(folder: Path, key: str) -> dict[str, Any] | None:
    """The arrays kept for this key; None where there are none, or none that are intact."""
    try:
        arrays = read_arrays(_file(folder, key))
        label = arrays.pop(_LABEL).tobytes()
        return arrays if label == _label(key, arrays) else None
    except Exception:  # whatever the content of a damaged file may cause
        return None


def keep_arrays(folder: Path, key: str, arrays: Mapping[str, Any]) -> None:
    """Keep the arrays for this key, unless they are too large or the disk refuses."""
    if sum(array.nbytes for array in arrays.values()) > LARGEST:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        label = np.frombuffer(_label(key, arrays), dtype=np.uint8)
        save_arrays(_file(folder, key), {_LABEL: label, **arrays})
        _remove_oldest(folder)


@cache
def describe_machine() -> str:
    """What decides the last bits of arithmetic: the CPU, the libraries, and the loops that they choose for it."""
    chosen: Any = numba.config
    cpu = chosen.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    return " ".join([cpu, str(chosen.CPU_FEATURES), np.__version__, scipy.__version__, *blas_descriptions()])


@cache
def describe_sources(*folders: Path) -> str | None:
    """A digest of the Python files of these folders; None where they are installed without."""
    digest = hashlib.sha256()
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    for path in files:
        digest.update(f"{path.name} ".encode() + path.read_bytes())
    return digest.hexdigest() if files else None


def _file(folder: Path, key: str) -> Path:
    return folder / (hashlib.sha256(key.encode()).hexdigest()[:32] + _SUFFIX)


def _label(key: str, arrays: Mapping[str, Any]) -> bytes:
    """The key, and the names that a damaged directory may lack."""
    return f"{key}\n{' '.join(arrays)}".encode()


def _remove_oldest(folder: Path) -> None:
    used = 0
    for _, size, path in sorted(((s.st_mtime, s.st_size, p) for p, s in _files(folder)), reverse=True):
        used += size
        if used > MOST_BYTES:
            path.unlink(missing_ok=True)


def _files(folder: Path) -> list[tuple[Path, Any]]:
    return [(path, path.stat()) for path in folder.glob("*" + _SUFFIX)]
