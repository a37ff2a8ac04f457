"""Checks of a session that was read from a file: its bytes may be whole and its numbers impossible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.types import LoopClosure, Pair
from gpgmap_ros.mapping.submap_store import MAX_ID
from gpgmap_ros.storage.archive import shorten

MAX_DISTANCE = 1e7
"""Metres: nothing is farther from where its drive began."""
MAX_DRIVEN = 1e9
"""Metres: no drive is longer."""


def check_session(
    nodes: Iterable[SubmapNode],
    closures: Mapping[Pair, LoopClosure],
    rejected: Iterable[Pair],
    names: Mapping[int, str],
) -> None:
    """ValueError that names the first thing which can't be."""
    ids: set[int] = set()
    taken: set[str] = set()
    driven: dict[int, float] = {}
    for node in nodes:
        if node.id in ids or names[node.id] in taken:
            raise ValueError(f"submap {node.id} is there twice")
        check_node(node, driven.get(node.drive, 0.0))
        ids.add(node.id)
        taken.add(names[node.id])
        driven[node.drive] = node.driven
    for pair, closure in closures.items():
        unknown = [id for id in pair if id not in ids]
        if unknown or pair[0] == pair[1]:
            what = f"there is no submap {unknown[0]}" if unknown else "that is one submap"
            raise ValueError(f"a closure joins submaps {pair[0]} and {pair[1]}: {what}")
        check_closure(closure)
    for pair in rejected:
        if pair not in closures:
            raise ValueError(f"closure {pair[0]}-{pair[1]} is rejected, but there is none")


def check_node(node: SubmapNode, driven: float) -> None:
    """driven: metres until the submap before it in its drive."""
    what = f"submap {shorten(node.id)}"
    if not 0 <= node.id <= MAX_ID:
        raise ValueError(f"submaps have numbers from 0 to {MAX_ID:,}, one has {shorten(node.id)}")
    for name, number in (("drive", node.drive), ("first stamp", node.first_stamp)):
        if abs(number) >= 1 << 63:
            raise ValueError(f"{what}: its {name} has more than 64 bits")
    lengths = ("driven", node.driven), ("length", node.length), ("radius", node.radius)
    variances = [("drift_variance", value) for value in node.drift_variance]
    for name, value in (*lengths, ("tilt_std", node.tilt_std), *variances):
        if not 0.0 <= value <= MAX_DRIVEN:
            raise ValueError(f"{what}: its {name} is {value}")
    if node.driven < driven:
        raise ValueError(
            f"{what}: it was reached after {node.driven:g} m, the one before it after {driven:g} m"
        )
    if not is_rigid(node.T_odom_submap[None]):
        raise ValueError(f"{what}: its pose is not a rigid transform")
    if len(node.stamps) != len(node.track) or not is_rigid(node.track):
        raise ValueError(f"{what}: its track is not made of rigid transforms")
    if node.stamps.ndim != 1 or node.stamps.dtype != np.int64:
        raise ValueError(f"{what}: the stamps of its track are {node.stamps.dtype} {node.stamps.shape}")
    if np.any(np.diff(node.stamps) < 0):
        raise ValueError(f"{what}: its track goes back in time")


def check_closure(closure: LoopClosure) -> None:
    what = f"closure {closure.a}-{closure.b}"
    if not (0.0 <= closure.probability <= 1.0 and 0.0 <= closure.overlap <= 1.0 + 1e-9):
        raise ValueError(
            f"{what}: probability {closure.probability} and overlap {closure.overlap} are not in 0 to 1"
        )
    T, covariance = closure.T_a_b, closure.covariance
    if T.dtype != np.float64 or covariance.dtype != np.float64:
        raise ValueError(f"{what}: its pose and covariance are {T.dtype} and {covariance.dtype}, not float64")
    if T.shape != (4, 4) or covariance.shape != (6, 6):
        raise ValueError(f"{what}: its pose and covariance are {T.shape} and {covariance.shape} matrices")
    if not (closure.registered or closure.weak):
        return  # nothing is computed with what was refused
    if not (np.isfinite(closure.score) and np.isfinite(closure.chance)):
        raise ValueError(f"{what}: its score is {closure.score}, its chance {closure.chance}")
    if not is_rigid(T[None]):
        raise ValueError(f"{what}: its pose is not a rigid transform")
    symmetric = np.all(np.isfinite(covariance)) and np.allclose(
        covariance, covariance.T, rtol=1e-6, atol=1e-12
    )
    if not symmetric or np.linalg.eigvalsh(covariance)[0] <= 0.0:
        raise ValueError(f"{what}: its covariance is not positive definite")


def is_rigid(T: Array) -> bool:
    """Are all of (N, 4, 4) rotations with determinant +1 and translations of a possible length?"""
    if T.ndim != 3 or T.shape[1:] != (4, 4) or T.dtype != np.float64 or not np.all(np.isfinite(T)):
        return False
    R = T[:, :3, :3]
    return bool(
        np.allclose(T[:, 3], [0.0, 0.0, 0.0, 1.0])
        and np.allclose(R @ np.swapaxes(R, 1, 2), np.eye(3), atol=1e-6)
        and np.all(np.linalg.det(R) > 0.0)
        and np.all(np.abs(T[:, :3, 3]) < MAX_DISTANCE)
    )
