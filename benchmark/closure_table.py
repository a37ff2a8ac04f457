"""The results of closure_pairs.py as a Markdown table and as a picture: all methods, all terrains, one draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from closure_terrain import OVERLAPS


class Result(Protocol):
    """What is looked at of closure_pairs.Result."""

    terrain: str
    overlap: float
    accepted: bool
    error: tuple[float, float]
    seconds: float

    @property
    def right(self) -> bool: ...


Results = Mapping[str, Sequence[Result]]
Recall = Callable[[list[Result], list[Result]], float]
ACCEPTS = ("gpgmap_ros", "common_error = 0", "without variances", "elevation alone")
"""Methods with a verdict of their own; of the others every pose counts as an answer."""
LEFT_OUT = ("common_error = 0",)
"""Our method again, to look at its covariance: the same poses."""


def markdown(found: Results, recall: Recall) -> str:
    """Per terrain, right poses by overlap; over all, recall without a false one, what was accepted, error and time."""
    names = list(dict.fromkeys(r.terrain for results in found.values() for r in results))
    shares = " / ".join(f"{overlap:.0%}".rstrip("%") for overlap in OVERLAPS)
    each = max(
        (
            sum(r.terrain == names[0] and r.overlap == OVERLAPS[0] for r in results)
            for results in found.values()
        ),
        default=0,
    )
    head = ["method", *names, "all", "R@P1", "accepted: right, wrong, false", "median error", "CPU a pair"]
    lines = [
        f"Right poses at overlaps of {shares} %, of {each} each:",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]
    for method, results in found.items():
        if method in LEFT_OUT:
            continue
        same, different = [r for r in results if r.overlap], [r for r in results if not r.overlap]
        good = [r.error for r in same if r.right]
        error = "{:.3f} cell, {:.3f} deg".format(*np.median(good, axis=0)) if good else "-"
        verdicts = "-"
        if method in ACCEPTS:
            verdicts = (
                f"{sum(r.accepted and r.right for r in same)} of {len(same)}, "
                f"{sum(r.accepted and not r.right for r in same)}, "
                f"{sum(r.accepted for r in different)} of {len(different)}"
            )
        cells = [
            method,
            *(by_overlap([r for r in same if r.terrain == name]) for name in names),
            by_overlap(same),
            f"{100.0 * recall(same, different):.1f} %",
            verdicts,
            error,
            f"{1e3 * np.median([r.seconds for r in results]):.0f} ms",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def by_overlap(same: Sequence[Result]) -> str:
    return " ".join(str(sum(r.right for r in same if r.overlap == overlap)) for overlap in OVERLAPS)


def plot(found: Results, path: Path) -> None:
    """Share of right poses against the overlap, one panel per terrain."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(r.terrain for results in found.values() for r in results))
    columns = min(len(names), 2 if len(names) == 4 else 3)
    rows = -(-len(names) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.6 * columns, 2.7 * rows), squeeze=False, sharex=True, sharey=True
    )
    for axis, name in zip(axes.flat, names, strict=False):
        for method, results in found.items():
            if method in LEFT_OUT:
                continue
            here = [r for r in results if r.terrain == name]
            share = [np.mean([r.right for r in here if r.overlap == overlap]) for overlap in OVERLAPS]
            ours = method in ACCEPTS
            axis.plot(
                100 * np.array(OVERLAPS), 100 * np.array(share), "o-" if ours else "s--", label=method,
                lw=2.5 if method == "gpgmap_ros" else 1.2, ms=4,
            )  # fmt: skip
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    for axis in axes[-1]:
        axis.set_xlabel("overlap, %")
    for axis in axes[:, 0]:
        axis.set_ylabel("right poses, %")
    axes[0, 0].invert_xaxis()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0.0, 0.09 if rows > 1 else 0.16, 1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)
