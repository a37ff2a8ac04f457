"""gpgmap compile, with nothing compiled: by whom what is compiled, and that nothing is left for the first start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LISTEN = """
import json
from numba.core.event import Listener, register

class Compiled(Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

register("numba:compile", Compiled())
"""
COMPILE = """
from gpgmap_ros.cli import main
main(["compile"])
print(json.dumps(Compiled.names))
"""
RUN = """
import numpy as np
from returning_drive import PARAMETERS, ReturningDrive
from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.closure.retrieval.kept_search import KeptSearch
from gpgmap_ros.mapping.stitching import stitch
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

mount = np.eye(4)
mount[:3, 3] = 0.2, 0.0, 0.1
submaps = []
for filters, laps in (({}, 1.25), ({"filter.voxel_size": 0.1, "filter.lowest_surface": True}, 0.1)):
    config = with_settings(Config(), {**PARAMETERS, "gate.enabled": True, **filters})
    pipeline = MappingPipeline(config)
    for k, step in enumerate(ReturningDrive(laps=laps, step=1.5)):
        points = step.points.astype(np.float32 if k % 3 else np.float64)
        known = {"pose_covariance": 1e-6 * np.eye(6), "T_base_sensor": mount} if k % 2 else {}
        report = pipeline.add_cloud(points, step.T_odom_robot, step.stamp, **known)
        if report.submap is not None and not filters:
            submaps.append(report.submap)
    dict(pipeline.gpgmap().layers)
closer = LoopCloser(config.closure)
compared = [closure for submap in submaps for closure in closer.add(submap)]
maps = {k: make_registration_map(submap.gpgmap, config.closure) for k, submap in enumerate(submaps)}
SelfSimilarity(config.closure).measure(maps[0])
KeptSearch(config.closure, 24, 8.0, 100).poses(maps[0], maps, {}, 4, max_targets=1)
stitch(submaps, closer.poses, config)
print(json.dumps([len(compared), Compiled.names]))
"""
MAP = """
import sys
import numpy as np
from gpgmap_ros.cli import main
from gpgmap_ros.mapping import gpgmap_from_points

rng = np.random.default_rng(1)
xy = rng.uniform(0.0, 60.0, (24_000, 2))
waves = sum(np.sin(xy @ rng.normal(0.0, 1.2, 2) + rng.uniform(0.0, 6.3)) for _ in range(40))
points = np.column_stack([xy, 0.1 * waves])
np.savez(sys.argv[1] + "/points.npz", xyz=points)
main(["map", sys.argv[1] + "/points.npz", "--out", sys.argv[1] + "/map", "--set", "mapping.resolution=1"])
gpgmap_from_points(points, 1.0)
with np.load(sys.argv[1] + "/map/map.npz") as file:
    known = int(np.isfinite(file["elevation"]).sum())
print(json.dumps([known, Compiled.names]))
"""


@pytest.mark.slow
def test_after_it_neither_mapping_nor_closures_nor_surveys_compile_anything(
    executables: Path, root: Path, tmp_path: Path
) -> None:
    environment = dict(
        os.environ, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=str(root / "test" / "ros")
    )

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        # no limit but pytest's own: beside other work, compiling takes as many minutes as there are other processes
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
        return result

    first = run(sys.executable, "-c", LISTEN + COMPILE)
    assert "compiling the inner loops for this CPU" in first.stderr
    by_itself = set(json.loads(first.stdout.splitlines()[-1]))
    assert {"eliminate", "substitute"} <= by_itself  # of the map
    if len(os.sched_getaffinity(0)) > 1:  # by the process beside
        assert not {"_mean_row", "_variance_row"} & by_itself  # of submaps
    drawing = list((tmp_path / "cache").rglob("evaluation.at_cells-*.nbc"))
    assert len(drawing) == 1, "an empty map is drawn by the same form as any other"
    assert list((tmp_path / "cache").rglob("*.kept.npz"))
    compared, names = json.loads(run(sys.executable, "-c", LISTEN + RUN).stdout)
    assert compared > 0
    assert names == []
    known, names = json.loads(run(sys.executable, "-c", LISTEN + MAP, str(tmp_path)).stdout.splitlines()[-1])
    assert known > 3000
    assert names == []
    second = run(str(executables / "gpgmap"), "compile", "--json")
    assert "inner loops" not in second.stderr
    assert set(json.loads(second.stdout)["seconds"]) == {"mapping", "loop closure", "surveys"}
