"""The pictures of docs/gallery, all of them.

    python docs/make_gallery.py [folder [picture ...]]

Run it where gp_core is importable: installed, or with PYTHONPATH=. in the repository. The same data give the
same pictures; matplotlib only draws, every number comes from gp_core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gallery_classification
import gallery_kernels
import gallery_lectures
import matplotlib.pyplot as plt
import numpy as np
from gallery_style import BLUE, GREEN, GREY, ORANGE, RED, ROOT, STYLE, band
from matplotlib.figure import Figure

from gp_core import GaussianProcessRegressor, LocallyWeightedRegression, NadarayaWatson, Ridge
from gp_core.kernels import RBF, Exponential, Kernel, Matern, RationalQuadratic
from gp_core.regression import likelihood_contour


def samples() -> Figure:
    """Functions drawn from the prior and from the posterior, for rough to smooth kernels."""
    kernels: list[tuple[str, Kernel]] = [
        ("Exponential", Exponential(1.0)),
        ("Matern 3/2", Matern(1.0, nu=1.5)),
        ("RBF", RBF(1.0)),
    ]
    x = np.linspace(-4.0, 4.0, 400)
    data = np.array([-3.0, -1.8, -0.2, 1.1, 2.6])
    y = np.sin(1.3 * data)
    figure, axes = plt.subplots(2, 3, figsize=(9.0, 4.8), sharex=True, sharey=True, layout="constrained")
    for column, (name, kernel) in enumerate(kernels):
        gp = GaussianProcessRegressor(kernel, noise_variance=1e-6, optimizer=None)
        for row, title in enumerate(("prior", "posterior")):
            ax = axes[row, column]
            if row:
                gp.fit(data[:, None], y)
                mean, std = gp.predict(x[:, None], return_std=True)
            else:
                mean, std = np.zeros_like(x), np.ones_like(x)
            band(ax, x, mean, std)
            ax.plot(x, gp.sample_y(x[:, None], 4, random_state=5), color=ORANGE, linewidth=0.8)
            ax.set_title(f"{name}: {title}")
        axes[1, column].plot(data, y, "o", color="black", markersize=4, zorder=5)
        axes[1, column].set_xlabel("x")
    axes[0, 0].set_ylim(-3.4, 3.4)
    return figure


def kernel_shapes() -> Figure:
    """k(r), and one function drawn from each."""
    kernels: list[tuple[str, Kernel]] = [
        ("RBF", RBF(1.0)),
        ("Matern 5/2", Matern(1.0, nu=2.5)),
        ("Matern 3/2", Matern(1.0, nu=1.5)),
        ("Exponential", Exponential(1.0)),
        ("RationalQuadratic, alpha = 0.5", RationalQuadratic(1.0, alpha=0.5)),
    ]
    colors = [BLUE, GREEN, ORANGE, RED, GREY]
    r = np.linspace(0.0, 4.0, 200)
    x = np.linspace(0.0, 10.0, 500)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for i, ((name, kernel), color) in enumerate(zip(kernels, colors, strict=True)):
        left.plot(r, kernel(r[:, None], np.zeros((1, 1)))[:, 0], color=color, label=name)
        draw = GaussianProcessRegressor(kernel).sample_y(x[:, None], 1, random_state=3)[:, 0]
        right.plot(x, draw - 4.0 * i, color=color, linewidth=1.0)
    left.set(xlabel="distance r, in length scales", ylabel="k(r)", title="how correlation falls off")
    left.legend()
    right.set(xlabel="x", title="one function from each prior (shifted)", yticks=[])
    return figure


def length_scales() -> Figure:
    """Too short, learned, too long."""
    rng = np.random.default_rng(1)
    data = np.sort(rng.uniform(-4.0, 4.0, 18))
    y = np.sin(data) + 0.15 * rng.normal(size=18)
    x = np.linspace(-5.0, 5.0, 300)
    learned = GaussianProcessRegressor(1.0 * RBF(1.0), noise_variance=0.05).fit(data[:, None], y)
    best = learned.kernel_.values()["length_scale"]
    figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), sharey=True, layout="constrained")
    for ax, scale in zip(axes, (0.15, best, 8.0), strict=True):
        gp = GaussianProcessRegressor(1.0 * RBF(scale), noise_variance=0.0225, optimizer=None)
        gp.fit(data[:, None], y)
        band(ax, x, *gp.predict(x[:, None], return_std=True))
        ax.plot(x, np.sin(x), color=GREY, linestyle="--", linewidth=1.0)
        ax.plot(data, y, "o", color="black", markersize=3.5)
        word = "learned" if scale == best else "too short" if scale < best else "too long"
        value = gp.log_marginal_likelihood_value_
        ax.set(title=f"{word}: l = {scale:.2f}, log p(y) = {value:.1f}", xlabel="x", ylim=(-2.6, 2.6))
    return figure


def relevance() -> Figure:
    """ARD: four inputs, two of which matter."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (120, 4))
    y = np.sin(2.0 * X[:, 0]) + 0.4 * X[:, 2] + 0.1 * rng.normal(size=120)
    gp = GaussianProcessRegressor(1.0 * RBF(np.ones(4)), noise_variance=0.1).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained")
    names = [f"$x_{i}$" for i in range(1, 5)]
    # A length scale at its upper bound says "below this", not how little the input matters.
    lengths = np.asarray(gp.kernel_.values()["length_scale"])
    bounds = np.exp(gp.kernel_.bounds[-4:, 1])
    idle = lengths > 0.5 * bounds
    left.bar(range(4), np.where(idle, np.nan, gp.relevance_), color=BLUE, width=0.6)
    for d in np.flatnonzero(idle):
        left.annotate(
            "idle:\nlength scale\nat its bound", (d, 1.2e-3), ha="center", va="bottom", color=GREY, fontsize=8
        )
    left.set(title="relevance read from the learned length scales", ylabel=r"Var$(x_d)\,/\,l_d^2$")
    left.set(yscale="log", ylim=(1e-3, 4.0), xlim=(-0.6, 3.6), xticks=range(4), xticklabels=names)
    line = np.linspace(-3.0, 3.0, 200)
    for d, color, name in ((0, BLUE, names[0]), (1, GREY, names[1]), (2, ORANGE, names[2])):
        Q = np.zeros((200, 4))
        Q[:, d] = line
        right.plot(line, gp.predict(Q), color=color, label=f"along {name}")
    right.set(title="mean along single inputs, the others at 0", xlabel="value of the input")
    right.set_ylim(-2.4, 3.6)
    right.legend(loc="upper left", ncols=3, fontsize=8)
    return figure


