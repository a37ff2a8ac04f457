"""How fast a survey of LAZ tiles is mapped: by one process, by two workers of Dask, and by others.

python benchmark/survey.py                         10 million points
python benchmark/survey.py --points 100000000      the full size: 20 minutes on an idle machine with two cores
python benchmark/survey.py --only rates workers    some of: rates, overhead, workers, peers

The points are those of als_blanca.npz, replicated side by side, with noise, as LAZ tiles in a temporary folder. Each
figure compares runs that were made right after each other, or side by side; on a machine that does other work only
ratios and seconds of a processor mean anything.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
DATA = Path(os.environ.get("GPGMAP_DATA", ROOT.parent / "shared" / "data"))
SIDE = 300.0  # metres between two copies of the survey
COPIES = 2  # in a tile
EPSG = 32611
HELD_OUT = 200  # one point in so many is kept for the error


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


def write_laz(path: Path, xyz: np.ndarray) -> None:
    header = laspy.LasHeader(point_format=6, version="1.4")
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


def start(files: Sequence[Path], out: Path, *options: str, core: int | None = None) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "gpgmap_ros.cli",
        "map",
        *map(str, files),
        "--out",
        str(out),
        "--json",
    ]
    return subprocess.Popen(
        [*command, "--crs", f"EPSG:{EPSG}", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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


def network_bytes() -> int:
    """Sent over loopback since the machine started."""
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def measure_rates(folder: Path, tiles: list[Path], settings: list[str]) -> None:
    """Points per second of a processor, from LAZ and from NPZ, with the process that decodes."""
    xyz = np.concatenate([laspy.read(path).xyz for path in tiles])
    offset = xyz.mean(axis=0).round()
    npz = folder / "points.npz"
    np.savez(npz, xyz=np.ascontiguousarray(xyz - offset, dtype=np.float32), offset=offset)
    count = len(xyz)
    del xyz
    print("one process on one core, points per second of a processor:")
    for name, files in (("LAZ", tiles), ("NPZ", [npz])):
        before = processor_seconds()
        process = start(files, folder / f"rate_{name}", "--scheduler", "local", *settings, core=0)
        memory = Memory(process.pid)
        summary = finish(process)
        largest = memory.end()
        cpu = processor_seconds() - before
        rate = summary["points"]["per_processor_second"]
        print(f"  {name}: {count:,} points   {rate / 1e6:5.2f} M/s read and added   {count / cpu / 1e6:5.2f} M/s with"
              f" headers, sample, solving, writing and imports ({cpu:.1f} s)   {largest:5.0f} MB")  # fmt: skip
        shutil.rmtree(folder / f"rate_{name}")
    npz.unlink()


def measure_overhead(folder: Path, tiles: list[Path], settings: list[str]) -> None:
    """The stages of a small job by one worker of Dask against the same in one process, one after the other."""
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with Client(cluster, set_as_default=False) as client:
            client.run(os.sched_setaffinity, 0, {0})
            finish(start(tiles, folder / "warm", "--scheduler", address, *settings))
            times: dict[str, list[float]] = {"local": [], address: []}
            for turn in range(3):
                for where, found in times.items():
                    summary = finish(start(tiles, folder / f"small_{turn}_{len(found)}_{where == address}",
                                           "--scheduler", where, *settings, core=0))  # fmt: skip
                    found.append(stages(summary))
    alone, dask = (float(np.median(found)) for found in times.values())
    print(f"stages of a job of {sum(laspy.open(path).header.point_count for path in tiles):,} points:"
          f" {alone:.1f} s in one process, {dask:.1f} s by one worker of Dask: {dask / alone - 1.0:+.0%}")  # fmt: skip


def measure_workers(folder: Path, tiles: list[Path], settings: list[str], count: int) -> None:
    """Two workers together against two independent runs side by side, each with half of the tiles."""
    sent, before = network_bytes(), processor_seconds()
    process = start(tiles, folder / "together", "--scheduler", "processes", *settings)
    memory = Memory(process.pid)
    summary = finish(process)
    largest, sent = memory.end(), network_bytes() - sent
    together, shared = stages(summary), processor_seconds() - before
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
    print(f"  processors, with all imports: {shared:.1f} s together, {separate:.1f} s side by side")
    print(
        f"  largest process {largest:.0f} MB; {sent / count:.2f} bytes per point over loopback (of all programs)"
    )


def measure_peers(folder: Path, settings: list[str]) -> None:
    """RMSE on held-out points: our mean, that of the other programs that are installed."""
    import rasterio

    xyz = read_points()
    held = np.arange(len(xyz)) % HELD_OUT == 0
    write_laz(folder / "known.laz", xyz[~held])
    summary = finish(start([folder / "known.laz"], folder / "ours", "--scheduler", "local", *settings))
    edge = summary["map"]["resolution_m"]
    with rasterio.open(folder / "ours" / "layers" / "elevation.tif") as file:
        ours = np.array([value[0] for value in file.sample(xyz[held, :2])])
    with rasterio.open(folder / "ours" / "layers" / "variance.tif") as file:
        variance = np.array([value[0] for value in file.sample(xyz[held, :2])])
    print(
        f"held-out points of als_blanca, cells of {edge:g} m: {report_error('gpgmap', ours - xyz[held, 2])}"
    )
    if shutil.which("pdal") is None:
        print("  PDAL left out: not installed (sudo apt install pdal)")
    else:
        begin = time.monotonic()
        out = folder / "pdal.tif"
        pipeline = [str(folder / "known.laz"), {"type": "writers.gdal", "filename": str(out), "resolution": edge,
                                                "output_type": "mean", "window_size": 3}]  # fmt: skip
        subprocess.run(["pdal", "pipeline", "--stdin"], input=json.dumps(pipeline), text=True, check=True)
        with rasterio.open(out) as file:
            theirs = np.array([value[0] for value in file.sample(xyz[held, :2])])
            theirs = np.where(theirs == file.nodata, np.nan, theirs)
        print(f"  {report_error('PDAL', theirs - xyz[held, 2])} ({time.monotonic() - begin:.1f} s)")
    compare_kriging(xyz, held, ours, variance)


def report_error(name: str, error: np.ndarray) -> str:
    return f"{name} RMSE {np.sqrt(np.nanmean(error**2)):.3f} m, known at {np.isfinite(error).mean():.1%}"


def compare_kriging(xyz: np.ndarray, held: np.ndarray, ours: np.ndarray, variance: np.ndarray) -> None:
    """PyKrige on the nearest points of each held-out one: its variogram is fitted by itself."""
    try:
        from pykrige.ok import OrdinaryKriging
    except ImportError:
        print("  PyKrige left out: not installed (pip install pykrige)")
        return
    rng = np.random.default_rng(0)
    middle = np.median(xyz[:, :2], axis=0)
    near = np.abs(xyz[:, :2] - middle).max(axis=1) < 25.0
    some = rng.permutation(np.flatnonzero(near & ~held))[:3000]
    asked = near[held]
    begin = time.monotonic()
    krige = OrdinaryKriging(*xyz[some].T, variogram_model="spherical", nlags=20)
    z, square = krige.execute("points", *xyz[held][asked][:, :2].T, n_closest_points=32, backend="loop")
    error, own = z - xyz[held][asked, 2], ours[asked] - xyz[held][asked, 2]
    print(f"  within 25 m: {report_error('PyKrige', np.asarray(error))}, mean std {np.sqrt(np.mean(square)):.3f} m"
          f" ({time.monotonic() - begin:.1f} s, 3,000 points); {report_error('gpgmap', own)},"
          f" mean std {np.sqrt(np.nanmean(variance[asked])):.3f} m")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--resolution", type=float, default=1.0, help="metres (default: 1)")
    parser.add_argument("--only", nargs="*", choices=("rates", "overhead", "workers", "peers"))
    arguments = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no folder {DATA}: set GPGMAP_DATA")
    chosen = arguments.only or ("rates", "overhead", "workers", "peers")
    settings = ["--set", f"mapping.resolution={arguments.resolution}"]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiles = make_tiles(folder / "tiles", arguments.points, rng)
        size = sum(path.stat().st_size for path in tiles)
        print(f"{arguments.points:,} points in {len(tiles)} LAZ tiles ({size / arguments.points:.1f} bytes each point),"
              f" cells of {arguments.resolution:g} m; load of the machine {os.getloadavg()[0]:.1f}")  # fmt: skip
        if "rates" in chosen:
            measure_rates(folder, tiles, settings)
        if "overhead" in chosen:
            measure_overhead(folder, make_tiles(folder / "small", 1_000_000, rng), settings)
        if "workers" in chosen:
            measure_workers(folder, tiles, settings, arguments.points)
        if "peers" in chosen:
            measure_peers(folder, settings)


if __name__ == "__main__":
    main()
