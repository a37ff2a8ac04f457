"""A LoopCloser on file: stations, comparisons and what was rejected, in one archive (gpgmap_ros.mapping.archive)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.consistency import Closure
from gpgmap_ros.closure.session_check import check_session
from gpgmap_ros.closure.stations import Found, Station
from gpgmap_ros.mapping.archive import ArchiveError, read_archive, shortened, write_archive

KIND = "closures"
Pair = tuple[int, int]


@dataclass(frozen=True)
class SavedSession:
    """As given to `write_session`. surfaces: whether they were saved beside."""

    stations: list[Station]
    found: dict[Pair, Found]
    rejected: list[Pair]
    surfaces: bool


def write_session(
    path: Path,
    stations: Sequence[Station],
    found: Mapping[Pair, Found],
    rejected: Sequence[Pair],
    surfaces: bool,
) -> None:
    """Replace the file at `path` at once. OSError where the disk refuses."""
    values, arrays = content_of(stations, found)
    values |= {"surfaces": surfaces, "rejected": [list(pair) for pair in rejected]}
    write_archive(path, KIND, values, arrays)


def content_of(
    stations: Sequence[Station], found: Mapping[Pair, Found]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Stations and comparisons as plain values and arrays."""
    values = {
        "stations": [
            {
                "id": s.id, "name": s.name, "drive": s.drive, "first_stamp": s.first_stamp, "driven": s.driven,
                "length": s.length, "radius": s.radius, "track": len(s.stamps), "skipped": s.skipped,
            }
            for s in stations
        ],
        "found": [
            {
                "pair": pair, "probability": f.probability, "score": f.score, "overlap": f.overlap,
                "verdict": f.verdict, "reason": f.reason,
            }
            for pair, f in found.items()
        ],
    }  # fmt: skip
    arrays = {
        "T_odom_submap": stacked([s.T_odom_submap for s in stations], (4, 4)),
        "track_stamps": np.concatenate([np.zeros(0, np.int64), *(s.stamps for s in stations)]),
        "track_poses": np.concatenate([np.zeros((0, 4, 4)), *(s.track for s in stations)]),
        "T_target_source": stacked([f.closure.T_target_source for f in found.values()], (4, 4)),
        "covariance": stacked([f.closure.covariance for f in found.values()], (6, 6)),
    }
    return values, arrays


def read_session(path: Path) -> SavedSession:
    """ArchiveError where the file is damaged, of another version or another kind, or means nothing."""
    try:
        values, arrays = read_archive(path, KIND)
        saved = SavedSession(
            stations_from(values["stations"], arrays),
            found_from(values["found"], arrays),
            [(int(a), int(b)) for a, b in values["rejected"]],
            bool(values["surfaces"]),
        )
        check_session(saved.stations, saved.found, saved.rejected)
    except ArchiveError:
        raise
    except Exception as error:  # a damaged file makes the readers below raise anything
        reason = shortened(error) or type(error).__name__
        raise ArchiveError(f"{path}: its content makes no sense: {reason}") from error
    return saved


def stations_from(values: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> list[Station]:
    ends = np.cumsum([int(item["track"]) for item in values])
    out = []
    for k, (item, end) in enumerate(zip(values, ends, strict=True)):
        part = slice(int(end) - int(item["track"]), int(end))
        out.append(
            Station(
                int(item["id"]),
                str(item["name"]),
                int(item["drive"]),
                arrays["T_odom_submap"][k],
                int(item["first_stamp"]),
                float(item["driven"]),
                float(item["length"]),
                float(item["radius"]),
                arrays["track_stamps"][part],
                arrays["track_poses"][part],
                str(item["skipped"]),
            )
        )
    return out


def found_from(values: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> dict[Pair, Found]:
    out: dict[Pair, Found] = {}
    for item, T, covariance in zip(values, arrays["T_target_source"], arrays["covariance"], strict=True):
        a, b = (int(number) for number in item["pair"])
        out[a, b] = Found(
            Closure(str(b), str(a), T, covariance),
            float(item["probability"]),
            float(item["score"]),
            float(item["overlap"]),
            bool(item["verdict"]),
            str(item["reason"]),
        )
    return out


def stacked(matrices: Sequence[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.float64]:
    return np.array(matrices, dtype=np.float64).reshape(-1, *shape)
