"""How fast the command line is: a replay against real time, and `gpgmap map` in points per second and memory.

python benchmark/command_line.py                    both
python benchmark/command_line.py --profile          and where a replay spends its time

Each command runs as a process of its own, as a user starts it: the time to import and to load compiled loops counts.
Seconds of the processors are given beside those of the clock: on a machine that does other work only they compare.
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
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import record
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SURVEY_EDGE = 300.0  # metres
MEMORY = 512  # MB
TARGET_REPLAY, TARGET_POINTS = 20.0, 5e6


def gpgmap(*arguments: object, one_core: bool = False) -> tuple[dict[str, Any], float, float]:
    """What the command says with --json; seconds of the clock and of the processors."""
    core = {min(os.sched_getaffinity(0))}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "gpgmap_ros.cli", *map(str, arguments), "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=(lambda: os.sched_setaffinity(0, core)) if one_core else None,
    )  # fmt: skip
    if result.returncode:
        raise SystemExit(f"gpgmap {arguments[0]} failed:\n{result.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return json.loads(result.stdout), time.monotonic() - begin, cpu


def replay(folder: Path, bag: Path, keep: bool) -> None:
    # compiles what was not compiled before: clouds, submaps and comparisons
    gpgmap("replay", bag, "--out", folder / "warm", "--to", 60)
    summary, clock, cpu = gpgmap("replay", bag, "--out", folder / "run")
    data, mapping = summary["seconds_of_data"], summary["seconds"]["mapping"]
    print(f"{bag.name}: {summary['clouds']['used']} clouds, {data:.0f} s of data, {summary['way_m']:.0f} m,"
          f" {summary['submaps']} submaps, {summary['closures']['accepted']} of {summary['closures']['compared']}"
          " comparisons accepted")  # fmt: skip
    speed = f"{data / mapping:5.1f} x real time (target {TARGET_REPLAY:.0f})"
    print(f"  mapping, submaps and closures   {mapping:6.1f} s   {speed}")
    print(f"  with map, layers and report     {clock:6.1f} s   {data / clock:5.1f} x real time")
    print(f"  processors                      {cpu:6.1f} s   load of the machine {os.getloadavg()[0]:.1f}")
    for name, seconds in summary["timings_s"].items():
        print(f"    {name:<20} {seconds:6.2f} s")
    if keep:
        record("nclt_replay", f"gpgmap replay {bag.name}", replay_figures(summary))
        photograph(folder / "run" / "report.html", ROOT / "docs" / "command_line" / "report.png")


def photograph(report: Path, to: Path) -> None:
    """The upper part of a report as a browser shows it, for the documentation."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print(f"{to.name} stays as it is: no Chromium (sudo apt install chromium)")
        return
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--window-size=1280,1690", "--blink-settings=preferredColorScheme=1", f"--user-data-dir={profile}",
                "--virtual-time-budget=20000", f"--screenshot={to}", report.resolve().as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
    Image.open(to).convert("RGB").resize((960, 1268), Image.Resampling.LANCZOS).save(to, optimize=True)
    print(f"the report's picture is in {to.relative_to(ROOT)}")


def replay_figures(summary: dict[str, Any]) -> dict[str, str | int]:
    """What the documentation quotes of a replay, from its run.json: nothing that depends on the machine's speed."""
    closures = summary["closures"]
    return {
        "clouds": summary["clouds"]["used"],
        "seconds": f"{summary['seconds_of_data']:.0f}",
        "way_m": f"{summary['way_m']:.0f}",
        "submaps": summary["submaps"],
        "cell_m": f"{summary['map']['resolution_m']:g}",
        "compared": closures["compared"],
        "accepted": closures["accepted"],
        "largest_correction_m": f"{closures['largest_correction_m']:.1f}",
    }


