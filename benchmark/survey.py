"""How fast a survey of LAZ tiles is mapped: by one process, by two workers of Dask, and by others.

python benchmark/survey.py                         10 million points
python benchmark/survey.py --points 100000000      the full size
python benchmark/survey.py --only rates workers    some of: rates, overhead, workers, memory, peers

The points are those of als_blanca.npz, replicated side by side, with noise, as LAZ tiles in a temporary folder. Each
figure compares runs that were made right after each other, or side by side; on a machine that does other work only
ratios and seconds of a processor mean anything.

rates      points per second of a processor from file to map, by points per cell, from LAZ and from NPZ
overhead   a job of a million points by one worker of Dask against the same in one process
workers    two workers together against two independent runs side by side; what they send each other
memory     the largest process of two workers with a tenth of the points and with all of them
peers      errors at points that were held out: this map, PDAL and PyKrige, where they are installed (survey_peers.py)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import laspy
import numpy as np
import psutil
from own_network import command_in_own_network
from survey_peers import compare_peers

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
DATA = Path(os.environ.get("GPGMAP_DATA", ROOT.parent / "shared" / "data"))
SIDE = 300.0  # metres between two copies of the survey
COPIES = 2  # in a tile
EPSG = 32611
HELD_OUT = 200  # one point in so many is kept for the error
FEW = 2_000  # points of the map whose time is that of the start of a process
ROWS = ("rates", "overhead", "workers", "memory", "peers")


def read_points() -> np.ndarray:
    with np.load(DATA / "als_blanca.npz") as file:
        return file["xyz"].astype(np.float64) + file["offset"]


def make_tiles(folder: Path, count: int, rng: np.random.Generator) -> list[Path]:
    """LAZ tiles of about a million points each, `count` in all."""
    folder.mkdir(parents=True)
    xyz, paths, left = read_points(), [], count
    across = int(np.ceil(np.sqrt(count / len(xyz))))
    copy = 0
    while left > 0:
        parts = []
        for _ in range(COPIES):
            shift = [SIDE * (copy % across), SIDE * (copy // across), 0.0]
            parts.append(xyz + shift + rng.normal(0.0, 0.02, xyz.shape))
            copy += 1
        points = np.concatenate(parts)[:left]
        left -= len(points)
        paths.append(folder / f"tile_{len(paths):04d}.laz")
        write_laz(paths[-1], points)
    return paths


def hold_out(folder: Path) -> tuple[Path, np.ndarray]:
    """A file of the points that are mapped, and those (N, 3) that are not."""
    xyz = read_points()
    held = np.arange(len(xyz)) % HELD_OUT == 0
    write_laz(folder / "known.laz", xyz[~held])
    return folder / "known.laz", xyz[held]


def write_laz(path: Path, xyz: np.ndarray) -> None:
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.global_encoding.wkt = True  # what the standard asks of this point format, and PDAL of the file
    header.offsets, header.scales = xyz.mean(axis=0).round(), [0.001] * 3
    las = laspy.LasData(header)
    las.x, las.y, las.z = xyz.T
    las.classification = np.full(len(xyz), 2, dtype=np.uint8)
    las.write(path)


class Memory:
    """The largest resident memory of each process of a tree, looked at five times a second."""

    def __init__(self, pid: int) -> None:
        self.largest: dict[int, int] = {}
        self._root, self._ended = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            try:
                root = psutil.Process(self._root)
                for process in (root, *root.children(recursive=True)):
                    self.largest[process.pid] = max(
                        self.largest.get(process.pid, 0), process.memory_info().rss
                    )
            except psutil.Error:
                continue

    def end(self) -> float:
        """MB of the largest process."""
        self._ended.set()
        self._thread.join()
        return max(self.largest.values(), default=0) / 2**20


def start(
    files: Sequence[Path], out: Path, *options: str, core: int | None = None, sent: Path | None = None
) -> subprocess.Popen[str]:
    """`gpgmap map`. core: that it may use; sent: file for the number of bytes that its processes send each other"""
    command = [
        sys.executable, "-P", "-m", "gpgmap_ros.cli", "map", *map(str, files), "--out", str(out), "--json",
        "--crs", f"EPSG:{EPSG}", *options,
    ]  # fmt: skip
    return subprocess.Popen(
        command if sent is None else command_in_own_network(command, sent),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"gpgmap map failed:\n{err}")
    return dict(json.loads(out))


def stages(summary: dict[str, Any]) -> float:
    """Seconds of all stages, without the start of processes and imports."""
    return float(sum(summary["timings_s"].values()))


def processor_seconds() -> float:
    """Of all processes that were started and have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_rates(folder: Path, tiles: list[Path], resolutions: Sequence[float], more: list[str]) -> None:
    """Points per second of a processor, from LAZ and from NPZ, with the process that decodes, by points per cell."""
    xyz = np.concatenate([laspy.read(path).xyz for path in tiles])
    npz = write_npz(folder / "points.npz", xyz)
    few = write_npz(folder / "few.npz", xyz[:FEW])
    count = len(xyz)
    del xyz
    print("one process on one core, points per second of a processor:")
    for edge in resolutions:
        settings = ["--set", f"mapping.resolution={edge}", *more]
        _, begin, _ = run_alone([few], folder, settings)
        for name, files in (("LAZ", tiles), ("NPZ", [npz])):
            summary, cpu, largest = run_alone(files, folder, settings)
            rate = summary["points"]["per_processor_second"]
            cells = summary["map"]["known_m2"] / edge**2
            print(
                f"  {name}, {count / cells:.1f} points per known cell of {edge:g} m: {count / cpu / 1e6:.2f} M/s in all"
                f" ({cpu:.1f} s), {count / max(cpu - begin, 1e-3) / 1e6:.2f} M/s without the {begin:.1f} s of a map of"
                f" {FEW:,} points, {rate / 1e6:.2f} M/s read and added; {largest:.0f} MB",
                flush=True,
            )
    npz.unlink()


