"""The pictures of docs/gallery for kernels with compact support, periodic kernels and kernel interpolation.

    python docs/gallery_kernels.py [folder]

Run it where gp_core is importable: installed, or with PYTHONPATH=. in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from make_gallery import BLUE, GREEN, GREY, ORANGE, RED, ROOT, STYLE, band
from matplotlib.figure import Figure

from gp_core import GaussianProcessRegressor, InterpolatedGaussianProcessRegressor
from gp_core.kernels import RBF, Epanechnikov, Kernel, Periodic, Tricube, Wendland


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


PICTURES = {"compact_and_periodic": compact_and_periodic, "kernel_interpolation": kernel_interpolation}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    plt.switch_backend("Agg")
    with plt.rc_context(STYLE):
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})
            plt.close(figure)
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