def survey(folder: Path, count: int) -> None:
    """A survey flown in strips: points per second of reading and adding, and the most memory used."""
    rng, done = np.random.default_rng(0), np.arange(count) / count
    strip, along = np.floor(done * 10), (done * 10) % 1
    x = np.where(strip % 2, 1.0 - along, along) * SURVEY_EDGE
    y = (strip + rng.random(count)) * SURVEY_EDGE / 10
    z = 5.0 * np.sin(x / 20.0) * np.cos(y / 25.0) + 0.05 * rng.normal(size=count)
    file = folder / f"points_{count}.npz"
    np.savez(
        file,
        xyz=np.column_stack([x, y, z]).astype(np.float32),
        offset=np.array([500000.0, 4000000.0, 100.0]),
        epsg=32611,
    )
    for one_core in (False, True):
        out = folder / f"map_{count}_{one_core}"
        summary, clock, cpu = gpgmap(
            "map", file, "--out", out, "--set", "mapping.resolution=0.5", one_core=one_core
        )
        points, memory = summary["points"], summary["largest_memory_mb"]
        stages = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in summary["timings_s"].items())
        print(f"  {count:>11,} points on {'one core ' if one_core else 'all cores'}"
              f"   {points['per_processor_second'] / 1e6:5.2f} M points per s of a processor"
              f"   {points['per_second'] / 1e6:5.2f} M points/s   {memory:5.0f} MB"
              f"   {clock:5.1f} s in all, {cpu:.1f} s CPU ({stages})")  # fmt: skip
    file.unlink()


def survey_of_laz(folder: Path, count: int) -> None:
    """The same points as LAZ and as NPZ: points per second of a processor, for reading alone and for the command (with
    the process that decodes), and the memory held.
    """
    import laspy

    from gpgmap_ros.io.points import open_points
    from gpgmap_ros.io.points.decoder import decoder

    rng = np.random.default_rng(0)
    xyz = np.column_stack(
        [np.sort(rng.uniform(0.0, 1000.0, count)), rng.uniform(0.0, 1000.0, count), np.zeros(count)]
    )
    xyz[:, 2] = 5.0 * np.sin(xyz[:, 0] / 20.0) + 0.05 * rng.normal(size=count)
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.offsets, header.scales = [0.0, 0.0, 0.0], [0.001] * 3
    las = laspy.LasData(header)
    las.x, las.y, las.z = xyz.T
    las.write(folder / "points.laz")
    np.savez(folder / "points.npz", xyz=xyz.astype(np.float32))
    for name in ("points.laz", "points.npz"):
        begin = processor_seconds()
        read = sum(len(piece) for piece in open_points(folder / name).pieces())
        decoder.close()  # only then its seconds are counted
        alone = read / (processor_seconds() - begin)
        summary, clock, cpu = gpgmap(
            "map",
            folder / name,
            "--out",
            folder / f"map_{name}",
            "--memory",
            MEMORY,
            "--set",
            "mapping.resolution=1",
        )
        print(f"  {name}: {count:,} points   {alone / 1e6:5.2f} M points per s of a processor to read"
              f"   {summary['points']['per_second'] / 1e6:5.2f} M points/s read and added"
              f"   {summary['largest_memory_mb']:5.0f} MB of {MEMORY} allowed"
              f"   {clock:5.1f} s in all, {cpu:.1f} s CPU")  # fmt: skip


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


def profile(folder: Path, bag: Path) -> None:
    """The functions in which a replay spends its time, by their own time."""
    command = ["-m", "gpgmap_ros.cli", "replay", str(bag), "--out", str(folder / "profiled")]
    out = folder / "profile"
    subprocess.run(
        [sys.executable, "-m", "cProfile", "-o", str(out), *command],
        check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    import pstats

    pstats.Stats(str(out)).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--points", type=int, nargs="*", default=[2_000_000, 20_000_000])
    parser.add_argument("--laz", type=int, default=5_000_000, help="points of the LAZ file")
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the replay's figures (figures.py) and the picture of its report for the documentation",
    )
    arguments = parser.parse_args()
    data = Path(os.environ.get("GPGMAP_DATA", ROOT.parent / "shared" / "data"))
    bag = data / "bag_nclt_loop"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if bag.is_dir():
            replay(folder, bag, arguments.record)
            if arguments.profile:
                profile(folder, bag)
        else:
            print(f"replay skipped: no {bag}; set GPGMAP_DATA")
        target = f"target {TARGET_POINTS / 1e6:.0f} M points/s and core"
        print(f"gpgmap map, NPZ, {SURVEY_EDGE:.0f} x {SURVEY_EDGE:.0f} m in cells of 0.5 m ({target}):")
        for count in arguments.points or ():
            survey(folder, count)
        print(f"gpgmap map --memory {MEMORY}, 1 x 1 km in cells of 1 m:")
        survey_of_laz(folder, arguments.laz)


if __name__ == "__main__":
    main()
