"""Statistics on file: one uncompressed NPZ with a header and a checksum, written atomically, read without pickle."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from gp_core.grid.blocks import Blocks
from gp_core.grid.moments import KNOWN_ORDERS, MomentOrders
from gp_core.npz import save_arrays

_FORMAT: Final = "gp_core.grid.tiled_statistics"
_VERSION: Final = 1
_ARRAYS: Final = ("index", "weights", "heights", "totals")


def save_blocks(path: Path, blocks: Blocks, values: Mapping[str, Any]) -> None:
    """Write blocks, and plain values with them, to a file that replaces the one at `path` atomically."""
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "spacing": blocks.spacing.tolist(),
        "reference": blocks.reference,
        **values,
    }
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    content: dict[str, Any] = {
        "header": text,
        **{name: np.ascontiguousarray(getattr(blocks, name)) for name in _ARRAYS},
    }
    save_arrays(path, {"checksum": _checksum(content), **content})


def load_blocks(path: Path) -> tuple[Blocks, dict[str, Any]]:
    """The blocks and values of a file that `save_blocks` made; ValueError, with the reason, for any other."""
    try:
        content = _read_arrays(path)
        header = json.loads(content["header"].tobytes())
        if header["format"] != _FORMAT or header["version"] != _VERSION:
            raise ValueError(f"it holds {header['format']!r} version {header['version']!r}")
        if content.pop("checksum").tobytes() != _checksum(content).tobytes():
            raise ValueError("its checksum does not match its content")
        arrays = {name: content[name] for name in _ARRAYS}
        _check_arrays(arrays)
        spacing = np.array(header.pop("spacing"), dtype=np.float64)
        if spacing.shape != (2,) or not (np.isfinite(spacing) & (spacing > 0.0)).all():
            raise ValueError(f"its spacing is {spacing.tolist()}")
        reference = float(header.pop("reference"))
        if not np.isfinite(reference):
            raise ValueError(f"its reference height is {reference}")
        return Blocks(spacing=spacing, reference=reference, **arrays), header
    except OSError:
        raise
    except Exception as error:  # whatever the content of a strange file may cause
        reason = str(error)[:200] or type(error).__name__
        raise ValueError(f"{path}: this is no intact file of statistics: {reason}") from error


def _read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file; stored without compression, so that they can't be larger than the file."""
    with zipfile.ZipFile(path) as archive:
        if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
            raise ValueError("it is compressed")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _check_arrays(arrays: Mapping[str, Any]) -> None:
    count = len(arrays["index"])
    orders = MomentOrders(arrays["weights"].shape[-1], arrays["heights"].shape[-1])
    if orders not in KNOWN_ORDERS:
        raise ValueError(f"its moments have {orders}")
    n, m = orders
    for name, shape in zip(_ARRAYS, ((2,), (n, n), (m, m), (3,)), strict=True):
        array = arrays[name]
        kind = np.int64 if name == "index" else np.float64
        if array.shape != (count, *shape) or array.dtype != kind or not np.isfinite(array).all():
            raise ValueError(f"its {name} are not finite numbers, one set for each block")
    if len(np.unique(arrays["index"], axis=0)) != count:
        raise ValueError("two of its blocks are at the same place")
    if not (arrays["weights"][:, 0, 0] > 0.0).all() or not (arrays["totals"][:, 1] >= 0.0).all():
        raise ValueError("its weights or counts are not positive")


def _checksum(content: Mapping[str, Any]) -> Any:
    """(32,) SHA-256 of names, types, shapes and bytes of all arrays."""
    digest = hashlib.sha256()
    for name in sorted(content):
        array = content[name]
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
