"""Which closures of a run are right, and which revisits are closed, by the true trajectory.

**Overlap.** The truth puts the maps of two submaps on each other. Their overlap is the ground that both know, as a
share of the smaller map: what they could be recognised by, whatever their size and shape.

**Precision.** An accepted closure is *right* if its submaps overlap and its pose differs from the true one by less than
`right_m` and `right_deg`. Precision is the share of the accepted ones that are right.

**Recall.** A *pair* is any two submaps that overlap, except those of one drive with a way between them that is shorter
than both reach: these see the same ground because the robot has not left it. A submap with earlier ones that it makes
pairs with is a *revisit*, closed if a right closure was accepted between it and any of these. Both are counted for
several least overlaps (`OVERLAPS`), whether the submaps were compared or not, and recall is the share of revisits that
is closed. `mean_recall` is its mean over all overlaps from the least of these up: no threshold is in it.

**Curves.** Precision and recall of pairs for each threshold on the probability, whatever else was held against a
closure, for each of the overlaps.

Pairs at whose times the truth says nothing are left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.mapping.submaps import align_with_gravity
from gpgmap_ros.slam.trajectory import Trajectory

OVERLAPS = (0.2, 0.35, 0.5, 0.7)
"""Least overlaps for which recall is stated."""
SAMPLES = 60
"""Cells across a map, at most, at which overlap is measured."""


@dataclass(frozen=True, eq=False)
class TrueSubmap:
    """A submap where it truly is.

    drive: that it belongs to; driven: metres in it until the submap began
    T_true: (4, 4) of its frame, level; grid, known: of its map
    """

    id: int
    drive: int
    driven: float
    T_true: Array
    grid: Grid = field(repr=False)
    known: NDArray[np.bool_] = field(repr=False)

    @property
    def reach(self) -> float:
        """Metres from its origin to its farthest corner."""
        x_min, y_min, x_max, y_max = self.grid.bounds
        return float(np.hypot(max(-x_min, x_max, 0.0), max(-y_min, y_max, 0.0)))

    @property
    def area(self) -> float:
        """Known ground, square metres."""
        return float(self.known.sum()) * self.grid.resolution**2


def read_true_submaps(store: SubmapStore, truth: Trajectory, gap: float) -> dict[int, TrueSubmap]:
    """The submaps of a run at whose beginning the truth is known, by number."""
    found: dict[int, TrueSubmap] = {}
    driven: dict[int, float] = {}
    for info in store.infos():
        begin = driven.get(info.session, 0.0)
        driven[info.session] = begin + info.distance
        T = truth.at(int(info.first_stamp), gap)
        if T is not None:
            known = store.load(info.id).gpgmap.known
            found[info.id] = TrueSubmap(info.id, info.session, begin, align_with_gravity(T), info.grid, known)
    return found


def true_overlap(a: TrueSubmap, b: TrueSubmap) -> float:
    """Ground that both know, as a share of the smaller map."""
    T = inverse(b.T_true) @ a.T_true
    if np.hypot(*T[:2, 3]) >= a.reach + b.reach or not a.area or not b.area:
        return 0.0
    step = -(-max(a.grid.shape) // SAMPLES)
    rows, columns = np.nonzero(a.known[::step, ::step])
    x, y = a.grid.x[::step][columns], a.grid.y[::step][rows]
    xy = np.column_stack([x, y]) @ T[:2, :2].T + T[:2, 3]
    index = np.floor((xy - np.array(b.grid.origin)) / b.grid.resolution).astype(int)
    inside = ((index >= 0) & (index < b.grid.shape[::-1])).all(axis=1)
    shared = float(b.known[index[inside, 1], index[inside, 0]].sum())
    return min(shared / max(len(x), 1) * a.area / min(a.area, b.area), 1.0)


def find_pairs(submaps: Iterable[TrueSubmap]) -> dict[tuple[int, int], float]:
    """Overlaps of all pairs that closures could be found between, the earlier submap first."""
    found: dict[tuple[int, int], float] = {}
    earlier: list[TrueSubmap] = []
    for b in submaps:
        for a in earlier:
            near = a.drive == b.drive and b.driven - a.driven < (a.reach + b.reach) / np.sqrt(2.0)
            overlap = 0.0 if near else true_overlap(a, b)
            if overlap > 0.0:
                found[a.id, b.id] = overlap
        earlier.append(b)
    return found


def closure_errors(
    closures: Sequence[Mapping[str, Any]],
    submaps: Mapping[int, TrueSubmap],
    right_m: float,
    right_deg: float,
) -> dict[str, Any]:
    """Errors of the closures of a run. closures: as in closures.json; submaps: see `read_true_submaps`"""
    pairs = find_pairs(submaps.values())
    judged = []
    for closure in closures:
        a, b = submaps.get(closure["a"]), submaps.get(closure["b"])
        if a is None or b is None:
            continue
        T_true = inverse(a.T_true) @ b.T_true
        error = inverse(T_true) @ np.array(closure["T_a_b"])
        distance = float(np.linalg.norm(error[:3, 3]))
        turn = float(np.degrees(Rotation.from_matrix(error[:3, :3]).magnitude()))
        overlap = pairs.get((a.id, b.id), 0.0) or true_overlap(a, b)
        judged.append(
            {
                "a": a.id, "b": b.id, "accepted": closure["accepted"], "probability": closure["probability"],
                "overlap": overlap, "right": overlap > 0.0 and distance <= right_m and turn <= right_deg,
                "error_m": distance, "error_deg": turn,
            }
        )  # fmt: skip
    accepted = [item for item in judged if item["accepted"]]
    right = [item for item in accepted if item["right"]]
    revisits = best_overlaps(pairs)
    closed = {item["b"] for item in right}
    return {
        "compared": len(judged),
        "without_truth": len(closures) - len(judged),
        "accepted": len(accepted),
        "right": len(right),
        "precision": len(right) / len(accepted) if accepted else None,
        "mean_recall": mean_recall(revisits, closed),
        "by_overlap": [level_result(level, pairs, revisits, closed, judged) for level in OVERLAPS],
        "median_error_m": float(np.median([item["error_m"] for item in right])) if right else None,
        "median_error_deg": float(np.median([item["error_deg"] for item in right])) if right else None,
        "each": judged,
    }


def best_overlaps(pairs: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Of each submap with the earlier one that it shares most ground with."""
    best: dict[int, float] = {}
    for (_, b), overlap in pairs.items():
        best[b] = max(best.get(b, 0.0), overlap)
    return best


