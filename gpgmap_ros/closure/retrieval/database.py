"""The submaps seen so far: which of them show the ground of a new one, roughly where and at what yaw?

A query compares slopes with every submap at all yaws and shifts, as the first step of a registration does but on a
coarser grid, and refines the best poses coarsely (ranking.py). There is no descriptor that could miss a partial
overlap. The best ones are then registered in full.

A database is one file (database_file.py), written atomically.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import same_resolution
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.pipeline import register_maps, to_metres
from gpgmap_ros.closure.registration.prior import PosePrior
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.retrieval.database_file import (
    DatabaseError,
    meaningless,
    read_database,
    write_database,
)
from gpgmap_ros.closure.retrieval.field_file import FieldFile
from gpgmap_ros.closure.retrieval.ranking import RankedSubmap, Ranking
from gpgmap_ros.closure.types import NotComparable, Registration, SubmapKey
from gpgmap_ros.mapping import GPGMap

Priors = Mapping[SubmapKey, PosePrior]
MAX_TILT_STD = 10.0
"""Degrees: heights of maps that are tilted farther against each other are not comparable."""


@dataclass(frozen=True)
class Match:
    """A submap that may show the ground of the query.

    name: of the submap; likelihood: of the best pose against unrelated ground, comparable within one query
    T_target_source: rough pose (4, 4) of the query's frame in the submap's: right to a cell or two if it is right
    """

    name: SubmapKey
    likelihood: float
    T_target_source: Array


class ClosureDatabase:
    """Submaps by name, all of one resolution. A name is a text or an int; in files it is a text.

    config: how submaps are compared; the default unless given
    """

    def __init__(self, config: ClosureConfig | None = None) -> None:
        self.config = config or ClosureConfig()
        self._maps: dict[SubmapKey, RegistrationMap] = {}
        self._ranking = Ranking(self.config)
        self._similarity = SelfSimilarity(self.config)
        self._fields = FieldFile()

    def __len__(self) -> int:
        return len(self._maps)

    def __contains__(self, name: SubmapKey) -> bool:
        return name in self._maps

    def __iter__(self) -> Iterator[SubmapKey]:
        return iter(self._maps)

    def add(self, name: SubmapKey, map_: GPGMap) -> None:
        """Remember a finished submap. NotComparable where no place can be recognised in it."""
        if name in self._maps:
            raise ValueError(f"there is a submap '{name}' already: remove it first")
        self._maps[name] = self._fields.take(self._prepare(map_))
        self._fields.release()

    def remove(self, name: SubmapKey) -> None:
        """Forget a submap."""
        if name not in self._maps:
            raise KeyError(f"there is no submap '{name}'")
        del self._maps[name]
        self._ranking.forget(name)

    def rename(self, names: Mapping[SubmapKey, SubmapKey]) -> None:
        """Give submaps new names, old -> new; those that are not named are forgotten. KeyError for an unknown one."""
        renamed = {new: self._maps[old] for old, new in names.items()}
        self._maps = renamed
        self._ranking = Ranking(self.config)

    def query(
        self,
        map_: GPGMap,
        max_matches: int = 10,
        exclude: Collection[SubmapKey] = (),
        priors: Priors | None = None,
        *,
        most: int | None = None,
    ) -> list[Match]:
        """The submaps most like this map, best first, at most `max_matches`, without those named in `exclude`.

        priors: where the map's frame is thought to be in some of the submaps'; only there it is looked for
        most: deprecated name of `max_matches`
        """
        prepared = self._prepare(map_)
        found = [
            Match(item.name, item.value, to_metres(item.pose, prepared, self._maps[item.name]))
            for item in self._rank(prepared, exclude, priors)[: _limit(max_matches, most)]
        ]
        self._fields.release()
        return found

    def closures(
        self,
        map_: GPGMap,
        max_matches: int = 5,
        exclude: Collection[SubmapKey] = (),
        priors: Priors | None = None,
        among: Collection[SubmapKey] | None = None,
        tilts: Mapping[SubmapKey, float] | None = None,
        *,
        most: int | None = None,
    ) -> list[tuple[SubmapKey, Registration]]:
        """The best matches registered in full, most probable first: (name, pose of the map in that submap).

        priors: as for `query`; a pose that was expected needs less evidence
        among: the only submaps that are considered; all of them unless given. Unknown names are passed over
        tilts: radians, standard deviation of roll and pitch between the map and submaps where it is more than usual
        most: deprecated name of `max_matches`
        """
        prepared, priors = self._prepare(map_), priors or {}
        ranked = self._rank(prepared, exclude, priors, among)[: _limit(max_matches, most)]
        found = [
            (
                item.name,
                register_maps(
                    prepared,
                    self._maps[item.name],
                    self._config_for((tilts or {}).get(item.name, 0.0)),
                    priors.get(item.name),
                    self._similarity,
                ),
            )
            for item in ranked
        ]
        self._fields.release()
        return sorted(found, key=lambda item: (not item[1].accepted, -item[1].probability))

    def _config_for(self, tilt_std: float) -> ClosureConfig:
        """The settings for two maps whose verticals differ by so much, in radians, if that is more than usual."""
        degrees = min(float(np.degrees(tilt_std)), MAX_TILT_STD)
        return replace(self.config, tilt_std=degrees) if degrees > self.config.tilt_std else self.config

    def merge(
        self,
        other: ClosureDatabase,
        prefix: str = "",
        names: Mapping[SubmapKey, SubmapKey] | None = None,
    ) -> None:
        """Take over the submaps of another session. All of them or none.

        prefix: their new name is this and the old one; names: or their new names by the old ones
        """
        renamed = {name: names[name] if names is not None else f"{prefix}{name}" for name in other}
        clashes = [name for name, new in renamed.items() if new in self._maps]
        if clashes:
            raise DatabaseError(
                f"{len(clashes)} submaps have the same name in both databases, '{clashes[0]}' for one: "
                "give a prefix, such as the robot's name"
            )
        for map_ in other._maps.values():
            self._check_resolution(map_)
        self._maps |= {renamed[name]: map_ for name, map_ in other._maps.items()}

    def save(self, path: Path | str) -> None:
        """Write everything to one file, atomically. DatabaseError where the disk refuses."""
        write_database(Path(path), self._maps)

    @classmethod
    def load(cls, path: Path | str, config: ClosureConfig | None = None) -> ClosureDatabase:
        """Read a file that `save` wrote; DatabaseError where it is damaged or of another version."""
        path = Path(path)
        database = cls(config)
        database._maps.update(
            {name: database._fields.take(map_) for name, map_ in read_database(path).items()}
        )
        database._fields.release()
        try:
            for map_ in database._maps.values():
                database._check_resolution(map_)
        except NotComparable as error:
            raise meaningless(path, error) from error
        return database

    def _check_resolution(self, map_: RegistrationMap) -> None:
        for known in self._maps.values():
            if not same_resolution(map_.resolution, known.resolution):
                raise NotComparable(
                    f"the map has cells of {map_.resolution:g} m, those in the database {known.resolution:g} m"
                )
            return

    def _prepare(self, map_: GPGMap) -> RegistrationMap:
        prepared = make_registration_map(map_, self.config)
        self._check_resolution(prepared)
        return prepared

    def _rank(
        self,
        map_: RegistrationMap,
        exclude: Collection[SubmapKey],
        priors: Priors | None,
        among: Collection[SubmapKey] | None = None,
    ) -> list[RankedSubmap]:
        names = self._maps if among is None else [name for name in among if name in self._maps]
        targets = {name: self._maps[name] for name in names if name not in exclude}
        return self._ranking.rank(map_, targets, priors or {})


def _limit(max_matches: int, most: int | None) -> int:
    if most is None:
        return max_matches
    warnings.warn(
        "the argument `most` is deprecated and will be removed in version 0.3: use max_matches",
        DeprecationWarning,
        stacklevel=3,
    )
    return most
