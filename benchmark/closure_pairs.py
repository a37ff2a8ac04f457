"""Registration of submap pairs of real terrain with known relative pose: how often right, how sure, how fast.

python benchmark/closure_pairs.py                            the table: ours, two ablations, peers that are installed
python benchmark/closure_pairs.py --negatives 2400           more pairs of different places, for ours
python benchmark/closure_pairs.py --overlaps 0.3 0.25 0.2    harder pairs, where probabilities between 0 and 1 occur
python benchmark/closure_pairs.py --noisier 30               the same by noise in the points of DEMs
python benchmark/closure_pairs.py --terrains repeating       made ground, on which different places are alike
python benchmark/closure_pairs.py --terrains repeating davos hirise jacksboro --noisier 1 10 --calibrate
                                                             fit the constants of the acceptance probability

A pose is right within 1.5 cells, at the middle of the source, and 2 degrees of yaw. A pair of different places is one
whose discs do not touch. The draw is seeded; constants were chosen on seeds 3, 20261116 and 8801 (--noisier 10 to 100).
"common_error = 0" is our method told that the maps share no error, as is true of samples of one DEM and untrue of two
flight lines: its line shows the covariance alone. Maps and results are kept in --out, and a run that was interrupted
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from closure_peers import PEERS
from closure_table import markdown, plot
from closure_terrain import OVERLAPS, Submap, Terrain, data_folder, middle_of, pose_error, terrains, true_pose
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from gpgmap_ros.closure import ClosureConfig, Registration, register
from gpgmap_ros.closure.registration.probability import INTERCEPT, WEIGHTS, terms
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import GPGMap

Array = NDArray[np.float64]
RIGHT_CELLS, RIGHT_YAW = 1.5, 2.0
NEAR_CELLS, NEAR_YAW = 6.0, 10.0
WITHIN = float(chi2.ppf(0.999, 6))
"""Squared Mahalanobis distance within which the truth must lie."""
OTHERS = 40.0
"""Pairs of different places to one of the same, in the population for which the probability is stated."""
BINS = (0.0, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 1.0)
"""Of the probability, for the table of its reliability."""


@dataclass(frozen=True)
class Result:
    """One method on one pair. overlap 0: different places; error: cells and degrees; distance: squared Mahalanobis
    distance of the true pose; seconds: of CPU."""

    terrain: str
    overlap: float
    accepted: bool
    confidence: float
    error: tuple[float, float]
    distance: float
    seconds: float
    registration: Registration | None = None

    @property
    def right(self) -> bool:
        return self.error[0] < RIGHT_CELLS and self.error[1] < RIGHT_YAW

    @property
    def near(self) -> bool:
        return self.error[0] < NEAR_CELLS and self.error[1] < NEAR_YAW

    @property
    def same_place(self) -> bool:
        """Right, or as near as the stated covariance says: under much noise no pose is known to 2 degrees."""
        return self.right or (self.near and self.distance < WITHIN)


Method = Callable[[GPGMap, GPGMap], tuple[Array | None, float, bool, Registration | None]]


def ours(config: ClosureConfig) -> Method:
    def run(source: GPGMap, target: GPGMap) -> tuple[Array | None, float, bool, Registration | None]:
        found = register(source, target, config)
        return found.T_target_source, found.probability, found.accepted, found

    return run


def methods() -> dict[str, Method]:
    one = 1
    return {
        "gpgmap_ros": ours(ClosureConfig(threads=one)),
        "common_error = 0": ours(ClosureConfig(threads=one, common_error=0.0)),
        "without variances": ours(ClosureConfig(threads=one, use_variance=False)),
        "elevation alone": ours(ClosureConfig(threads=one, use_gradient=False)),
        **PEERS,
    }


@dataclass(frozen=True)
class Draw:
    """The pairs of one terrain: (overlap, source, target) of the same ground, and pairs of different places."""

    terrain: str
    same: list[tuple[float, Submap, Submap]]
    different: list[tuple[Submap, Submap]]


def draw(
    terrain: Terrain,
    seed: int,
    pairs: int,
    negatives: int,
    path: Path,
    overlaps: tuple[float, ...] = OVERLAPS,
) -> Draw:
    """Seeded by terrain and seed. The maps of the positives are paired anew for the negatives, and kept in `path`."""
    rng = np.random.default_rng([seed, zlib.crc32(terrain.name.encode())])
    if path.exists():
        same = pickle.loads(path.read_bytes())
    else:
        same = [(overlap, *terrain.positive(overlap, rng)) for overlap in overlaps for _ in range(pairs)]
        path.write_bytes(pickle.dumps(same))
    maps = [submap for _, source, target in same for submap in (source, target)]
    apart = [
        (a, b)
        for k, a in enumerate(maps)
        for b in maps[k + 1 :]
        if np.linalg.norm(a.centre - b.centre) > 2.0 * terrain.radius
    ]
    order = np.random.default_rng([seed, 1]).permutation(len(apart))[:negatives]
    return Draw(terrain.name, same, [apart[k] for k in order])


def suffix(overlaps: tuple[float, ...], noisier: float) -> str:
    """Of the names of files, where overlaps or noise are not the usual ones."""
    shares = "" if overlaps == OVERLAPS else "_" + "-".join(f"{100 * overlap:g}" for overlap in overlaps)
    return shares + (f"_noise{noisier:g}" if noisier != 1.0 else "")


def results(method: Method, pairs: Draw, path: Path, light: bool) -> Iterator[Result]:
    """All pairs through one method; those that `path` holds already are read from it."""
    done: list[Result] = pickle.loads(path.read_bytes()) if path.exists() else []
    yield from done
    work = [*pairs.same, *((0.0, a, b) for a, b in pairs.different)]
    for k, (overlap, source, target) in enumerate(work[len(done) :], len(done) + 1):
        start = time.process_time()
        T, confidence, accepted, registration = method(source.map, target.map)
        seconds = time.process_time() - start
        if T is None:
            T, accepted, confidence = np.eye(4), False, 0.0
        error = pose_error(T, source, target) if overlap else (np.inf, np.inf)
        distance = mahalanobis(registration, source, target) if registration and overlap else np.nan
        kept = None if light and not overlap and not accepted else registration
        result = Result(pairs.terrain, overlap, accepted, confidence, error, distance, seconds, kept)
        done.append(result)
        if k % 200 == 0 or k == len(work):
            path.write_bytes(pickle.dumps(done))
        yield result


def mahalanobis(found: Registration, source: Submap, target: Submap) -> float:
    """Squared Mahalanobis distance of the true pose, taken at the middle of the source."""
    if not np.all(np.isfinite(found.covariance)):
        return np.nan
    T, truth = found.T_target_source, true_pose(source, target)
    middle = middle_of(source.map)[None]
    there = apply(T, middle)[0]
    x, y, z = there - T[:3, 3]
    M = np.eye(6)
    M[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    turn = Rotation.from_matrix(truth[:3, :3] @ T[:3, :3].T).as_rotvec()
    error = np.array([*(apply(truth, middle)[0] - there), *turn])
    return float(error @ np.linalg.solve(M @ found.covariance @ M.T, error))


def recall_without_false(same: list[Result], different: list[Result]) -> float:
    """Share of right poses above the confidence of every wrong one, thresholds chosen on this draw (optimistic)."""
    wrong = [r.confidence for r in (*same, *different) if not r.right]
    limit = max(wrong, default=-np.inf)
    return float(np.mean([r.right and r.confidence > limit for r in same])) if same else 0.0


def report(name: str, found: list[Result]) -> None:
    same, different = [r for r in found if r.overlap], [r for r in found if not r.overlap]
    by_overlap = " ".join(
        f"{np.mean([r.right for r in same if r.overlap == o]):4.0%}/"
        f"{np.mean([r.right and r.accepted for r in same if r.overlap == o]):4.0%}"
        for o in sorted({r.overlap for r in same}, reverse=True)
    )
    good = [r for r in same if r.right and (r.accepted or r.registration is None)]  # peers do not accept
    error = np.median([r.error for r in good], axis=0) if good else (np.nan, np.nan)
    print(
        f"{name:22s} {by_overlap}  wrong accepted {sum(r.accepted and not r.right for r in same)} of {len(same)}, "
        f"false {sum(r.accepted for r in different)} of {len(different)}, "
        f"R@P1 {recall_without_false(same, different):4.0%}, "
        f"median {error[0]:.3f} cell {error[1]:.3f} deg, CPU {np.median([r.seconds for r in found]) * 1e3:.0f} ms"
    )
    distances = np.array([r.distance for r in good if np.isfinite(r.distance)])
    if distances.size:
        print(f"{'':22s} {normalised(distances)}")


def normalised(distances: Array) -> str:
    """Squared Mahalanobis distances of the truth beside the chi-square of 6 degrees of freedom that they should follow.

    The mean with its standard error from the distances themselves.
    """
    return (
        f"squared Mahalanobis distance of the truth (6 dof): mean {distances.mean():.2f} "
        f"+- {distances.std() / np.sqrt(distances.size):.2f} (chi-square 6), median {np.median(distances):.2f} (5.35), "
        f"beyond 95 %: {np.mean(distances > chi2.ppf(0.95, 6)):.1%}, beyond 99.9 %: "
        f"{int(np.sum(distances > WITHIN))} of {distances.size}"
    )


def reliability(found: list[Result]) -> None:
    """Stated probability of the best pose of each pair, before any cut, against the share of these at the right place.

    In the population for which it is stated: pairs of different places, where any were drawn, count as if there were
    `OTHERS` to one. With Wilson's 95 % interval of the share, for as many pairs as the unequal weights leave (Kish),
    and the mean difference of stated and right over all pairs.
    """
    confidence = np.array([r.confidence for r in found])
    right = np.array([r.same_place for r in found])
    different = np.array([r.overlap == 0.0 for r in found])
    weight = np.where(different, OTHERS * np.sum(~different) / max(np.sum(different), 1), 1.0)
    off = 0.0
    print("-- stated probability of the best pose: pairs, stated on average, right (95 % interval)")
    for low, high in itertools.pairwise(BINS):
        inside = (confidence >= low) & ((confidence < high) | (high == 1.0))
        if not inside.any():
            continue
        w = weight[inside]
        stated, share = np.average(confidence[inside], weights=w), np.average(right[inside], weights=w)
        off += w.sum() * abs(stated - share) / weight.sum()
        count, z2 = w.sum() ** 2 / np.sum(w**2), 1.96**2
        middle = (share + z2 / (2 * count)) / (1 + z2 / count)
        half = np.sqrt(share * (1 - share) * z2 / count + (z2 / (2 * count)) ** 2) / (1 + z2 / count)
        print(
            f"   {low:5.3f} to {high:5.3f}: {int(inside.sum()):6d}, {stated:8.4f}, {share:8.4f} "
            f"({max(middle - half, 0.0):.3f} to {min(middle + half, 1.0):.3f})"
        )
    brier = np.average((confidence - right) ** 2, weights=weight)
    print(f"   expected calibration error {off:.5f}, Brier score {brier:.5f}, of {len(found)} pairs")


def calibrate(found: list[Result]) -> None:
    """Fit log odds = INTERCEPT + WEIGHTS . terms (probability.py), with a weak pull of the weights to zero.

    The best pose of every pair counts, pairs of different places as often as if there were `OTHERS` to one.
    """
    rows, labels, weights = [], [], []
    same = sum(r.overlap > 0.0 for r in found)
    for result in found:
        evidence = result.registration.evidence if result.registration else None
        if evidence is None or (result.near and not result.same_place):
            continue
        rows.append(terms(evidence, ClosureConfig(), result.registration.self_similarity))
        labels.append(result.same_place)
        weights.append(1.0 if result.overlap else OTHERS * same / (len(found) - same))
    X, sign, w = np.array(rows), np.where(labels, 1.0, -1.0), np.array(weights)

    def loss(p: Array) -> float:
        return float(np.sum(w * np.logaddexp(0.0, -sign * (p[0] + X @ p[1:]))) + 0.01 * np.sum(p[1:] ** 2))

    fit = minimize(loss, np.array([INTERCEPT, *WEIGHTS]), method="BFGS").x
    margin = fit[0] + X @ fit[1:]
    right, wrong = np.sort(margin[sign > 0]), np.sort(margin[sign < 0])
    print(f"right {right.size}, wrong {wrong.size}; INTERCEPT {fit[0]:.2f}, WEIGHTS {fit[1:].round(2)}")
    print(f"log odds: lowest right {right[:6].round(1)}, highest wrong {wrong[-6:].round(1)}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=3, help="of the draw")
    parser.add_argument("--pairs", type=int, default=10, help="per terrain and overlap")
    parser.add_argument("--negatives", type=int, default=100, help="pairs of different places per terrain")
    parser.add_argument("--peer-negatives", type=int, default=20, help="the same for all but our own method")
    parser.add_argument(
        "--overlaps", nargs="*", type=float, default=OVERLAPS, help="of the pairs, parts of a disc"
    )
    parser.add_argument(
        "--noisier", nargs="+", type=float, default=[1.0], help="factors on the noise of points from DEMs"
    )
    parser.add_argument("--terrains", nargs="*", default=[], help="names; all real ones unless told")
    parser.add_argument("--methods", nargs="*", default=[], help="names; all that are installed unless told")
    parser.add_argument(
        "--calibrate", action="store_true", help="fit the acceptance probability to this draw"
    )
    parser.add_argument("--plot", type=Path, help="file for a picture of the table")
    parser.add_argument("--out", type=Path, default=Path("out/closure"), help="folder for maps and results")
    args = parser.parse_args()
    overlaps = tuple(args.overlaps)
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    chosen = {name: m for name, m in methods().items() if not args.methods or name in args.methods}
    found: dict[str, list[Result]] = {name: [] for name in chosen}
    draws = [
        (noisier, terrain)
        for noisier in args.noisier
        for terrain in terrains(folder, tuple(args.terrains), noisier, args.seed)
    ]
    for noisier, terrain in draws:
        tail = suffix(overlaps, noisier)
        kept = args.out / f"maps_{terrain.name}_{args.seed}_{args.pairs}{tail}.pkl"
        pairs = draw(terrain, args.seed, args.pairs, args.negatives, kept, overlaps)
        print(
            f"-- {terrain.name}: {len(pairs.same)} pairs, {len(pairs.different)} of different places",
            flush=True,
        )
        for name, method in chosen.items():
            negatives = args.negatives if name == "gpgmap_ros" else args.peer_negatives
            some = replace(pairs, different=pairs.different[: 0 if name == "common_error = 0" else negatives])
            label = f"{name}_{terrain.name}_{args.seed}_{args.pairs}_{negatives}{tail}"
            kind = (
                "evidence" if args.calibrate else "results"
            )  # of all pairs, or of those that are accepted or overlap
            path = args.out / f"{kind}_{label.replace(' ', '-')}.pkl"
            here = list(results(method, some, path, light=not args.calibrate))
            found[name] += here
            report(name, here)
    shares = ", ".join(f"{overlap:.0%}" for overlap in sorted(overlaps, reverse=True))
    print(f"-- all terrains; per overlap of {shares}: right pose / accepted and right")
    for name, all_results in found.items():
        report(name, all_results)
    print(markdown(found, recall_without_false))
    if args.plot:
        plot(found, args.plot)
    if "gpgmap_ros" in found:
        reliability(found["gpgmap_ros"])
    if args.calibrate:
        calibrate(found["gpgmap_ros"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
