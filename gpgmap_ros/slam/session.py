"""A run on disk, opened to be used again: its submaps, their corrected poses and its pose graph.

    session = Session.load("yesterday")
    session.localize(gpgmap)        # where is this map in it? No guess is needed
    session.localizer()             # follows a robot: see localizer.py

The folder of a replay, of a merge, or the map folder of a node. Nothing in it is changed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.closure import DatabaseError, LoopCloser, LoopClosure, PosePrior, Registration
from gpgmap_ros.closure.session.session_log import log_path
from gpgmap_ros.closure.types import SubmapKey
from gpgmap_ros.config import Config, ConfigError, LocalizationConfig, with_settings
from gpgmap_ros.config.yaml import load_config
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping import ArchiveError, GPGMap, SubmapStore
from gpgmap_ros.slam.footprints import Footprints
from gpgmap_ros.slam.localizer import Localizer
from gpgmap_ros.slam.pose_belief import PoseBelief
from gpgmap_ros.storage.folder_lock import describe_owner

SUMMARY, CONFIG, SUBMAPS, GRAPH, COMPARISONS = (
    "run.json", "config.yaml", "submaps", "closures.npz", "closures.json",
)  # fmt: skip


class SessionError(ValueError):
    """A folder in which nothing can be localised: why, and what to do."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a map is in a session.

    T_map_query, covariance: as of a Registration, in the map's frame; submap: the one that it was recognised in
    accepted, probability, reason: of the registration
    """

    T_map_query: Array
    covariance: Array
    submap: int | None
    accepted: bool
    probability: float
    reason: str


@dataclass(frozen=True, eq=False)
class Session:
    """A saved run.

    path: its folder; config: its settings; submaps: on disk; closer: its pose graph, and the maps to compare with
    ids: the submaps that are in the map's frame; frame: its name
    warnings: what could not be read, in sentences
    """

    path: Path
    config: Config
    submaps: SubmapStore = field(repr=False)
    closer: LoopCloser = field(repr=False)
    ids: frozenset[int] = field(repr=False)
    warnings: tuple[str, ...] = ()

    @classmethod
    def load(cls, run: Path | str, busy: bool = False) -> Session:
        """Open a run. SessionError where it is none, has no submaps, or is being written.

        busy: open it although a process writes into it: what it has finished is read
        """
        path = Path(run).expanduser()
        summary = _read_summary(path, busy)
        try:
            config = load_config(path / CONFIG) if (path / CONFIG).exists() else Config()
            config = with_settings(config, {"map_folder": "", "localization.map": ""})
        except ConfigError as error:
            raise SessionError(f"{error}: the run was made by another version; run it again") from error
        store = SubmapStore(path / SUBMAPS, config)
        _check_store(path, store)
        try:
            closer = _load_closer(path, store, config)
        except (ArchiveError, DatabaseError) as error:
            raise SessionError(f"{error}; run it again") from error
        ids = _in_map(store, closer, summary)
        comparable = [id for id in ids if id in closer.database]
        if not comparable:
            why = next(iter(closer.skipped.values()), "it has no comparable submap")
            raise SessionError(f"{path}: no place can be recognised in this run: {why}")
        warnings = tuple(f"{name}: not used: {why}" for name, why in store.damaged.items())
        return cls(path, config, store, closer, ids, warnings)

    @property
    def frame(self) -> str:
        return self.config.map_frame

    @property
    def resolution(self) -> float:
        """Edge of the cells of its submaps, metres."""
        return next(info.grid.resolution for info in self.submaps.infos() if info.id in self.ids)

    @property
    def poses(self) -> dict[int, Array]:
        """T_map_submap (4, 4), corrected, of the submaps in the map."""
        return {id: T for id, T in self.closer.poses.items() if id in self.ids}

    def localizer(self, config: LocalizationConfig | None = None) -> Localizer:
        """Follows a robot in this map. config: of the run unless given"""
        poses = self.poses
        usable = [
            info for info in self.submaps.infos() if info.id in poses and info.id in self.closer.database
        ]
        footprints = Footprints.of(
            [info.id for info in usable],
            [poses[info.id] for info in usable],
            [info.grid.bounds for info in usable],
        )
        config = config or self.config.localization
        return Localizer(self.closer.database, poses, footprints, self.closer.config, config)

    def localize(self, map_: GPGMap, prior: PosePrior | None = None) -> Place:
        """The pose of one map in this one, from one look. `localizer` adds up the evidence of several.

        prior: where its frame is thought to be in the map's; everywhere unless given. NotComparable for a map in which
        no place can be recognised, or with other cells.
        """
        poses = self.poses
        priors: dict[SubmapKey, PosePrior] = {}
        if prior is not None:
            belief = PoseBelief(prior.T_target_source, prior.covariance)
            local = {id: belief.in_frame(T) for id, T in poses.items()}
            priors = {id: PosePrior(item.T, item.covariance) for id, item in local.items()}
        count = self.closer.config.matches
        found = self.closer.database.closures(map_, count, priors=priors, among=list(poses))
        return _best_place(found, poses)


def _best_place(found: list[tuple[Any, Registration]], poses: dict[int, Array]) -> Place:
    if not found:
        infinite = np.diag(np.full(6, np.inf))
        return Place(np.eye(4), infinite, None, False, 0.0, "no part of the map fits")
    id, best = found[0]
    T = poses[int(id)]
    from_map = np.eye(4)
    from_map[:3, :3] = T[:3, :3].T
    covariance = best.covariance
    if np.isfinite(covariance).all():
        covariance = PoseBelief(np.eye(4), covariance).in_frame(from_map).covariance
    return Place(T @ best.T_target_source, covariance, int(id), best.accepted, best.probability, best.reason)


def _read_summary(path: Path, busy: bool) -> dict[str, Any]:
    """run.json, empty where a node made the folder. SessionError where nothing can be read yet."""
    if not (path / SUBMAPS).is_dir():
        kind = "a run without submaps" if (path / SUMMARY).exists() else "not a run"
        remedy = "name the folder of a replay with submap.enabled, or the map folder of a node"
        raise SessionError(f"{path}: {kind}: {remedy}")
    owner = describe_owner(path)
    if owner and not busy:
        raise SessionError(f"{path} is being written by {owner}: wait until that has ended")
    if not (path / SUMMARY).exists():
        return {}
    try:
        summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SessionError(f"{path / SUMMARY}: damaged: {error}; run it again") from error
    if not isinstance(summary, dict):
        raise SessionError(f"{path / SUMMARY}: damaged; run it again")
    if summary.get("status") == "running" and not owner:
        raise SessionError(f"{path}: the run did not end, and its poses are not corrected: run it again")
    return summary


def _check_store(path: Path, store: SubmapStore) -> None:
    infos = store.infos()
    if not infos:
        damaged = next(iter(store.damaged.values()), "")
        why = f"none of its submaps can be read: {damaged}" if damaged else "a run without submaps"
        raise SessionError(f"{path}: {why}: make it again with this version")
    sizes = sorted({round(info.grid.resolution, 6) for info in infos})
    if len(sizes) > 1:
        cells = " and ".join(f"{size:g} m" for size in sizes)
        raise SessionError(f"{path}: its submaps have cells of {cells}: a map needs one size")


def _load_closer(path: Path, store: SubmapStore, config: Config) -> LoopCloser:
    graph = path / GRAPH
    if graph.exists() or log_path(graph).exists():
        return LoopCloser.load(graph, config.closure, lambda id: store.load(id).gpgmap)
    submaps = (store.load(info.id) for info in store.infos())
    known = {info.id for info in store.infos()}
    return LoopCloser.from_submaps(submaps, _read_comparisons(path / COMPARISONS, known), config.closure)


def _read_comparisons(path: Path, known: Collection[int]) -> list[LoopClosure]:
    """The accepted closures of closures.json: runs of version 0.2.0 and before have no other file."""
    if not path.exists():
        return []
    try:
        rows = [row for row in json.loads(path.read_text(encoding="utf-8")) if row["accepted"]]
        return [
            LoopClosure(
                int(row["a"]), int(row["b"]),
                np.array(row["T_a_b"], dtype=np.float64).reshape(4, 4),
                np.array(row["covariance"], dtype=np.float64).reshape(6, 6),
                float(row["probability"]), float(row["overlap"]), True, str(row["reason"]), 0.0, True,
            )
            for row in rows if row["a"] in known and row["b"] in known
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ArchiveError(f"{path}: damaged: {error}") from error


def _in_map(store: SubmapStore, closer: LoopCloser, summary: dict[str, Any]) -> frozenset[int]:
    """The submaps in the frame of the map: of the drives that the run says are in it, else the most in one frame."""
    rows = summary.get("drives") or []
    sessions = {row.get("session") for row in rows if isinstance(row, dict) and row.get("in_map")}
    infos = [info for info in store.infos() if info.id in closer]
    anchor = next((info.id for info in infos if info.session in sessions), None)
    if anchor is not None:  # and what has joined them since
        return frozenset(info.id for info in infos if closer.one_frame(info.id, anchor))
    groups: list[list[int]] = []
    for info in infos:
        group = next((g for g in groups if closer.one_frame(g[0], info.id)), None)
        if group is None:
            groups.append(group := [])
        group.append(info.id)
    groups.sort(key=len, reverse=True)  # stable: of equal ones the first
    return frozenset(groups[0] if groups else [])