def local_maxima() -> Figure:
    """The evidence over length scale and noise, with the two explanations that its maxima stand for."""
    rng = np.random.default_rng(11)
    data = np.sort(rng.uniform(-4.0, 4.0, 8))
    y = np.sin(1.6 * data) + 0.12 * rng.normal(size=8)
    gp = GaussianProcessRegressor(RBF(1.0), noise_variance=0.1, optimizer=None).fit(data[:, None], y)
    contour = likelihood_contour(
        gp, "length_scale", "noise_variance", np.geomspace(0.2, 20.0, 70), np.geomspace(2e-3, 2.0, 70)
    )
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained", width_ratios=(1.35, 1, 1))
    ax = axes[0]
    levels = np.arange(-14.0, np.ceil(contour.values.max()) + 0.25, 0.5)
    drawn = ax.contourf(
        contour.first, contour.second, contour.values, levels=levels, cmap="viridis", extend="min"
    )
    figure.colorbar(drawn, ax=ax, label="log p(y)", ticks=levels[::4])
    ax.set(xscale="log", yscale="log", xlabel="length scale", ylabel="noise variance")
    ax.set_title("two local maxima")
    x = np.linspace(-5.0, 5.0, 300)
    for ax, (scale, noise, value), mark in zip(axes[1:], contour.maxima[:2], "AB", strict=True):
        axes[0].plot(scale, noise, "o", color=RED, markersize=5)
        axes[0].annotate(
            mark, (scale, noise), color=RED, xytext=(6, 4), textcoords="offset points", weight="bold"
        )
        model = GaussianProcessRegressor(RBF(scale), noise_variance=noise, optimizer=None).fit(
            data[:, None], y
        )
        band(ax, x, *model.predict(x[:, None], return_std=True, include_noise=True))
        ax.plot(data, y, "o", color="black", markersize=3.5)
        ax.set(xlabel="x", ylim=(-3.2, 3.2))
        ax.set_title(f"{mark}: l = {scale:.1f}, noise = {noise:.2f}, log p(y) = {value:.1f}", fontsize=9)
    return figure


def smoothers() -> Figure:
    """Nadaraya-Watson, LOESS and a GP on the same data, with a gap and an outlier."""
    rng = np.random.default_rng(2)
    data = np.sort(np.concatenate([rng.uniform(0.0, 4.0, 45), rng.uniform(6.0, 9.0, 35)]))
    y = np.sin(data) + 0.4 * data + 0.2 * rng.normal(size=80)
    y[20] += 3.0
    x = np.linspace(-0.5, 9.5, 400)[:, None]
    models = [
        ("Nadaraya-Watson, bandwidth by leave-one-out", NadarayaWatson(RBF(0.5)), ORANGE),
        ("LOESS, degree 1, robust", LocallyWeightedRegression(span=0.3, robust_iterations=3), GREEN),
        ("Gaussian process", GaussianProcessRegressor(5.0 * RBF(1.0), noise_variance=0.1), BLUE),
    ]
    figure, ax = plt.subplots(figsize=(9.0, 4.0), layout="constrained")
    ax.plot(data, y, "o", color="black", markersize=3, alpha=0.6)
    ax.plot(
        x[:, 0], np.sin(x[:, 0]) + 0.4 * x[:, 0], color=GREY, linestyle="--", linewidth=1.2, label="truth"
    )
    for name, model, color in models:
        model.fit(data[:, None], y)
        if isinstance(model, GaussianProcessRegressor):
            mean, std = model.predict(x, return_std=True)
            ax.fill_between(x[:, 0], mean - 2.0 * std, mean + 2.0 * std, color=color, alpha=0.15, linewidth=0)
        else:
            mean = model.predict(x)
        ax.plot(x[:, 0], mean, color=color, linewidth=1.6, label=name)
    ax.set(xlabel="x", title="a gap, a border and an outlier: three ways to smooth")
    ax.legend(loc="lower right")
    return figure


