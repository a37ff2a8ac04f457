"""Time calls side by side: what the benchmarks of gp_core share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Call = Callable[[], Any]
Clock = Callable[[], float]


def best_in_turn(calls: Sequence[Call], turns: int, clock: Clock) -> tuple[list[float], list[Any]]:
    """The best time of each call and what it returned, run alternately so that all see the same machine."""
    best, results = [np.inf] * len(calls), [None] * len(calls)
    for _ in range(turns):
        for i, call in enumerate(calls):
            start = clock()
            results[i] = call()
            best[i] = min(best[i], clock() - start)
    return best, results


def make_parser(doc: str | None, turns: int) -> argparse.ArgumentParser:
    """A parser with the options that all have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of elapsed time")
    parser.add_argument("--turns", type=int, default=turns, help="how often each library runs")
    return parser


def choose_clock(cpu: bool) -> Clock:
    """Processor time of the process, or elapsed time."""
    return time.process_time if cpu else time.perf_counter
