"""What a second of a processor goes into while a survey is mapped, step by step, in one process on one core.

python benchmark/survey_profile.py --points 3000000 --resolution 0.5

Each step is timed in seconds of the processor without the steps inside it, so that they add up to the whole. The
process that decodes LAZ is named beside it: its time is not in the others.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
APPS, MAPPING = "gpgmap_ros.apps", "gpgmap_ros.mapping"
STEPS = (
    ("headers, samples, plan", f"{APPS}.survey_files", "scan_files"),
    ("reading and adding points", f"{APPS}.survey_points", "sum_points"),
    ("learning the noise", f"{APPS}.survey_solve", "learn_survey_noise"),
    ("reading tiles from scratch", f"{APPS}.survey_tasks", "load_tiles"),
    ("cutting the sums of a window out", f"{MAPPING}.survey_window", "restore_window"),
    ("dissection", "gp_core.grid.markov.surface", "Pane.update"),
    ("height and slope at the cells", "gp_core.grid.markov.surface", "MarkovSurface.draw_cells"),
    ("residuals by block", "gp_core.grid.grid_gp", "residual_squares"),
    ("local scale", "gp_core.grid.grid_gp", "estimate_scale"),
    ("layers, limits, trend of a window", f"{APPS}.survey_tasks", "solve_window"),
    ("overview with traversability", f"{APPS}.survey_tasks", "shrink_window"),
    ("writing windows to scratch", f"{APPS}.survey_tasks", "write_scratch"),
    ("GeoTIFFs", f"{APPS}.survey_run", "write_layer"),
    ("map.npz", f"{APPS}.survey_run", "write_npz"),
    ("pictures", f"{APPS}.survey_overview", "Overview.write_pictures"),
    ("quick look", f"{APPS}.survey_run", "write_pyramid"),
    ("report", f"{APPS}.survey_run", "encode_overview"),
    ("report", f"{APPS}.survey_run", "write_survey_report"),
)
REST = "imports, tables, compiled code, the rest"


class Clock:
    """Seconds of the processor by step, of each without those inside it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inside = [0.0]

    def timed(self, title: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            self._inside.append(0.0)
            begin = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                whole = time.process_time() - begin
                self.spent[title] = self.spent.get(title, 0.0) + whole - self._inside.pop()
                self._inside[-1] += whole

        return call

    def watch(self, title: str, module: str, name: str) -> None:
        """Time a function, or a method, where that module finds it."""
        *owner, last = name.split(".")
        place = functools.reduce(getattr, owner, import_module(module))
        setattr(place, last, self.timed(title, getattr(place, last)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=3_000_000)
    parser.add_argument("--resolution", type=float, default=0.5, help="of a cell, metres")
    arguments = parser.parse_args()
    import numpy as np
    from survey import make_tiles

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        tiles = make_tiles(Path(name) / "tiles", arguments.points, np.random.default_rng(0))
        begin = time.process_time()
        from gpgmap_ros.cli.main import main as gpgmap

        clock = Clock()
        for step in STEPS:
            clock.watch(*step)
        sys.argv = ["gpgmap", "map", *map(str, tiles), "--out", f"{name}/out", "--scheduler", "local",
                    "--crs", "EPSG:32611", "--set", f"mapping.resolution={arguments.resolution}"]  # fmt: skip
        with contextlib.suppress(SystemExit):
            gpgmap()
        whole = time.process_time() - begin
        summary = json.loads(Path(f"{name}/out/run.json").read_text())
    print_shares(summary, clock.spent, whole, arguments)


def print_shares(
    summary: dict[str, Any], spent: dict[str, float], whole: float, arguments: argparse.Namespace
) -> None:
    cells = summary["map"]["known_m2"] / arguments.resolution**2
    decoding = (
        arguments.points / summary["points"]["per_processor_second"] - spent["reading and adding points"]
    )
    print(f"{arguments.points:,} points, {arguments.points / cells:.1f} for each of {cells:,.0f} known cells of"
          f" {arguments.resolution:g} m: {whole:.1f} s of the processor, and {decoding:.1f} s of the process that"
          f" decodes; load of the machine {os.getloadavg()[0]:.1f}")  # fmt: skip
    spent = {**spent, REST: whole - sum(spent.values())}
    for title, seconds in spent.items():
        print(
            f"  {seconds / whole:6.1%}  {seconds:6.2f} s  {seconds / cells * 1e6:6.2f} us per known cell  {title}"
        )


if __name__ == "__main__":
    main()