def mean_recall(revisits: Mapping[int, float], closed: set[int]) -> float | None:
    """Mean, over least overlaps from the first of OVERLAPS to 1, of the share of revisits that are closed.

    Beyond the largest overlap of all revisits there is none to be closed: the mean ends there.
    """
    overlaps = np.array(sorted(overlap for overlap in revisits.values() if overlap >= OVERLAPS[0]))
    if not len(overlaps):
        return None
    hit = np.array([id in closed for id, _ in sorted(revisits.items(), key=lambda item: item[1])])
    hit = hit[-len(overlaps) :]
    recall = np.cumsum(hit[::-1])[::-1] / np.arange(len(hit), 0, -1)  # of those from each one up
    widths = np.diff(overlaps, prepend=OVERLAPS[0])
    return float(recall @ widths / widths.sum()) if widths.sum() > 0.0 else float(recall[0])


def level_result(
    level: float,
    pairs: Mapping[tuple[int, int], float],
    revisits: Mapping[int, float],
    closed: set[int],
    judged: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Pairs and revisits with at least this overlap."""
    possible = {pair for pair, overlap in pairs.items() if overlap >= level}
    revisit = {id for id, overlap in revisits.items() if overlap >= level}
    compared = [item for item in judged if (item["a"], item["b"]) in possible]
    return {
        "overlap": level,
        "pairs": len(possible),
        "compared": len(compared),
        "right": sum(item["accepted"] and item["right"] for item in compared),
        "revisits": len(revisit),
        "closed": len(revisit & closed),
        "recall": len(revisit & closed) / len(revisit) if revisit else None,
        "curve": precision_recall(judged, possible),
    }


def precision_recall(
    judged: Sequence[dict[str, Any]], possible: set[tuple[int, int]]
) -> list[dict[str, float]]:
    """For every threshold on the probability, highest first: precision of all, recall of the possible pairs."""
    order = sorted(judged, key=lambda item: -item["probability"])
    curve, right, found = [], 0, 0
    for number, item in enumerate(order, 1):
        right += item["right"]
        found += item["right"] and (item["a"], item["b"]) in possible
        last = number == len(order) or order[number]["probability"] < item["probability"]
        if last and possible:
            curve.append(
                {
                    "threshold": item["probability"],
                    "precision": right / number,
                    "recall": found / len(possible),
                }
            )
    return curve
