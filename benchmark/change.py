"""What `gpgmap compare` calls changed, and what its volumes are worth, beside M3C2 in the same run.

    python benchmark/change.py [PAIRS] [--grounds smooth rough blocks gullies] [--folder results] [--no-blanca]

PAIRS: simulated pairs of surveys for each ground, 10 unless given. With `--folder`, the result of each pair is kept
there, and the same call goes on where the last one was interrupted.

1. Flight lines of als_blanca against each other, cells of 1 m: nothing changed. Share of the cells significant at 5 %
   each alone, cells and patches called changed with the false discovery rate at 5 %, and the share of M3C2's distances
   that exceed its own level of detection (py4dgeo, cylinder of 1 m, normals of 2 m, registration error 0), as the lines
   are and after the motion that `compare` found was removed.
2. Simulated pairs (change_scenes.py): four mounds of 0.1 to 2 m3 in each. Found, 95 % intervals that hold the volume,
   false patches; M3C2's significant core points, after the alignment, on changed and on unchanged ground.

The constants of gpgmap_ros/change were chosen on pairs 0 to 3, 10 to 15, 100 to 103 and 300 to 307 of the simulated
grounds, with als_blanca in view; the benchmark begins with pair 400. als_blanca is therefore no independent test.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from change_scenes import GROUNDS, Mound, make_ground, place_mounds, survey
from grid_data import data_folder
from kept_results import KeptResults, kept_folder, share_text

from gpgmap_ros.apps.compare import compare

try:
    import py4dgeo
except ImportError:
    py4dgeo = None
FIRST_PAIR = 400
RESOLUTION = 0.2


def m3c2(before: np.ndarray, after: np.ndarray, cell: float, core: np.ndarray) -> np.ndarray | None:
    """Which of the core points (N, 3) M3C2 calls changed; NaN where it has no distance; None where it is missing."""
    if py4dgeo is None:
        return None
    epochs = tuple(py4dgeo.Epoch(np.ascontiguousarray(points)) for points in (before, after))
    method = py4dgeo.M3C2(
        epochs=epochs, corepoints=np.ascontiguousarray(core), normal_radii=(2.0 * cell,), cyl_radius=cell,
        max_distance=5.0, registration_error=0.0,
    )  # fmt: skip
    distance, uncertainty = method.run()
    return np.where(np.isfinite(distance), np.abs(distance) > uncertainty["lodetection"], np.nan)


def on_blanca() -> None:
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder")
        return
    with np.load(folder / "als_blanca.npz") as file:
        xyz, line = file["xyz"].astype(np.float64), file["line"]
    print("| lines | cells | significant alone | called changed | patches |", end="")
    print(" M3C2 significant: as they are, aligned | processor, s |")
    print("|---|---|---|---|---|---|---|")
    for a, b in ((1, 2), (0, 1)):
        before, after = xyz[line == a], xyz[line == b]
        begin = time.process_time()
        found = compare(before, after, resolution=1.0).comparison
        seconds = time.process_time() - begin
        cells = int(found.compared.sum())
        called = int(np.abs(found.change[found.compared]).sum())
        core = centres(found)
        peer = m3c2(before, after, 1.0, core)
        moved = m3c2(before, remove_motion(after, found), 1.0, core)
        share = (
            "-" if peer is None else f"{100.0 * np.nanmean(peer):.1f} %, {100.0 * np.nanmean(moved):.1f} %"
        )
        print(
            f"| {a}, {b} | {cells} | {100.0 * found.share_at_level:.1f} % | {called} | {len(found.patches)} | {share} |"
            f" {seconds:.0f} |",
            flush=True,
        )


def remove_motion(points: np.ndarray, found) -> np.ndarray:
    """Points (N, 3) without the small rigid motion of the comparison."""
    d = points - found.centre
    return points - found.motion[:3] - np.cross(found.motion[3:], d)


def centres(found) -> np.ndarray:
    """(N, 3) middles of the compared cells on the earlier surface."""
    iy, ix = np.nonzero(found.compared)
    return np.column_stack([found.grid.x[ix], found.grid.y[iy], found.before[iy, ix]])


def judge(found, mounds: list[Mound]) -> tuple[int, int, int]:
    """Mounds found, intervals that hold their volume, and patches that are no mound."""
    hits, held, used = 0, 0, set()
    for mound in mounds:
        own = [
            (k, patch)
            for k, patch in enumerate(found.patches)
            if np.hypot(patch.x - mound.x, patch.y - mound.y) < mound.radius
            and patch.volume * mound.volume > 0.0
        ]
        if own:
            used |= {k for k, _ in own}
            patch = max((patch for _, patch in own), key=lambda item: abs(item.volume))
            hits, held = hits + 1, held + (patch.interval[0] <= mound.volume <= patch.interval[1])
    return hits, held, len(found.patches) - len(used)


def compare_pair(pair: int, kind: str) -> dict[str, Any]:
    """What is found in one simulated pair; m3c2: shares of changed and of unchanged core points, None where missing."""
    rng = np.random.default_rng([pair, list(GROUNDS).index(kind)])
    noise = float(rng.choice([0.01, 0.02, 0.04]))
    lattice, mounds = make_ground(kind, rng), place_mounds(rng, 4, (0.1, 2.0))
    before, after = survey(lattice, [], rng, noise), survey(lattice, mounds, rng, noise)
    found = compare(before, after, resolution=RESOLUTION, draws=100).comparison
    hits, held, false = judge(found, mounds)
    x, y = np.meshgrid(found.grid.x, found.grid.y)
    changed = sum(np.abs(mound.height(x, y)) for mound in mounds) > 0.01
    share = float((found.p_value[found.compared & ~changed] < 0.05).mean())
    peer = m3c2(before, remove_motion(after, found), RESOLUTION, centres(found)[::7])
    shares = None
    if peer is not None:
        there = changed[found.compared][::7]
        shares = [float(np.nanmean(peer[there])), float(np.nanmean(peer[~there]))]
    return {
        "mounds": len(mounds), "hits": int(hits), "held": int(held), "false": int(false), "share": share,
        "m3c2": shares,
    }  # fmt: skip


def on_simulated(pairs: int, grounds: list[str], kept: KeptResults) -> None:
    print("| ground | mounds found | volumes held at 95 % | false patches |", end="")
    print(" unchanged cells significant alone | M3C2: changed, unchanged |")
    print("|---|---|---|---|---|---|")
    everything = []
    for kind in grounds:
        rows = [
            kept.get(f"{kind} {pair}", partial(compare_pair, pair, kind))
            for pair in range(FIRST_PAIR, FIRST_PAIR + pairs)
        ]
        print_row(kind, rows)
        everything += rows
    print_row("together", everything)


def print_row(name: str, rows: list[dict[str, Any]]) -> None:
    mounds, hits, held, false = (sum(row[key] for row in rows) for key in ("mounds", "hits", "held", "false"))
    peers = [row["m3c2"] for row in rows if row["m3c2"] is not None]
    text = "-" if not peers else ", ".join(f"{100.0 * value:.0f} %" for value in np.mean(peers, axis=0))
    share = 100.0 * np.mean([row["share"] for row in rows])
    print(
        f"| {name} | {hits} of {mounds} | {share_text(held, hits)} | {share_text(false, hits + false)} in {len(rows)}"
        f" maps | {share:.1f} % | {text} |",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=int, nargs="?", default=10)
    parser.add_argument("--grounds", nargs="+", choices=list(GROUNDS), default=list(GROUNDS))
    parser.add_argument("--folder", type=Path, help="where results are kept")
    parser.add_argument("--no-blanca", action="store_true", help="leave out the flight lines")
    args = parser.parse_args()
    if not args.no_blanca:
        on_blanca()
        print()
    with kept_folder(args.folder) as kept:
        on_simulated(args.pairs, args.grounds, KeptResults(kept / "change.jsonl"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