def write_npz(path: Path, xyz: np.ndarray) -> Path:
    offset = xyz.mean(axis=0).round()
    np.savez(path, xyz=np.ascontiguousarray(xyz - offset, dtype=np.float32), offset=offset)
    return path


def run_alone(
    files: Sequence[Path], folder: Path, settings: Sequence[str]
) -> tuple[dict[str, Any], float, float]:
    """Summary, seconds of a processor and MB of a run by one process on one core."""
    before = processor_seconds()
    process = start(files, folder / "alone", "--scheduler", "local", *settings, core=0)
    memory = Memory(process.pid)
    summary = finish(process)
    largest = memory.end()
    shutil.rmtree(folder / "alone")
    return summary, processor_seconds() - before, largest


def measure_overhead(folder: Path, tiles: list[Path], settings: list[str]) -> None:
    """The stages of a small job by one worker of Dask against the same in one process, in turns.

    Also in seconds of a processor, of the client with its imports and of the worker: these mean something on a machine
    that does other work, too. The smallest of three each.
    """
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with Client(cluster, set_as_default=False) as client:
            client.run(os.sched_setaffinity, 0, {0})
            finish(start(tiles, folder / "warm", "--scheduler", address, *settings))
            times: dict[str, list[tuple[float, float]]] = {"local": [], address: []}
            for turn in range(3):
                for where, found in times.items():
                    before = processor_seconds() + sum(client.run(seconds_of_this_process).values())
                    summary = finish(start(tiles, folder / f"small_{turn}_{len(found)}_{where == address}",
                                           "--scheduler", where, *settings, core=0))  # fmt: skip
                    after = processor_seconds() + sum(client.run(seconds_of_this_process).values())
                    found.append((stages(summary), after - before))
    alone, dask = (np.min(found, axis=0) for found in times.values())
    print(f"job of {sum(laspy.open(path).header.point_count for path in tiles):,} points, one process against one"
          f" worker of Dask: stages {alone[0]:.1f} s and {dask[0]:.1f} s ({dask[0] / alone[0] - 1.0:+.0%}), processors"
          f" {alone[1]:.1f} s and {dask[1]:.1f} s ({dask[1] / alone[1] - 1.0:+.0%})")  # fmt: skip


