"""The file of a LoopCloser: submaps, comparisons and rejections, in one archive (gpgmap_ros.storage.archive).

The keys in the file are older than the names in the code, and stay: "stations" are nodes, "found" are comparisons,
"verdict" is `LoopClosure.registered`, and "name" is the submap's key in the database that may be saved beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.session.session_check import check_session
from gpgmap_ros.closure.types import LoopClosure, Pair
from gpgmap_ros.storage.archive import ArchiveError, read_archive, shorten, write_archive

KIND = "closures"


@dataclass(frozen=True)
class SavedSession:
    """As given to `write_session`. surfaces: whether the maps were saved beside; names: of the submaps there, by id."""

    nodes: list[SubmapNode]
    closures: dict[Pair, LoopClosure]
    rejected: list[Pair]
    surfaces: bool
    names: dict[int, str]


def write_session(
    path: Path,
    nodes: Sequence[SubmapNode],
    closures: Mapping[Pair, LoopClosure],
    rejected: Sequence[Pair],
    surfaces: bool,
) -> None:
    """Replace the file at `path` atomically. OSError where the disk refuses."""
    values, arrays = encode_content(nodes, closures)
    values |= {"surfaces": surfaces, "rejected": [list(pair) for pair in rejected]}
    write_archive(path, KIND, values, arrays)


def encode_content(
    nodes: Sequence[SubmapNode], closures: Mapping[Pair, LoopClosure]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Submaps and comparisons as plain values and arrays."""
    values: dict[str, Any] = {
        "stations": [
            {
                "id": n.id, "name": str(n.id), "drive": n.drive, "first_stamp": n.first_stamp, "driven": n.driven,
                "length": n.length, "radius": n.radius, "track": len(n.stamps), "skipped": n.skipped,
                "tilt_std": n.tilt_std, "drift_variance": list(n.drift_variance),
            }
            for n in nodes
        ],
        "found": [
            {
                "pair": pair, "probability": c.probability, "score": c.score, "overlap": c.overlap,
                "verdict": c.registered, "reason": c.reason, "weak": c.weak, "chance": c.chance,
            }
            for pair, c in closures.items()
        ],
    }  # fmt: skip
    arrays = {
        "T_odom_submap": stack([n.T_odom_submap for n in nodes], (4, 4)),
        "track_stamps": np.concatenate([np.zeros(0, np.int64), *(n.stamps for n in nodes)]),
        "track_poses": np.concatenate([np.zeros((0, 4, 4)), *(n.track for n in nodes)]),
        "T_target_source": stack([c.T_a_b for c in closures.values()], (4, 4)),
        "covariance": stack([c.covariance for c in closures.values()], (6, 6)),
    }
    return values, arrays


def read_session(path: Path) -> SavedSession:
    """ArchiveError where the file is damaged, of another version or another kind, or means nothing."""
    try:
        values, arrays = read_archive(path, KIND)
        saved = SavedSession(
            decode_nodes(values["stations"], arrays),
            decode_closures(values["found"], arrays),
            [(int(a), int(b)) for a, b in values["rejected"]],
            bool(values["surfaces"]),
            decode_names(values["stations"]),
        )
        check_session(saved.nodes, saved.closures, saved.rejected, saved.names)
    except ArchiveError:
        raise
    except Exception as error:  # a damaged file makes the readers below raise anything
        reason = shorten(error) or type(error).__name__
        raise ArchiveError(f"{path}: its content makes no sense: {reason}") from error
    return saved


def decode_nodes(values: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> list[SubmapNode]:
    ends = np.cumsum([int(item["track"]) for item in values])
    out = []
    for k, (item, end) in enumerate(zip(values, ends, strict=True)):
        part = slice(int(end) - int(item["track"]), int(end))
        out.append(
            SubmapNode(
                int(item["id"]),
                int(item["drive"]),
                arrays["T_odom_submap"][k],
                int(item["first_stamp"]),
                float(item["driven"]),
                float(item["length"]),
                float(item["radius"]),
                arrays["track_stamps"][part],
                arrays["track_poses"][part],
                str(item["skipped"]),
                float(item.get("tilt_std", 0.0)),
                decode_drift(item.get("drift_variance", (0.0, 0.0))),
            )
        )
    return out


def decode_drift(values: Sequence[float]) -> tuple[float, float]:
    position, rotation = values
    return float(position), float(rotation)


def decode_names(values: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    return {int(item["id"]): str(item["name"]) for item in values}


def decode_closures(
    values: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]
) -> dict[Pair, LoopClosure]:
    out: dict[Pair, LoopClosure] = {}
    for item, T, covariance in zip(values, arrays["T_target_source"], arrays["covariance"], strict=True):
        a, b = (int(number) for number in item["pair"])
        registered = bool(item["verdict"])
        out[a, b] = LoopClosure(
            a,
            b,
            T,
            covariance,
            float(item["probability"]),
            float(item["overlap"]),
            registered,
            str(item["reason"]),
            float(item["score"]),
            registered,
            bool(item.get("weak", False)),
            float(item.get("chance", 0.0)),
        )
    return out


def stack(matrices: Sequence[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.float64]:
    return np.array(matrices, dtype=np.float64).reshape(-1, *shape)
