"""Requests to the loop closures and their answers: the same whether they run here, in a thread or in a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.arrays import Array
from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submaps import Submap


@dataclass(frozen=True)
class Start:
    """The first request.

    folder: where submaps and closures are kept, None if nowhere
    before: submaps in the folder with smaller numbers are read at once, the others when `Add` names them
    """

    config: Config
    folder: Path | None
    before: int


@dataclass(frozen=True)
class Add:
    """A finished submap: the one of that number in the folder, or `submap` itself where it is not stored.

    own: of this robot; those of others wait until there is one, so that this robot's frame is the map's
    """

    id: int
    submap: Submap | None
    own: bool = True


@dataclass(frozen=True)
class Reject:
    """Take the closure between two submaps out. token: returned with the answer."""

    a: int
    b: int
    token: int


@dataclass(frozen=True)
class MakeGlobalMap:
    """Stitch all submaps that are in one frame with the newest."""


@dataclass(frozen=True)
class Restored:
    """What earlier runs left in the folder, said before anything is compared.

    submaps, drives: that are there; closures: between them, that are in the graph
    waiting: submaps that have not been compared yet; that is done now
    """

    submaps: int
    drives: int
    closures: int
    waiting: int


@dataclass(frozen=True)
class CatchingUp:
    """How many submaps of earlier runs are still to be compared."""

    waiting: int


@dataclass(frozen=True)
class Update:
    """What is known after a submap came or a closure went, or of what earlier runs left.

    complete: ids, poses, pairs, accepted, stamps and track are all that there are; else they follow those of the
        updates before (`GraphView` puts them together, so that receivers always get complete ones)
    earlier: this is about drives of earlier runs only, nothing has come in this one
    compared: what the submap was compared with, empty after a rejection
    news: closures that are in the graph since this run began and were not told yet: one may be believed only later
    ids, poses: (N,) and (N, 4, 4) T_map_submap of the submaps that are in one frame with the newest
    pairs, accepted: (M, 2) and (M,) of the closures whose registration was accepted: are they in the graph?
    stamps, track: (K,) and (K, 4, 4) the newest drive, corrected, and thinned to `MAX_TRACK` where they are complete
    recorded: how many poses the drive has before thinning; T_map_odom: its correction now
    located: the newest drive is in the frame of the first one in the folder
    count: comparisons so far; seconds: that this took; problem: why poses are not corrected
    """

    complete: bool
    earlier: bool
    compared: list[LoopClosure]
    news: list[LoopClosure]
    newest: int
    ids: NDArray[np.int64]
    poses: Array
    pairs: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    stamps: NDArray[np.int64]
    track: Array
    recorded: int
    T_map_odom: Array
    located: bool
    count: int
    skipped: int
    seconds: float
    problem: str


@dataclass(frozen=True)
class Rejected:
    """The answer to `Reject`."""

    token: int
    done: bool
    message: str


@dataclass(frozen=True)
class GlobalMap:
    """The answer to `MakeGlobalMap`: the map, or why there is none."""

    gpgmap: GPGMap | None
    problem: str
    seconds: float


@dataclass(frozen=True)
class Problem:
    """Something that went wrong; the work goes on."""

    text: str


@dataclass(frozen=True)
class Done:
    """A request has been dealt with; follows its other answers."""


Answer = Restored | CatchingUp | Update | Rejected | GlobalMap | Problem
Request = Add | Reject | MakeGlobalMap
