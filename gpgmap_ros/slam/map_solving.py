"""Solving the map in one thread while clouds are fused in another: what goes from one to the other."""

from __future__ import annotations

from dataclasses import dataclass

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import ElevationMap, GPGMap
from gpgmap_ros.mapping.gate import PosteriorSnapshot, take_snapshot


@dataclass(frozen=True)
class SolvedMap:
    """A map, and the surface that clouds are compared with."""

    elevation_map: ElevationMap
    gpgmap: GPGMap
    surface: PosteriorSnapshot


@dataclass(frozen=True)
class MapToSolve:
    """What `MappingPipeline.map_to_solve` gave. stamp: of the newest data, nanoseconds"""

    elevation_map: ElevationMap
    config: Config
    stamp: int

    def solve(self) -> SolvedMap:
        """The map of all points. What takes longer and only makes it surer may be left to `renew`."""
        self.elevation_map.posterior(prompt=True)
        return self._solved()

    def renew(self) -> SolvedMap | None:
        """The same map with the variances and the noise of all points; None where `solve` has left nothing."""
        if not self.elevation_map.renew():
            return None
        self.elevation_map.posterior(prompt=True)
        return self._solved()

    def _solved(self) -> SolvedMap:
        surface = take_snapshot(self.elevation_map, self.stamp, closely=False)
        gpgmap = self.elevation_map.gpgmap(self.config.map_frame, self.stamp, self.config, prompt=True)
        return SolvedMap(self.elevation_map, gpgmap, surface)
