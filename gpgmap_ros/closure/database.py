"""The submaps seen so far: which of them show the ground of a new one, roughly where and at what yaw?

A query compares slopes with every submap at all yaws and shifts, as the first step of a registration does but on a
coarser canvas, and fits the best poses roughly (ranking.py), so that a thousand submaps take about a second. There is
no descriptor that could miss a partial overlap. The best ones are then registered in full.

A database is one file. It is written beside the old one and moved into its place, so that a crash leaves the old
one; it carries its format's version and a checksum.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.prior import PosePrior
from gpgmap_ros.closure.ranking import Ranked, Ranking
from gpgmap_ros.closure.registration import Registration, in_metres, register_surfaces
from gpgmap_ros.closure.surface import FIELDS, NotComparable, Surface, surface_of
from gpgmap_ros.closure.surface_check import check_fields, check_surface
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.archive import shortened
from gpgmap_ros.storage.atomic import atomic_write
from gpgmap_ros.storage.untrusted import array_sizes, check_declared, open_regular, read_array

Array = NDArray[np.float64]

MAGIC: Final = b"GPGMAP-CLOSURE\n"
VERSION: Final = 1
HEADER: Final = struct.Struct("<IQ32s")  # version, length of the content, its SHA-256
ARRAYS = (*FIELDS, "origin", "centre")
NAMES = "names"
NUMBERS = ("resolution", "base", "radius", "area")


class DatabaseError(RuntimeError):
    """A database can't be read, written or merged: why, and what to do."""


@dataclass(frozen=True)
class Match:
    """A submap that may show the ground of the query.

    name: of the submap; likelihood: of the best pose against unrelated ground, comparable within one query
    T_target_source: rough pose (4, 4) of the query's frame in the submap's: right to a cell or two if it is right
    """

    name: str
    likelihood: float
    T_target_source: Array


