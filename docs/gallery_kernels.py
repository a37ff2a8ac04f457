"""Pictures of further kernels and processes: compact, periodic, on objects, interpolated, of several outputs, robust.

Drawn with the others by docs/make_gallery.py. Every number comes from gp_core.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from gallery_style import BLUE, GREEN, GREY, ORANGE, RED, band
from matplotlib.figure import Figure

from gp_core import (
    CoregionalizedGaussianProcessRegressor,
    GaussianProcessRegressor,
    InterpolatedGaussianProcessRegressor,
    RobustGaussianProcessRegressor,
)
from gp_core.kernels import (
    RBF,
    EditDistance,
    Epanechnikov,
    Graph,
    Kernel,
    Periodic,
    SubtreeKernel,
    Tricube,
    WeisfeilerLehman,
    Wendland,
)


def compact_and_periodic() -> Figure:
    """Kernels that end, a kernel that repeats, and the sparse matrix of the former."""
    shapes: list[tuple[str, Kernel, str]] = [
        ("Wendland, smoothness 0", Wendland(2.0, smoothness=0), RED),
        ("Wendland, smoothness 1", Wendland(2.0, smoothness=1), ORANGE),
        ("Wendland, smoothness 2", Wendland(2.0, smoothness=2), GREEN),
        ("Tricube (a weight, no kernel)", Tricube(2.0), GREY),
        ("Epanechnikov (a weight, no kernel)", Epanechnikov(2.0), "#c4c4c4"),
        ("Periodic, period 1.5", Periodic(1.0, 1.5), BLUE),
    ]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained")
    r = np.linspace(0.0, 3.0, 300)
    for name, kernel, color in shapes:
        left.plot(r, kernel(r[:, None], np.zeros((1, 1)))[:, 0], color=color, label=name, linewidth=1.3)
    left.set(xlabel="distance", ylabel="k", title="zero from 2 on, or repeating", ylim=(-0.05, 2.1))
    left.legend(fontsize=7, loc="upper right")
    x = np.linspace(0.0, 6.0, 400)
    for i, kernel in enumerate(
        (Wendland(2.0, smoothness=0), Wendland(2.0, smoothness=2), Periodic(1.0, 1.5))
    ):
        draw = GaussianProcessRegressor(kernel).sample_y(x[:, None], 1, random_state=2)[:, 0]
        middle.plot(x, draw - 4.0 * i, color=(RED, GREEN, BLUE)[i], linewidth=1.0)
    middle.set(xlabel="x", title="one function from each (shifted)", yticks=[])
    points = np.sort(np.random.default_rng(0).uniform(0.0, 40.0, 250))[:, None]
    K = Wendland(2.0).sparse(points)
    right.spy(K, markersize=0.6, color=BLUE)
    right.set(title=f"K of 250 points: {100.0 * K.nnz / 250**2:.0f} % stored", xticks=[], yticks=[])
    return figure


def kernel_interpolation() -> Figure:
    """Inducing points on a grid, the weights of one point, and what a coarse and a fine grid give."""
    rng = np.random.default_rng(3)
    data = np.sort(rng.uniform(0.0, 10.0, 60))
    y = np.sin(1.3 * data) + 0.15 * rng.normal(size=60)
    x = np.linspace(data[0], data[-1], 400)
    exact = GaussianProcessRegressor(RBF(1.0), noise_variance=0.02, optimizer=None).fit(data[:, None], y)
    figure, axes = plt.subplots(2, 1, figsize=(9.0, 5.0), sharex=True, layout="constrained")
    for ax, nodes in zip(axes, (9, 25), strict=True):
        gp = InterpolatedGaussianProcessRegressor(
            RBF(1.0), noise_variance=0.02, grid_size=nodes, optimizer=None
        )
        gp.fit(data[:, None], y)
        band(ax, x, *gp.predict(x[:, None], return_std=True))
        ax.plot(x, exact.predict(x[:, None]), color=GREY, linestyle="--", linewidth=1.2)
        ax.plot(data, y, "x", color=GREEN, markersize=4)
        ax.plot(gp.grid_.axes[0], gp.inducing_mean_, "o", color="black", markersize=4)
        step = gp.grid_.axes[0][1] - gp.grid_.axes[0][0]
        ax.set(
            title=f"{nodes} inducing points, {step:.2f} length scales apart (dashed: exact)", ylim=(-1.9, 1.9)
        )
    axes[1].set_xlabel("x")
    return figure


def _alkane(carbons: int, end: str = "") -> Graph:
    """A chain of carbon atoms, with another atom at its end."""
    labels = ["C"] * carbons + ([end] if end else [])
    return Graph(labels, [(i, i + 1) for i in range(len(labels) - 1)])


def object_kernels() -> Figure:
    """How alike words, trees and molecules are: three Gram matrices."""
    words = ["kernel", "kernels", "colonel", "matrix", "metric", "matrices"]
    trees = {
        "x + y": ("+", "x", "y"),
        "x + z": ("+", "x", "z"),
        "(x + y) z": ("*", ("+", "x", "y"), "z"),
        "(x + y)(x + y)": ("*", ("+", "x", "y"), ("+", "x", "y")),
        "x y": ("*", "x", "y"),
        "sin(x + y)": ("sin", ("+", "x", "y")),
    }
    ring = Graph(["C"] * 6, [(i, (i + 1) % 6) for i in range(6)])
    molecules = {
        "butane": _alkane(4),
        "hexane": _alkane(6),
        "cyclohexane": ring,
        "propanol": _alkane(3, "O"),
        "pentanol": _alkane(5, "O"),
        "butylamine": _alkane(4, "N"),
    }
    panels = [
        ("words: EditDistance", words, EditDistance(2.0)(words)),
        (
            "expressions: SubtreeKernel",
            list(trees),
            SubtreeKernel(0.5, normalized=True)(list(trees.values())),
        ),
        (
            "molecules: WeisfeilerLehman",
            list(molecules),
            WeisfeilerLehman(2, normalized=True)(list(molecules.values())),
        ),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.0), layout="constrained")
    for ax, (title, names, K) in zip(axes, panels, strict=True):
        ax.imshow(K, cmap="Blues", vmin=0.0, vmax=1.0)
        for i, j in np.ndindex(*K.shape):
            ax.text(
                j,
                i,
                f"{K[i, j]:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="w" if K[i, j] > 0.6 else "k",
            )
        ax.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
        ax.set_title(title)
        ax.grid(visible=False)
    return figure


def coregionalization() -> Figure:
    """Two outputs that depend on each other: what one shows fills the gap of the other."""
    rng = np.random.default_rng(2)
    data = np.sort(rng.uniform(0.0, 10.0, 40))
    truth = np.sin(data) + 0.3 * np.sin(2.3 * data)
    Y = np.stack([truth, 1.5 - 0.8 * truth], axis=1) + 0.1 * rng.normal(size=(40, 2))
    noise = np.zeros((40, 2))
    hidden = (data > 4.0) & (data < 8.0)
    noise[hidden, 1] = 1e4  # the second output was not measured there
    x = np.linspace(0.0, 10.0, 300)
    alone = GaussianProcessRegressor(normalize_y=True).fit(data[~hidden, None], Y[~hidden, 1])
    joint = CoregionalizedGaussianProcessRegressor(normalize_y=True).fit(
        data[:, None], Y, noise_variances=noise
    )
    mean, std = joint.predict(x[:, None], return_std=True)
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.2), sharex=True, layout="constrained")
    band(axes[0], x, mean[:, 0], std[:, 0])
    axes[0].plot(data, Y[:, 0], "o", color="black", markersize=3)
    axes[0].set_title("first output")
    band(axes[1], x, *alone.predict(x[:, None], return_std=True), ORANGE)
    axes[1].set_title("second output, alone")
    band(axes[2], x, mean[:, 1], std[:, 1])
    axes[2].set_title("second output, with the first")
    for ax in axes[1:]:
        ax.plot(data[~hidden], Y[~hidden, 1], "o", color="black", markersize=3)
        ax.plot(data[hidden], Y[hidden, 1], "o", color=GREY, markersize=3, fillstyle="none")
        ax.set_ylim(-0.2, 3.0)
    for ax in axes:
        ax.set_xlabel("x")
    return figure


def outliers() -> Figure:
    """Normal noise follows outliers or calls everything noise; Student t noise leaves them alone."""
    rng = np.random.default_rng(4)
    data = np.sort(rng.uniform(0.0, 10.0, 50))
    y = np.sin(data) + 0.1 * rng.normal(size=50)
    y[[8, 22, 23, 40]] += [2.5, -3.0, -2.4, 3.2]
    x = np.linspace(0.0, 10.0, 300)
    normal = GaussianProcessRegressor().fit(data[:, None], y)
    robust = RobustGaussianProcessRegressor(degrees_of_freedom=3.0).fit(data[:, None], y)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.4), sharey=True, layout="constrained")
    band(axes[0], x, *normal.predict(x[:, None], return_std=True), ORANGE)
    axes[0].set_title("normal noise")
    band(axes[1], x, *robust.predict(x[:, None], return_std=True))
    axes[1].set_title("Student t noise; open circles count less than a fifth")
    ignored = robust.precisions_ < 0.2
    for ax, open_circles in zip(axes, (np.zeros(50, dtype=bool), ignored), strict=True):
        ax.plot(x, np.sin(x), color=GREY, linestyle="--", linewidth=1.0)
        ax.plot(data[~open_circles], y[~open_circles], "o", color="black", markersize=3.5)
        ax.plot(data[open_circles], y[open_circles], "o", color=RED, markersize=5, fillstyle="none")
        ax.set_xlabel("x")
    return figure


PICTURES = {
    "compact_and_periodic": compact_and_periodic,
    "kernel_interpolation": kernel_interpolation,
    "object_kernels": object_kernels,
    "coregionalization": coregionalization,
    "outliers": outliers,
}
