"""What a first start compiles, and what later ones take: seconds, cold and warm, and the dearest functions.

python benchmark/first_start.py [--functions 12]

Each row is a process of its own: cold with an empty cache folder, warm with what the cold one left there. CPU is
that of the processes that it starts as well; its own is how long the start takes on idle cores, since what it
starts has less to do. Wall time means little beside other work. With a second core the node has the loops of
submaps, and those that draw cells, compiled beside; the functions are those of a node with one. The closures run in
a process beside the node and start after the mapping has been compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

STARTS = {
    "first GridGP map": """
import numpy as np
from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF
gp = GridGP(Grid((0.0, 0.0), (60, 60), 0.1), RBF(0.5), 1e-3)
xy = np.random.default_rng(0).uniform(0.0, 6.0, (5000, 2))
gp.update(xy, np.sin(xy[:, 0]))
gp.posterior()
""",
    "node (compile_mapping)": """
from gpgmap_ros.config import Config
from gpgmap_ros.slam.first_start import compile_mapping
compile_mapping(Config())
""",
    "node with one core": """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from gpgmap_ros.config import Config
from gpgmap_ros.slam.first_start import compile_mapping
compile_mapping(Config())
""",
    "process of the loop closures": """
from gpgmap_ros.slam.closure_warm_up import warm_up
warm_up()
""",
}

PROGRAM = """
import time
begin = time.monotonic()
import json, os
from numba.core.event import Listener, register

class Times(Listener):
    def __init__(self):
        self.inner, self.rows = [], []
    def on_start(self, event):
        self.inner.append([time.process_time(), 0.0])
    def on_end(self, event):
        begin, nested = self.inner.pop()
        whole = time.process_time() - begin
        if self.inner:
            self.inner[-1][1] += whole
        function = event.data["dispatcher"].py_func
        self.rows.append((f"{{function.__module__}}.{{function.__qualname__}}", whole - nested))

times = Times()
register("numba:compile", times)
{start}
used = os.times()
print(json.dumps({{
    "cpu": sum(used[:4]), "own": sum(used[:2]), "wall": time.monotonic() - begin, "rows": times.rows,
}}))
"""


def measure(start: str, cache: Path) -> dict[str, Any]:
    """Run a start with this cache folder: seconds of CPU and of wall time, (function, seconds) of all it compiled."""
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(cache), PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start)],
        env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", type=int, default=12, help="rows of the table of functions")
    arguments = parser.parse_args()
    seconds: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, start in STARTS.items():
            # The closures find the mapping compiled, as beside a node.
            cache = Path(folder) / ("node_with_one_core" if "closures" in name else name.replace(" ", "_"))
            cold, warm = measure(start, cache), measure(start, cache)
            print(
                f"{name:<30} cold {cold['cpu']:5.1f} s CPU, {cold['own']:5.1f} own, {cold['wall']:5.1f} s, "
                f"{len(cold['rows']):3d} functions; "
                f"warm {warm['cpu']:4.1f} s CPU, {warm['wall']:4.1f} s, {len(warm['rows'])} functions",
                flush=True,
            )
            if "one core" in name or "closures" in name:
                for function, own in cold["rows"]:
                    seconds[function] += own
                    forms[function] += 1
    print("\nseconds  forms  function (node and closures, without what it calls)")
    for function, own in seconds.most_common(arguments.functions):
        print(f"{own:7.2f}  {forms[function]:5d}  {function}")


if __name__ == "__main__":
    main()
