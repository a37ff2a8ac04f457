"""Pairs of different places over all conditions of drives: is any accepted?

python benchmark/closure_negatives.py --seed 3 --count 10000

Takes the maps of closure_conditions.py (of this seed; they are made where they are missing), pairs them anew with every
other map of the same ground that shares nothing with them, whatever the condition of each, and registers the pairs in
random order. A line is written to --out and the counts so far are printed after every 50 pairs: a run that was stopped
loses nothing, and goes on when it is started again. The evidence of each pair is kept, so that other odds can be tried
on it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from closure_conditions import PASSES, draw_pairs, pairs_apart, parse_draw
from closure_terrain import Submap

from gpgmap_ros.closure import ClosureConfig, register

Different = tuple[str, tuple[str, Submap], tuple[str, Submap]]
"""A ground and two maps of different places on it, each with its condition."""

BLOCK = 50
KEPT = ("surplus", "ratio", "white", "noise_share", "overlap", "coherence", "tilt")
"""Of the evidence of each pair."""


def collect_maps(folder: Path, args: argparse.Namespace) -> dict[str, list[tuple[str, Submap]]]:
    """Maps by the ground that they are of, each with its condition."""
    out: dict[str, list[tuple[str, Submap]]] = {}
    for condition in args.conditions:
        for ground, _, pair in draw_pairs(condition, folder, args):
            # the drives of all conditions are on one ground; other conditions have coordinates of their own
            key = ground if condition in PASSES else f"{condition}: {ground}"
            out.setdefault(key, []).extend((condition, submap) for submap in pair)
    return out


def pair_up(maps: dict[str, list[tuple[str, Submap]]], seed: int) -> list[Different]:
    """All pairs of maps of one ground that share nothing, in random order."""
    out = []
    for ground, items in maps.items():
        out += [(ground, items[i], items[j]) for i, j in pairs_apart([submap for _, submap in items])]
    order = np.random.default_rng([seed, 2]).permutation(len(out))
    return [out[k] for k in order]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="pairs of different places")
    args, folder = parse_draw(parser, seed=3, pairs=1)
    if folder is None:
        return 0
    pairs = pair_up(collect_maps(folder, args), args.seed)
    path = args.out / f"different_{args.seed}_{args.pairs}_{len(pairs)}.jsonl"
    blocks = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = sum(block["pairs"] for block in blocks)
    print(f"{len(pairs)} pairs of different places; {done} were compared before", flush=True)
    config = ClosureConfig(threads=1)
    pairs = pairs[: args.count]
    for start in range(done, len(pairs), BLOCK):
        block = compare_block(pairs[start : start + BLOCK], config)
        with path.open("a") as file:
            file.write(json.dumps(block) + "\n")
        blocks.append(block)
        print(summarise(blocks), flush=True)
    print(summarise(blocks))
    for item in (item for block in blocks for item in block["accepted"]):
        print("  FALSE", *item)
    return 0


def compare_block(pairs: list[Different], config: ClosureConfig) -> dict[str, Any]:
    """Counts over some pairs, and what each of them gave."""
    block: dict[str, Any] = {"pairs": 0, "accepted": [], "highest": 0.0, "weak": 0, "evidence": []}
    for ground, (condition_a, a), (condition_b, b) in pairs:
        found = register(a.map, b.map, config)
        block["pairs"] += 1
        block["highest"] = max(block["highest"], found.probability)
        block["weak"] += found.weak
        if found.accepted:
            block["accepted"].append([ground, condition_a, condition_b, found.probability])
        kept = {name: round(float(getattr(found.evidence, name)), 4) for name in KEPT if found.evidence}
        of_pair = {"probability": found.probability, "self_similarity": found.self_similarity, **kept}
        block["evidence"].append([ground, condition_a, condition_b, of_pair])
    return block


def summarise(blocks: list[dict[str, Any]]) -> str:
    compared, weak, false = (
        sum(b["pairs"] for b in blocks),
        sum(b["weak"] for b in blocks),
        sum(len(b["accepted"]) for b in blocks),
    )
    highest = max((b["highest"] for b in blocks), default=0.0)
    return f"{compared} pairs of different places, {false} accepted, {weak} weak; highest probability {highest:.2g}"


if __name__ == "__main__":
    sys.exit(main())
