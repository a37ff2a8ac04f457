"""A real loop, driven by a real robot: is the return to the start found, is anything false found, what drift is left?

python benchmark/closure_loop.py [--settings mapping.resolution=0.3 ...] [--check-reference] [--record NAME]

Replays bag_nclt_loop (558 m on a campus) through the mapping pipeline with the default settings, hands each finished
submap to the LoopCloser, and compares with a reference that was not made with our maps (closure_nclt.py). A closure is
false if it contradicts the odometry, corrected by the reference in proportion to the way, by more than 2 m or 5 deg.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from closure_nclt import Array, check_reference, difference, read_loop, reference, submaps_of
from closure_terrain import data_folder
from figures import record

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import interpolate, inverse
from gpgmap_ros.mapping.submaps import Submap

FALSE_SHIFT, FALSE_TURN = 2.0, 5.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", nargs="*", default=[], help="name=value, where not the default's")
    parser.add_argument("--check-reference", action="store_true", help="repeat the reference by GICP")
    parser.add_argument(
        "--record", metavar="NAME", help="keep the figures for the documentation (figures.py)"
    )
    args = parser.parse_args()
    folder = data_folder()
    if folder is None or not (folder / "bag_nclt_loop").is_dir():
        print("skipped: no data folder with bag_nclt_loop; set GPGMAP_DATA")
        return 0
    scans = read_loop(folder / "bag_nclt_loop")
    if args.check_reference:
        check_reference(scans)
    changes = {name: float(value) for name, value in (item.split("=") for item in args.settings)}
    config = with_settings(Config(), changes)
    start = time.process_time()
    submaps = submaps_of(scans, config)
    mapped = time.process_time()
    closer = LoopCloser(config.closure)
    compared = [closure for submap in submaps for closure in closer.add(submap)]
    closed = time.process_time()

    last = scans[-1][2]
    T_end = reference(last)
    begin, end = scans[0][0], scans[-1][0]
    by_id = {submap.id: submap for submap in submaps}

    def truth(submap: Submap) -> Array:
        """Odometry with the drift taken out in proportion to time: right at both ends, nearly so between them."""
        share = (submap.first_stamp - begin) / (end - begin)
        return interpolate(submap.T_map_submap, T_end @ submap.T_map_submap, share)

    false = 0
    print(
        f"{len(submaps)} submaps ({mapped - start:.1f} s of CPU), {len(compared)} compared in full ", end=""
    )
    print(f"({closed - mapped:.1f} s of CPU); accepted:")
    for closure in closer.closures:
        if not closure.accepted:
            continue
        expected = inverse(truth(by_id[closure.a])) @ truth(by_id[closure.b])
        metres, degrees = difference(closure.T_a_b, expected)
        wrong = metres > FALSE_SHIFT or degrees > FALSE_TURN
        false += wrong
        std = np.sqrt(np.diag(closure.covariance))
        print(
            f"  {closure.a} - {closure.b}: probability {closure.probability:.4f}, overlap {closure.overlap:.0%}, "
            f"{metres:.2f} m and {degrees:.2f} deg from the truth, "
            f"standard deviations {std[0]:.3f} {std[1]:.3f} {std[2]:.3f} m, {np.rad2deg(std[5]):.2f} deg"
            f"{' FALSE' if wrong else ''}"
        )
    (corrected,) = closer.correct([end], [last])
    before, after = difference(last, T_end @ last), difference(corrected, T_end @ last)
    found = sum(closure.accepted for closure in closer.closures)
    print(f"closures found: {found}, false ones: {false}")
    print(f"drift at the end, before: {before[0]:.2f} m and {before[1]:.2f} deg", end="")
    print(f"; after: {after[0]:.2f} m and {after[1]:.2f} deg")
    if args.record:
        settings = f" --settings {' '.join(args.settings)}" if args.settings else ""
        record(
            args.record,
            f"python benchmark/closure_loop.py{settings}",
            {
                "submaps": len(submaps),
                "compared": len(compared),
                "closures": found,
                "false": false,
                "before_m": f"{before[0]:.2f}",
                "before_deg": f"{before[1]:.2f}",
                "after_m": f"{after[0]:.2f}",
                "after_deg": f"{after[1]:.2f}",
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
