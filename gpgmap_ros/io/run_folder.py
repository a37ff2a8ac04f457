"""A run on disk: where each result of `gpgmap replay` and `gpgmap map` lies, for those who write and who read it.

run.json                what was used, what happened, what was lost; written first and again at the end
config.yaml             the effective settings
trajectory.txt          where the robot was, corrected by the closures (TUM format)
odometry.txt            where the recording says it was (TUM format)
submaps/                finished submaps
closures.g2o, .json     the pose graph; every comparison of two submaps with its verdict
map.npz                 all layers of the map
layers/                 each layer as GeoTIFF and PNG
report.html             everything to look at
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpgmap_ros.config import Config
from gpgmap_ros.config_file import load_config, save_config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import read_map_npz
from gpgmap_ros.io.staged import write_json
from gpgmap_ros.io.trajectory import Trajectory, read_tum
from gpgmap_ros.mapping import GPGMap, SubmapStore


class RunError(ValueError):
    """A folder that is no run, or lacks what is asked of it: which, and what to do."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def summary(self) -> Path:
        return self.path / "run.json"

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def trajectory(self) -> Path:
        return self.path / "trajectory.txt"

    @property
    def odometry(self) -> Path:
        return self.path / "odometry.txt"

    @property
    def submaps(self) -> Path:
        return self.path / "submaps"

    @property
    def graph(self) -> Path:
        return self.path / "closures.g2o"

    @property
    def closures(self) -> Path:
        return self.path / "closures.json"

    @property
    def map(self) -> Path:
        return self.path / "map.npz"

    @property
    def layers(self) -> Path:
        return self.path / "layers"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def begin(self, summary: dict[str, Any], config: Config) -> None:
        write_json(self.summary, {**summary, "status": "running"})
        save_config(config, self.config)

    # -- reading -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """RunError where this is no run."""
        if not self.summary.is_file():
            raise RunError(f"{self.path}: no run of gpgmap: there is no run.json in it")

    def read_summary(self) -> dict[str, Any]:
        self.check()
        try:
            return dict(json.loads(self.summary.read_text()))
        except ValueError as error:
            raise RunError(f"{self.summary}: damaged: {error}") from error

    def read_config(self) -> Config:
        return load_config(self.config) if self.config.exists() else Config()

    def read_map(self) -> tuple[GPGMap, Crs]:
        self.check()
        if not self.map.exists():
            raise RunError(f"{self.path}: there is no map in it: the run ended before one was made")
        return read_map_npz(self.map, self.read_config())

    def read_trajectory(self, corrected: bool = True) -> Trajectory:
        self.check()
        return read_tum(self.trajectory if corrected else self.odometry)

    def read_closures(self) -> list[dict[str, Any]]:
        self.check()
        if not self.closures.exists():
            raise RunError(f"{self.path}: there are no closures in it")
        return list(json.loads(self.closures.read_text()))

    def open_submaps(self) -> SubmapStore:
        self.check()
        return SubmapStore(self.submaps, self.read_config())
