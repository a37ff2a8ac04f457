"""What the pictures of docs/gallery share: where they go, their colours, a mean with its band."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, GREY, RED = "#1f6f8b", "#e07a1f", "#3c8d40", "#8a8a8a", "#b5322a"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 110,
}


def band(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray, color: str = BLUE) -> None:
    """A mean and its two standard deviations."""
    ax.fill_between(x, mean - 2.0 * std, mean + 2.0 * std, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, mean, color=color, linewidth=1.6)