def ellipse() -> Figure:
    """The lectures' ellipse that becomes linear in the features of (x'z)^2."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (220, 2))
    level = X[:, 0] ** 2 / 2.6 + X[:, 1] ** 2 / 0.9 - 1.0
    X, level = X[np.abs(level) > 0.12], level[np.abs(level) > 0.12]
    inside = level < 0.0
    phi = np.stack([X[:, 0] ** 2, X[:, 1] ** 2, np.sqrt(2.0) * X[:, 0] * X[:, 1]], axis=1)
    plane = Ridge(1e-6).fit(phi, level)  # linear in the features
    figure = plt.figure(figsize=(9.0, 3.8), layout="constrained")
    flat = figure.add_subplot(1, 2, 1)
    grid = np.linspace(-2.0, 2.0, 200)
    gx, gy = np.meshgrid(grid, grid)
    features = np.stack([gx**2, gy**2, np.sqrt(2.0) * gx * gy], axis=-1).reshape(-1, 3)
    flat.contour(gx, gy, plane.predict(features).reshape(200, 200), levels=[0.0], colors=RED, linewidths=1.6)
    solid = figure.add_subplot(1, 2, 2, projection="3d")
    for chosen, color in ((inside, BLUE), (~inside, ORANGE)):
        flat.plot(*X[chosen].T, "o", color=color, markersize=3.2)
        solid.plot(*phi[chosen].T, "o", color=color, markersize=2.6)
    flat.set(xlabel="$x_1$", ylabel="$x_2$", title="two inputs: the boundary is an ellipse", aspect="equal")
    a, b = np.meshgrid(np.linspace(0.0, 2.7, 2), np.linspace(-4.5, 4.5, 2))
    w = plane.coef_  # w . phi + intercept = 0 is the plane
    solid.plot_surface(a, -(plane.intercept_ + w[0] * a + w[2] * b) / w[1], b, color=RED, alpha=0.35)
    solid.set(xlabel="$x_1^2$", ylabel="$x_2^2$", zlabel=r"$\sqrt{2}\,x_1 x_2$")
    solid.set(title="three features: the boundary is a plane", ylim=(0.0, 4.0), xlim=(0.0, 4.0))
    solid.set(xticks=[0, 2, 4], yticks=[0, 2, 4], zticks=[-4, 0, 4])
    solid.view_init(elev=18.0, azim=-62.0)
    return figure


def gradient() -> Figure:
    """A function with its gradient, both with error bars: what gradient maps are made of."""
    rng = np.random.default_rng(4)
    data = np.sort(np.concatenate([rng.uniform(-4.0, 0.0, 14), rng.uniform(2.0, 4.0, 8)]))
    y = np.sin(1.5 * data) + 0.1 * rng.normal(size=22)
    x = np.linspace(-5.0, 5.0, 300)
    gp = GaussianProcessRegressor(1.0 * Matern(1.0, nu=2.5), noise_variance=0.05).fit(data[:, None], y)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9.0, 4.6), sharex=True, layout="constrained")
    band(top, x, *gp.predict(x[:, None], return_std=True))
    top.plot(x, np.sin(1.5 * x), color=GREY, linestyle="--", linewidth=1.0)
    top.plot(data, y, "o", color="black", markersize=3.5)
    top.set_title("function")
    slope, std = gp.predict_gradient(x[:, None], return_std=True)
    band(bottom, x, slope[:, 0], std[:, 0], GREEN)
    bottom.plot(x, 1.5 * np.cos(1.5 * x), color=GREY, linestyle="--", linewidth=1.0)
    bottom.set(title="its gradient", xlabel="x")
    return figure


PICTURES = {
    "samples": samples,
    "kernel_shapes": kernel_shapes,
    "length_scales": length_scales,
    "relevance": relevance,
    "local_maxima": local_maxima,
    "smoothers": smoothers,
    "ellipse": ellipse,
    "gradient": gradient,
}
SERIES = (
    (STYLE, PICTURES),
    (STYLE, gallery_lectures.PICTURES),
    (STYLE, gallery_kernels.PICTURES),
    (gallery_classification.STYLE, gallery_classification.FIGURES),
)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "gallery"
    known = [name for _, pictures in SERIES for name in pictures]
    wanted = sys.argv[2:] or known
    if unknown := sorted(set(wanted) - set(known)):
        sys.exit(f"no such picture: {', '.join(unknown)}; there are {', '.join(known)}")
    folder.mkdir(parents=True, exist_ok=True)
    plt.switch_backend("Agg")
    for style, pictures in SERIES:
        with plt.rc_context(style):
            for name in [name for name in pictures if name in wanted]:
                figure = pictures[name]()
                figure.savefig(folder / f"{name}.png", metadata={"Software": None})
                plt.close(figure)
                print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
