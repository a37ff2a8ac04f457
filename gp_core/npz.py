"""Named arrays in one file: an uncompressed NPZ that replaces the one before it atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write the arrays to a file beside `path` that then takes its place; OSError where the disk refuses."""
    staged = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.new")
    try:
        with open(staged, "xb") as file:
            _write(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file, by name; an error for whatever is no archive of plain arrays with the right checksums."""
    with zipfile.ZipFile(path) as archive:
        out = {}
        for name in archive.namelist():
            with archive.open(name) as member:
                out[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):
                    raise ValueError(f"{path}: {name} is longer than its array")
        return out


def _write(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """As np.savez, which leaves the archive open where the disk refuses: it complains when it is collected."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
