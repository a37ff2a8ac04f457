"""Does what was read from a file mean anything? Bytes may be whole and the numbers impossible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.stations import Found, Station
from gpgmap_ros.mapping.archive import shortened
from gpgmap_ros.mapping.submap_store import MOST_ID

Array = NDArray[np.float64]
Pair = tuple[int, int]

LARGEST = 1e7
"""Metres: nothing is farther from where its drive began."""
LONGEST = 1e9
"""Metres: no drive is longer."""


def check_session(stations: Iterable[Station], found: Mapping[Pair, Found], rejected: Iterable[Pair]) -> None:
    """ValueError that names the first thing which can't be."""
    ids: set[int] = set()
    names: set[str] = set()
    driven: dict[int, float] = {}
    for station in stations:
        if station.id in ids or station.name in names:
            raise ValueError(f"submap {station.id} is there twice")
        check_station(station, driven.get(station.drive, 0.0))
        ids.add(station.id)
        names.add(station.name)
        driven[station.drive] = station.driven
    for pair, item in found.items():
        unknown = [id for id in pair if id not in ids]
        if unknown or pair[0] == pair[1]:
            what = f"there is no submap {unknown[0]}" if unknown else "that is one submap"
            raise ValueError(f"a closure joins submaps {pair[0]} and {pair[1]}: {what}")
        check_found(pair, item)
    for pair in rejected:
        if pair not in found:
            raise ValueError(f"closure {pair[0]}-{pair[1]} is rejected, but there is none")


def check_station(station: Station, driven: float) -> None:
    """driven: metres until the submap before it in its drive."""
    what = f"submap {shortened(station.id)}"
    if not 0 <= station.id <= MOST_ID:
        raise ValueError(f"submaps have numbers from 0 to {MOST_ID:,}, one has {shortened(station.id)}")
    for name, number in (("drive", station.drive), ("first stamp", station.first_stamp)):
        if abs(number) >= 1 << 63:
            raise ValueError(f"{what}: its {name} has more than 64 bits")
    for name, value in (("driven", station.driven), ("length", station.length), ("radius", station.radius)):
        if not 0.0 <= value <= LONGEST:
            raise ValueError(f"{what}: its {name} is {value}")
    if station.driven < driven:
        raise ValueError(
            f"{what}: it was reached after {station.driven:g} m, the one before it after {driven:g} m"
        )
    if not are_rigid(station.T_odom_submap[None]):
        raise ValueError(f"{what}: its pose is not a rigid transform")
    if len(station.stamps) != len(station.track) or not are_rigid(station.track):
        raise ValueError(f"{what}: its track is not made of rigid transforms")
    if station.stamps.ndim != 1 or station.stamps.dtype != np.int64:
        raise ValueError(f"{what}: the stamps of its track are {station.stamps.dtype} {station.stamps.shape}")
    if np.any(np.diff(station.stamps) < 0):
        raise ValueError(f"{what}: its track goes back in time")


def check_found(pair: Pair, found: Found) -> None:
    what = f"closure {pair[0]}-{pair[1]}"
    if not (0.0 <= found.probability <= 1.0 and 0.0 <= found.overlap <= 1.0 + 1e-9):
        raise ValueError(
            f"{what}: probability {found.probability} and overlap {found.overlap} are not in 0 to 1"
        )
    T, covariance = found.closure.T_target_source, found.closure.covariance
    if T.dtype != np.float64 or covariance.dtype != np.float64:
        raise ValueError(f"{what}: its pose and covariance are {T.dtype} and {covariance.dtype}, not float64")
    if T.shape != (4, 4) or covariance.shape != (6, 6):
        raise ValueError(f"{what}: its pose and covariance are {T.shape} and {covariance.shape} matrices")
    if not found.verdict:
        return  # nothing is computed with what was refused
    if not np.isfinite(found.score):
        raise ValueError(f"{what}: its score is {found.score}")
    if not are_rigid(T[None]):
        raise ValueError(f"{what}: its pose is not a rigid transform")
    symmetric = np.all(np.isfinite(covariance)) and np.allclose(
        covariance, covariance.T, rtol=1e-6, atol=1e-12
    )
    if not symmetric or np.linalg.eigvalsh(covariance)[0] <= 0.0:
        raise ValueError(f"{what}: its covariance is not positive definite")


def are_rigid(T: Array) -> bool:
    """Are all of (N, 4, 4) rotations with determinant +1 and translations of a possible length?"""
    if T.ndim != 3 or T.shape[1:] != (4, 4) or T.dtype != np.float64 or not np.all(np.isfinite(T)):
        return False
    R = T[:, :3, :3]
    return bool(
        np.allclose(T[:, 3], [0.0, 0.0, 0.0, 1.0])
        and np.allclose(R @ np.swapaxes(R, 1, 2), np.eye(3), atol=1e-6)
        and np.all(np.linalg.det(R) > 0.0)
        and np.all(np.abs(T[:, :3, 3]) < LARGEST)
    )
