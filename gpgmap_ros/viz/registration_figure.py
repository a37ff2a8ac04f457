"""A registration as one figure: both maps, one over the other, what is left between them, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.viz.figures import new_figure, write_figure
from gpgmap_ros.viz.pairs import Pair, pair_of, pair_pictures, residual_limit

CHECKS = 8
"""Fields along each side of the chequerboard in which the two maps take turns."""


def registration_figure(
    path: Path, source: GPGMap, target: GPGMap, registration: Any, names: tuple[str, str]
) -> None:
    """names: of source and target; the registration's pose is drawn whether it was accepted or not

    Differences are compared with the variances of both maps times lambda, which the registration found from them.
    """
    pair = pair_of(source, target, registration.T_target_source, max_cells=500)
    pictures = pair_pictures(pair)
    figure, axes = new_figure(2, 3, figsize=(13.5, 8.4), layout="constrained")
    x_min, y_min, x_max, y_max = pair.grid.bounds
    options: dict[str, Any] = {
        "origin": "lower",
        "extent": (x_min, x_max, y_min, y_max),
        "interpolation": "nearest",
    }
    axes[0, 0].imshow(pictures["target"], **options)
    axes[0, 0].set_title(f"target: {names[1]}")
    axes[0, 1].imshow(pictures["source"], **options)
    axes[0, 1].set_title(f"source, moved: {names[0]}")
    axes[0, 2].imshow(chequerboard(pair, pictures), **options)
    axes[0, 2].set_title("both in turn, like a chequerboard")
    limit = residual_limit(pair)
    image = axes[1, 0].imshow(pair.residual, cmap="RdBu_r", vmin=-limit, vmax=limit, **options)
    axes[1, 0].set_title("source above target")
    figure.colorbar(image, ax=axes[1, 0], fraction=0.046, pad=0.03, label="m")
    scale = registration.evidence.height_scale if registration.evidence else 1.0
    standardised = pair.standardised_residual(scale)
    image = axes[1, 1].imshow(standardised, cmap="RdBu_r", vmin=-4.0, vmax=4.0, **options)
    axes[1, 1].set_title(f"in standard deviations of both ($\\lambda$ = {scale:.3g})")
    figure.colorbar(image, ax=axes[1, 1], fraction=0.046, pad=0.03)
    for ax in axes.ravel()[:5]:
        ax.set_facecolor("0.82")
        ax.set_xlabel("x [m]")
        ax.set_ylabel("y [m]")
    histogram(axes[1, 2], standardised)
    verdict = "accepted" if registration.accepted else "not accepted"
    figure.suptitle(f"{verdict}: {registration.reason}", fontsize=11)
    write_figure(figure, path)


def chequerboard(pair: Pair, pictures: dict[str, Any]) -> Any:
    """Fields of the one and of the other in turn, where both know the ground; elsewhere whichever knows it."""
    rows, columns = pair.grid.shape
    y, x = np.mgrid[:rows, :columns]
    edge = max(1, max(rows, columns) // CHECKS)
    take_source = (y // edge + x // edge) % 2 == 0
    known_source, known_target = np.isfinite(pair.source.elevation), np.isfinite(pair.target.elevation)
    take_source = np.where(known_source & known_target, take_source, known_source)
    return np.where(take_source[..., None], pictures["source"], pictures["target"])


def histogram(ax: Any, standardised: Array) -> None:
    """Of the standardised differences, with the normal distribution that they would have if all were right."""
    values = standardised[np.isfinite(standardised)]
    ax.set_title("differences in standard deviations")
    ax.set_yticks([])
    if not len(values):
        ax.text(0.5, 0.5, "no shared ground", ha="center", transform=ax.transAxes)
        return
    ends = np.linspace(-8.0, 8.0, 81)
    ax.hist(np.clip(values, -8.0, 8.0), ends, density=True, color="#0b6e8a", alpha=0.75)
    ax.plot(
        ends,
        np.exp(-(ends**2) / 2.0) / np.sqrt(2.0 * np.pi),
        color="0.2",
        linewidth=1.2,
        label="if all were right",
    )
    ax.legend(frameon=False, fontsize=9)
