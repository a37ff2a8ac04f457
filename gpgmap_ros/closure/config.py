"""Settings of the loop closure. One set serves all terrains: lengths are in cells, heights relative to the relief."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gpgmap_ros.config import check_value, setting


@dataclass(frozen=True)
class ClosureConfig:
    """How submaps are compared, and what it takes to believe that two show the same ground."""

    use_gradient: bool = setting(
        True, "compare gradients as well as heights; off only to measure what they bring"
    )
    use_variance: bool = setting(
        True, "weight cells by the maps' variances; off only to measure what they bring"
    )
    yaw_step: float = setting(5.0, "step of the yaws that the search tries", "deg", low=0.5, high=15.0)
    search_cells: int = setting(
        36, "the search shrinks a map until it is at most this wide", "cells", low=8, high=200
    )
    detail_cells: float = setting(6.0, "detail is relief finer than this", "cells", low=2.0, high=100.0)
    candidates: int = setting(12, "poses kept from each of the two searches", low=1, high=100)
    min_overlap: float = setting(
        0.2, "least shared part of the smaller map, for a pose to be looked at", low=0.02, high=1.0
    )
    min_cells: int = setting(100, "a map with fewer well observed cells is refused", low=20, high=10**6)
    tilt_std: float = setting(
        2.0, "standard deviation of the error in roll and pitch between two maps", "deg", low=0.01, high=20.0
    )
    common_error: float = setting(
        0.05,
        "standard deviation of the position errors that a whole map shares and no residual shows: of georeference, "
        "sensor mount, drift within a submap",
        "m",
        low=0.0,
        high=10.0,
    )
    threads: int = setting(2, "threads that share one registration or query", low=1, high=64)
    accept_probability: float = setting(
        0.95, "a closure is accepted when it is at least this probable", low=0.5, high=1.0
    )

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = check_value(f"closure.{item.name}", getattr(self, item.name), item.default, item.metadata)
            object.__setattr__(self, item.name, value)