def seconds_of_this_process() -> float:
    """Of a processor, with the process that decodes for it."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


def measure_workers(folder: Path, tiles: list[Path], settings: list[str], count: int) -> None:
    """Two workers together against two independent runs side by side, each with half of the tiles."""
    counter = folder / "sent"
    before = processor_seconds()
    process = start(tiles, folder / "together", "--scheduler", "processes", *settings, sent=counter)
    memory = Memory(process.pid)
    summary = finish(process)
    together, shared, largest = stages(summary), processor_seconds() - before, memory.end()
    shutil.rmtree(folder / "together")
    begin, before = time.monotonic(), processor_seconds()
    halves = [
        start(tiles[k::2], folder / f"alone_{k}", "--scheduler", "local", *settings, core=k) for k in range(2)
    ]
    slowest = max(stages(finish(process)) for process in halves)
    separate = processor_seconds() - before
    for k in range(2):
        shutil.rmtree(folder / f"alone_{k}")
    print(f"two workers: {count / together / 1e6:.2f} M points/s together ({together:.0f} s), two independent runs side"
          f" by side {count / slowest / 1e6:.2f} M points/s ({slowest:.0f} s, {time.monotonic() - begin:.0f} s with"
          f" imports): {slowest / together:.2f}")  # fmt: skip
    cells = summary["map"]["known_m2"] / summary["map"]["resolution_m"] ** 2
    print(f"  processors, with all imports: {shared:.1f} s together, {separate:.1f} s side by side")
    print(f"  largest process of the two workers {largest:.0f} MB; {count / cells:.1f} points per known cell")
    print(f"  seconds of the two workers: {summary['timings_s']}")
    if counter.exists():
        print(
            f"  {int(counter.read_text()) / count:.3f} bytes per point over loopback, by these processes alone"
        )
    else:
        print("  bytes on the network not counted: `unshare -rn` is not allowed here")


def measure_memory(folder: Path, tiles: list[Path], settings: list[str]) -> None:
    """The largest resident memory of a process while two workers map a tenth of the points, and all of them."""
    for files in (tiles[: max(len(tiles) // 10, 1)], tiles):
        process = start(files, folder / "memory", "--scheduler", "processes", *settings)
        memory = Memory(process.pid)
        summary = finish(process)
        print(
            f"two workers, {summary['points']['used']:,} points: largest process {memory.end():.0f} MB",
            flush=True,
        )
        shutil.rmtree(folder / "memory")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument(
        "--resolution",
        type=float,
        nargs="+",
        default=[1.0],
        help="of a cell, metres (default: 1); several for the rates, where 0.5 is what `gpgmap map` chooses here",
    )
    parser.add_argument("--kernel", help="mapping.kernel (default: that of the settings)")
    parser.add_argument("--only", nargs="*", choices=ROWS)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no folder {DATA}: set GPGMAP_DATA")
    chosen = arguments.only or ROWS
    more = ["--set", f"mapping.kernel={arguments.kernel}"] if arguments.kernel else []
    settings = ["--set", f"mapping.resolution={arguments.resolution[0]}", *more]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiles = make_tiles(folder / "tiles", arguments.points, rng)
        size = sum(path.stat().st_size for path in tiles)
        print(f"{arguments.points:,} points in {len(tiles)} LAZ tiles ({size / arguments.points:.1f} bytes each point),"
              f" cells of {arguments.resolution[0]:g} m; load of the machine {os.getloadavg()[0]:.1f}")  # fmt: skip
        if "rates" in chosen:
            measure_rates(folder, tiles, arguments.resolution, more)
        if "overhead" in chosen:
            measure_overhead(folder, make_tiles(folder / "small", 1_000_000, rng), settings)
        if "workers" in chosen:
            measure_workers(folder, tiles, settings, arguments.points)
        if "memory" in chosen:
            measure_memory(folder, tiles, settings)
        if "peers" in chosen:
            known, held = hold_out(folder)
            summary = finish(start([known], folder / "ours", "--scheduler", "local", *settings))
            compare_peers(folder, known, held, summary["map"]["resolution_m"])


if __name__ == "__main__":
    main()
