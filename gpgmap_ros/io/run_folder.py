"""A run on disk: where each result of `gpgmap replay` and `gpgmap map` lies, for those who write and who read it.

run.json                what was used, what happened, what was lost; written first and again at the end
config.yaml             the effective settings
trajectory.txt          where the robot was, corrected by the closures (TUM format)
trajectory_utm.txt      the same in UTM, where GPS fixes say where the map is
odometry.txt            where the recording says it was (TUM format)
submaps/                finished submaps
closures.g2o, .json     the pose graph; every comparison of two submaps with its verdict
closures.npz            the same for programs: to localise in the run, merge it, or go on with it
map.npz                 all layers of the map
layers/                 each layer as GeoTIFF and PNG
item.json               of a survey: the GeoTIFFs as a STAC item, for catalogues
report.html             everything to look at
report_tiles/           what the page shows of a large survey as the reader zooms in
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpgmap_ros.config import Config
from gpgmap_ros.config.yaml import load_config, save_config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import read_map_npz
from gpgmap_ros.mapping import GPGMap, SubmapStore
from gpgmap_ros.storage.atomic import write_json

if TYPE_CHECKING:
    from gpgmap_ros.io.trajectory import Trajectory

MAX_BYTES = 256 << 20
"""Of a JSON file that is read: tens of thousands of comparisons."""


class RunError(ValueError):
    """A folder that is not a run, or lacks what is asked for: which, and what to do."""


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
    def trajectory_utm(self) -> Path:
        return self.path / "trajectory_utm.txt"

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
    def session(self) -> Path:
        return self.path / "closures.npz"

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
    def item(self) -> Path:
        return self.path / "item.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def tiles(self) -> Path:
        return self.path / "report_tiles"

    def begin(self, summary: dict[str, Any], config: Config) -> None:
        write_json(self.summary, {**summary, "status": "running"})
        save_config(config, self.config)

    # -- reading -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """RunError where this is not a run."""
        if not self.summary.is_file():
            raise RunError(
                f"{self.path}: not a gpgmap run: it has no run.json; name the folder given to --out"
            )

    def read_summary(self) -> dict[str, Any]:
        """RunError where it is damaged, or not one that a run has written."""
        self.check()
        found = _read_json(self.summary)
        if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
            raise RunError(
                f"{self.summary}: damaged: it does not say what kind of run it is of; run it again"
            )
        return found

    def read_config(self) -> Config:
        return load_config(self.config) if self.config.exists() else Config()

    def read_map(self) -> tuple[GPGMap, Crs]:
        self.check()
        if not self.map.exists() and (self.layers / "elevation.vrt").exists():
            raise RunError(
                f"{self.path}: its map is too large for one file in memory: it is in sheets, see"
                f" {self.layers / 'elevation.vrt'}"
            )
        if not self.map.exists():
            raise RunError(f"{self.path}: it contains no map: the run ended before one was made")
        return read_map_npz(self.map, self.read_config())

    def read_trajectory(self, corrected: bool = True) -> Trajectory:
        from gpgmap_ros.io.trajectory import read_tum  # brings the whole SLAM loop with it: 0.6 s

        self.check()
        return read_tum(self.trajectory if corrected else self.odometry)

    def read_closures(self) -> list[dict[str, Any]]:
        self.check()
        if not self.closures.exists():
            raise RunError(f"{self.path}: it contains no closures")
        found = _read_json(self.closures)
        if not isinstance(found, list):
            raise RunError(f"{self.closures}: damaged: it is not a list of comparisons; run it again")
        for number, row in enumerate(found):
            _check_closure(row, f"{self.closures}: damaged: comparison {number}")
        return found

    def open_submaps(self) -> SubmapStore:
        self.check()
        return SubmapStore(self.submaps, self.read_config())


def _read_json(path: Path) -> Any:
    """What a file of a run holds; RunError where it is not what `write_json` writes."""
    remedy = "run it again"
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            raise RunError(
                f"{path}: not a file of a run: larger than {MAX_BYTES >> 20} MB, or not a file; {remedy}"
            )
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise RunError(f"{path}: damaged: it is nested too deeply; {remedy}") from None
    except RunError:
        raise
    except ValueError as error:
        raise RunError(f"{path}: damaged: {error}; {remedy}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _check_closure(row: Any, where: str) -> None:
    """RunError unless this is a comparison of two submaps as `closures.json` has them."""
    if not isinstance(row, dict):
        raise RunError(f"{where} has no fields; run it again")
    for name, kind in (("a", int), ("b", int), ("accepted", bool), ("T_a_b", list)):
        if not isinstance(row.get(name), kind):
            raise RunError(f"{where} has no readable '{name}'; run it again")
    try:
        T = np.array(row["T_a_b"], dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        T = np.empty(0)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise RunError(f"{where} has a 'T_a_b' that is not a pose; run it again")