class ClosureDatabase:
    """Submaps by name, all of one resolution.

    config: how submaps are compared; the default unless told
    """

    def __init__(self, config: ClosureConfig | None = None) -> None:
        self.config = config or ClosureConfig()
        self._surfaces: dict[str, Surface] = {}
        self._ranking = Ranking(self.config)

    def __len__(self) -> int:
        return len(self._surfaces)

    def __contains__(self, name: str) -> bool:
        return name in self._surfaces

    def __iter__(self) -> Iterator[str]:
        return iter(self._surfaces)

    def add(self, name: str, map_: GPGMap) -> None:
        """Remember a finished submap. NotComparable where no place can be recognised in it."""
        if name in self._surfaces:
            raise ValueError(f"there is a submap '{name}' already: remove it first")
        self._surfaces[name] = self._surface_of(map_)

    def remove(self, name: str) -> None:
        """Forget a submap."""
        if name not in self._surfaces:
            raise KeyError(f"there is no submap '{name}'")
        del self._surfaces[name]
        self._ranking.forget(name)

    def query(
        self,
        map_: GPGMap,
        most: int = 10,
        exclude: Collection[str] = (),
        priors: Mapping[str, PosePrior] | None = None,
    ) -> list[Match]:
        """The submaps most like this map, best first, at most `most`; those named in `exclude` are not looked at.

        priors: where the map's frame is thought to be in some of the submaps'; only there it is looked for
        """
        surface = self._surface_of(map_)
        return [
            Match(item.name, item.value, in_metres(item.pose, surface, self._surfaces[item.name]))
            for item in self._ranked(surface, exclude, priors)[:most]
        ]

    def closures(
        self,
        map_: GPGMap,
        most: int = 5,
        exclude: Collection[str] = (),
        priors: Mapping[str, PosePrior] | None = None,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, Registration]]:
        """The best matches registered in full, most probable first: (name, pose of the map in that submap).

        priors: as for `query`; a pose that was expected needs less evidence
        among: the only submaps that are looked at; all of them unless told. Names that are not known are passed over
        """
        surface, priors = self._surface_of(map_), priors or {}
        names = [item.name for item in self._ranked(surface, exclude, priors, among)[:most]]
        found = [
            (name, register_surfaces(surface, self._surfaces[name], self.config, priors.get(name)))
            for name in names
        ]
        return sorted(found, key=lambda item: (not item[1].accepted, -item[1].probability))

    def merge(self, other: ClosureDatabase, prefix: str = "") -> None:
        """Take over the submaps of another session, named `prefix` + their name. All of them or none."""
        clashes = [name for name in other if prefix + name in self._surfaces]
        if clashes:
            raise DatabaseError(
                f"{len(clashes)} submaps have the same name in both databases, '{clashes[0]}' for one: "
                "give a prefix, such as the robot's name"
            )
        for surface in other._surfaces.values():
            self._check_resolution(surface)
        self._surfaces |= {prefix + name: surface for name, surface in other._surfaces.items()}

    def save(self, path: Path | str) -> None:
        """Write everything to one file; the old file stays until the new one is complete."""
        path = Path(path)
        names = list(self._surfaces)
        arrays: dict[str, NDArray[np.generic]] = {}
        for k, surface in enumerate(self._surfaces.values()):
            arrays |= {f"{k}/{name}": getattr(surface, name) for name in ARRAYS}
            arrays[f"{k}/numbers"] = np.array([getattr(surface, name) for name in NUMBERS])
        arrays[NAMES] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)  # type: ignore[arg-type]
        content = buffer.getbuffer()
        header = HEADER.pack(VERSION, len(content), hashlib.sha256(content).digest())
        try:
            with atomic_write(path) as file:
                for part in (MAGIC, header, content):
                    file.write(part)
        except OSError as error:
            raise DatabaseError(f"{path}: can't be written: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path | str, config: ClosureConfig | None = None) -> ClosureDatabase:
        """Read a file that `save` wrote; DatabaseError where it is damaged or of another version."""
        path = Path(path)
        content = checked_content(path)
        database = cls(config)
        try:
            database._surfaces = surfaces_in(content)
            for surface in database._surfaces.values():
                database._check_resolution(surface)
        except Exception as error:  # a content made by others can make the readers raise anything
            reason = shortened(error) or type(error).__name__
            raise DatabaseError(
                f"{path}: its content makes no sense: {reason}. Restore it from a copy"
            ) from error
        return database

    def _check_resolution(self, surface: Surface) -> None:
        for known in self._surfaces.values():
            if abs(np.log(surface.resolution / known.resolution)) > 1e-3:
                raise NotComparable(
                    f"the map has cells of {surface.resolution:g} m, those in the database {known.resolution:g} m"
                )
            return

    def _surface_of(self, map_: GPGMap) -> Surface:
        surface = surface_of(map_, self.config)
        self._check_resolution(surface)
        return surface

    def _ranked(
        self,
        surface: Surface,
        exclude: Collection[str],
        priors: Mapping[str, PosePrior] | None,
        among: Collection[str] | None = None,
    ) -> list[Ranked]:
        names = self._surfaces if among is None else [name for name in among if name in self._surfaces]
        targets = {name: self._surfaces[name] for name in names if name not in exclude}
        return self._ranking.ranked(surface, targets, priors or {})


def surfaces_in(content: bytes) -> dict[str, Surface]:
    """The surfaces of a database by name; any error where they are none."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # nothing in it is compressed
        check_declared(archive, len(content))
        sizes = array_sizes(archive)
        names = json.loads(read_array(archive, NAMES).tobytes())
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("its names are no list of texts")
        if len(set(names)) != len(names):
            raise ValueError("two of its submaps have the same name")
        if len(sizes) != 1 + len(names) * (1 + len(ARRAYS)):
            raise ValueError(f"it has {len(sizes)} arrays for {len(names)} submaps")
        surfaces = {}
        for k, name in enumerate(names):
            values = read_array(archive, f"{k}/numbers")
            if values.shape != (len(NUMBERS),) or values.dtype != np.float64:
                raise ValueError(f"submap '{shortened(name)}': its numbers are {values.dtype} {values.shape}")
            arrays = {key: read_array(archive, f"{k}/{key}") for key in ARRAYS}
            try:
                check_fields(arrays)
                surface = Surface(**arrays, **dict(zip(NUMBERS, values.tolist(), strict=True)))
                check_surface(surface)
            except ValueError as error:
                raise ValueError(f"submap '{shortened(name)}': {error}") from error
            surfaces[name] = surface
    return surfaces


def checked_content(path: Path) -> bytes:
    """The content of a database file, after its checks."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except OSError as error:
        raise DatabaseError(f"{path}: can't be read: {error.strerror or error}") from error
    if not data.startswith(MAGIC):
        raise DatabaseError(f"{path}: not a database of submaps")
    start = len(MAGIC) + HEADER.size
    if len(data) < start:
        raise DatabaseError(f"{path}: damaged: it ends within its header. Restore it from a copy")
    version, length, digest = HEADER.unpack(data[len(MAGIC) : start])
    if version != VERSION:
        raise DatabaseError(
            f"{path}: written in version {version} of the format, this program reads version {VERSION}"
        )
    content = data[start:]
    if len(content) != length or hashlib.sha256(content).digest() != digest:
        raise DatabaseError(
            f"{path}: damaged: {len(content)} of {length} bytes, the checksum does not match. Restore it from a copy"
        )
    return content
