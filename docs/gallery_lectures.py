"""Pictures of the lectures' own series: weights, basis functions, metrics, interpolation, kernel methods.

Drawn with the others by docs/make_gallery.py. Every number comes from gp_core.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from gallery_style import BLUE, GREEN, GREY, ORANGE, RED
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gp_core import (
    BayesianLinearRegression,
    GaussianProcessRegressor,
    KernelDensity,
    KernelPCA,
    LocallyWeightedRegression,
    NadarayaWatson,
)
from gp_core.basis import Basis, GaussianBasis, PolynomialBasis, SigmoidBasis
from gp_core.classification.links import LINKS
from gp_core.classification.weights import laplace_weights
from gp_core.kernels import RBF, Linear, Metric


def _density(ax: Axes, mean: np.ndarray, covariance: np.ndarray) -> None:
    """A Gaussian over two weights, with its one and two sigma ellipses."""
    t = np.linspace(-2.0, 2.0, 161)
    grid = np.stack(np.meshgrid(t, t), axis=-1) - mean
    distance = np.einsum("ija,ab,ijb->ij", grid, np.linalg.inv(covariance), grid)
    ax.contourf(t, t, np.exp(-0.5 * distance), levels=12, cmap="Blues")
    ax.contour(t, t, distance, levels=[1.0, 4.0], colors=BLUE, linewidths=0.8)
    ax.set(xlim=(-2.0, 2.0), ylim=(-2.0, 2.0), aspect="equal", ylabel="slope")


def sequential() -> Figure:
    """A line learned point by point: the posterior of one step is the prior of the next."""
    rng = np.random.default_rng(3)
    truth = np.array([-0.4, 0.7])
    data = rng.uniform(-1.0, 1.0, 20)
    y = truth[0] + truth[1] * data + 0.2 * rng.normal(size=20)
    x = np.linspace(-1.0, 1.0, 100)
    model = BayesianLinearRegression(prior_covariance=0.5, noise_variance=0.04)
    figure, axes = plt.subplots(2, 4, figsize=(10.4, 5.4), layout="constrained")
    for column, count in enumerate((0, 1, 2, 20)):
        seen = (0, 1, 2, 20)[column - 1] if column else 0
        top, bottom = axes[:, column]
        if count:
            model.partial_fit(data[seen:count, None], y[seen:count])
            _density(top, model.weight_posterior_.mean, model.weight_posterior_.covariance)
            mean, std = model.predict(x[:, None], return_std=True)
        else:
            _density(top, np.zeros(2), 0.5 * np.eye(2))
            mean, std = np.zeros(100), np.sqrt(0.5 * (1.0 + x**2))
        top.plot(*truth, "+", color=RED, markersize=10, markeredgewidth=1.8)
        top.set(xlabel="offset", title="prior" if count == 0 else f"after {count} point" + "s" * (count > 1))
        bottom.fill_between(x, mean - 2.0 * std, mean + 2.0 * std, color=BLUE, alpha=0.18, linewidth=0)
        bottom.plot(x, model.sample_y(x[:, None], 6, random_state=1), color=ORANGE, linewidth=0.9)
        bottom.plot(data[:count], y[:count], "o", color="black", markersize=4, zorder=5)
        bottom.set(xlabel="x", ylim=(-2.2, 2.2))
        if column:
            top.set_ylabel("")
    axes[0, 0].set_ylabel("slope")
    axes[1, 0].set_ylabel("six lines from it")
    return figure


def basis_functions() -> Figure:
    """Three sets of features, and functions that weights drawn from their prior make of them."""
    centres = np.linspace(-1.0, 1.0, 9)
    sets: list[tuple[str, Basis]] = [
        ("polynomials", PolynomialBasis(5)),
        ("Gaussians", GaussianBasis(centres[:, None], 0.2)),
        ("sigmoids", SigmoidBasis(np.full((9, 1), 10.0), -10.0 * centres)),
    ]
    x = np.linspace(-1.0, 1.0, 300)
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 4.8), sharex=True, layout="constrained")
    for (name, basis), (top, bottom) in zip(sets, axes.T, strict=True):
        top.plot(x, basis(x[:, None]), linewidth=1.2)
        top.set_title(name)
        draws = BayesianLinearRegression(basis).sample_y(x[:, None], 5, random_state=2)
        bottom.plot(x, draws, color=ORANGE, linewidth=1.2)
        bottom.set_xlabel("x")
    axes[0, 0].set_ylabel("features")
    axes[1, 0].set_ylabel("draws from the prior")
    return figure


def laplace_posterior() -> Figure:
    """Laplace's Gaussian at the mode beside the true posterior of one weight, for few and for more labels."""
    rng = np.random.default_rng(5)
    link = LINKS["logit"]
    w = np.linspace(-3.0, 12.0, 800)
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.1), layout="constrained")
    for ax, n in zip(axes, (2, 8, 40), strict=True):
        x = rng.normal(size=n)
        labels = np.where(rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * x)), 1.0, -1.0)
        q = laplace_weights(x[:, None], labels, link, np.zeros(1), 3.0 * np.eye(1))
        log_p = np.array([link.log_p(labels, v * x).sum() - 0.5 * (v / 3.0) ** 2 for v in w])
        true = np.exp(log_p - log_p.max())
        true /= true.sum() * (w[1] - w[0])
        std = float(q.root[0, 0])
        gauss = np.exp(-0.5 * ((w - q.mean[0]) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
        ax.fill_between(w, true, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(w, true, color=BLUE, linewidth=1.6, label="true posterior")
        ax.plot(w, gauss, color=ORANGE, linewidth=1.6, linestyle="--", label="Laplace")
        ax.set(
            xlabel="weight w", title=f"{n} labels", yticks=[], ylim=(0.0, 1.45 * max(true.max(), gauss.max()))
        )
    axes[0].legend(loc="upper right")
    return figure


def metrics() -> Figure:
    """One length scale, one per input, and a direction that couples them: correlation with the origin."""
    t = np.linspace(-3.0, 3.0, 121)
    points = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    unit = RBF(1.0, "fixed")
    cases = [
        ("isotropic: M = I / l²", Metric(unit, 1.0)),
        ("diagonal (ARD): M = diag(l)⁻²", Metric(unit, [0.7, 2.0])),
        ("factor: M = L'L + diag(l)⁻²", Metric(unit, [2.5, 2.5], [[1.0, -1.0]])),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), sharey=True, layout="constrained")
    for ax, (title, kernel) in zip(axes, cases, strict=True):
        k = kernel(points, np.zeros((1, 2))).reshape(121, 121)
        drawn = ax.contourf(t, t, k, levels=np.linspace(0.0, 1.0, 11), cmap="Blues")
        ax.contour(t, t, k, levels=[np.exp(-0.5)], colors=RED, linewidths=1.2)
        ax.set(title=title, xlabel="$x_1$", aspect="equal")
    axes[0].set_ylabel("$x_2$")
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="k(x, 0)")
    return figure


def grid_interpolation() -> Figure:
    """K ≈ W K_UU W' with linear weights on a grid of inducing points, coarse and fine."""
    kernel = RBF(1.0)
    x = np.linspace(0.0, 6.0, 241)
    z = np.array([2.3])
    exact = kernel(x[:, None], z[:, None])[:, 0]

    def weights(points: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        return np.maximum(1.0 - np.abs(points[:, None] - nodes) / (nodes[1] - nodes[0]), 0.0)

    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.1), layout="constrained", width_ratios=(1, 1, 1.1))
    for ax, count in zip(axes[:2], (5, 13), strict=True):
        nodes = np.linspace(0.0, 6.0, count)
        approximate = weights(x, nodes) @ kernel(nodes[:, None]) @ weights(z, nodes)[0]
        ax.plot(x, exact, color=GREY, linewidth=2.4, label="k(x, z)")
        ax.plot(x, approximate, color=BLUE, linewidth=1.4, label="w(x)' K_UU w(z)")
        ax.plot(nodes, np.full(count, -0.08), "|", color=ORANGE, markersize=9, label="inducing points")
        ax.set(title=f"{count} inducing points", xlabel="x", ylim=(-0.15, 1.5))
        ax.legend(loc="upper right", fontsize=8)
    counts = np.array([4, 7, 13, 25, 49, 97])
    K = kernel(x[:, None])
    gaps = []
    for count in counts:
        nodes = np.linspace(0.0, 6.0, count)
        W = weights(x, nodes)
        gaps.append(np.abs(W @ kernel(nodes[:, None]) @ W.T - K).max())
    axes[2].loglog(6.0 / (counts - 1.0), gaps, "o-", color=BLUE)
    axes[2].set(
        title="the error falls with the square",
        xlabel="spacing, in length scales",
        ylabel="largest error in K",
    )
    return figure


def learned_features() -> Figure:
    """Four Gaussian features before and after type-2 maximum likelihood."""
    rng = np.random.default_rng(0)
    data = np.sort(rng.uniform(-4.0, 4.0, 60))
    y = np.exp(-2.0 * (data + 2.0) ** 2) - 0.8 * np.exp(-1.5 * (data - 1.5) ** 2) + 0.05 * rng.normal(size=60)
    basis = GaussianBasis([[-3.0], [-1.0], [1.0], [3.0]], 1.5, centers_bounds=(-6.0, 6.0))
    x = np.linspace(-4.5, 4.5, 300)
    figure, axes = plt.subplots(
        2, 2, figsize=(9.6, 4.8), sharex=True, layout="constrained", height_ratios=(1, 1.4)
    )
    for (top, bottom), (title, optimizer) in zip(
        axes.T, (("as given", None), ("learned", "lbfgs")), strict=True
    ):
        model = BayesianLinearRegression(basis, noise_variance=0.01, optimizer=optimizer).fit(
            data[:, None], y
        )
        top.plot(x, model.basis_(x[:, None]), color=GREEN, linewidth=1.2)
        top.set_title(f"features {title}: log p(y) = {model.log_marginal_likelihood_value_:.1f}")
        mean, std = model.predict(x[:, None], return_std=True)
        bottom.fill_between(x, mean - 2.0 * std, mean + 2.0 * std, color=BLUE, alpha=0.18, linewidth=0)
        bottom.plot(x, mean, color=BLUE, linewidth=1.6)
        bottom.plot(data, y, "o", color="black", markersize=3)
        bottom.set(xlabel="x", ylim=(-1.4, 1.5))
    axes[0, 0].set_ylabel("features")
    axes[1, 0].set_ylabel("posterior")
    return figure


def conditional_density() -> Figure:
    """What Nadaraya-Watson averages over, and the local lines of LOESS."""
    rng = np.random.default_rng(1)
    data = rng.uniform(0.0, 6.0, 250)
    branch = np.where(rng.uniform(size=250) < 0.5, 1.0, -1.0)
    y = branch * np.maximum(data - 2.5, 0.0) * 0.6 + np.sin(data) + 0.15 * rng.normal(size=250)
    x, t = np.linspace(0.0, 6.0, 200), np.linspace(-4.0, 3.5, 200)
    smoother = NadarayaWatson(RBF(0.25), optimizer=None, target_bandwidth=0.15).fit(data[:, None], y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
    p = smoother.conditional_density(x[:, None], t)
    left.pcolormesh(x, t, p.T, cmap="Blues", shading="auto")
    left.plot(x, smoother.predict(x[:, None]), color=ORANGE, linewidth=1.8)
    left.set(xlabel="x", ylabel="y", title="p(y | x) behind Nadaraya-Watson, and its mean")
    curve = np.sin(data) + 0.15 * rng.normal(size=250)
    loess = LocallyWeightedRegression(span=0.15).fit(data[:, None], curve)
    right.plot(data, curve, "o", color=GREY, markersize=2.5)
    right.plot(x, loess.predict(x[:, None]), color=GREEN, linewidth=1.8)
    for q in (0.6, 2.2, 3.9, 5.4):
        value, slope = loess.coefficients([[q]])[0]
        near = np.array([q - 0.5, q + 0.5])
        right.plot(near, value + slope * (near - q), color=RED, linewidth=1.6)
        right.plot(q, value, "o", color=RED, markersize=4)
    right.set(xlabel="x", title="LOESS and four of its local lines")
    return figure


def density_and_components() -> Figure:
    """Kernel density of two rings, and their components under a linear kernel and under an RBF."""
    rng = np.random.default_rng(2)
    angle = rng.uniform(0.0, 2.0 * np.pi, 240)
    inner = np.arange(240) % 2 == 0
    X = np.where(inner, 1.0, 3.0)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X += 0.2 * rng.normal(size=(240, 2))
    t = np.linspace(-4.2, 4.2, 120)
    points = np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, 3, figsize=(9.8, 3.3), layout="constrained")
    p = np.exp(KernelDensity(RBF(0.5), optimizer="loo").fit(X).score_samples(points)).reshape(120, 120)
    axes[0].contourf(t, t, p, levels=12, cmap="Blues")
    axes[0].set(title="KernelDensity, bandwidth by leave-one-out", aspect="equal")
    for ax, (title, kernel) in zip(
        axes[1:], (("KernelPCA, linear kernel", Linear()), ("KernelPCA, RBF", RBF(1.2))), strict=True
    ):
        z = KernelPCA(2, kernel).fit_transform(X)
        ax.set(title=title, xlabel="first component", ylabel="second component")
        for chosen, color in ((inner, BLUE), (~inner, ORANGE)):
            ax.plot(*z[chosen].T, "o", color=color, markersize=2.8)
    for chosen, color in ((inner, BLUE), (~inner, ORANGE)):
        axes[0].plot(*X[chosen].T, "o", color=color, markersize=1.8)
    return figure


def prior_mean() -> Figure:
    """A regression that returns to its mean function where there are no data."""
    rng = np.random.default_rng(6)
    data = np.sort(rng.uniform(-1.0, 3.0, 14))
    y = 0.5 * data + np.sin(2.0 * data) + 0.1 * rng.normal(size=14)
    x = np.linspace(-6.0, 8.0, 300)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.0), sharey=True, layout="constrained")
    for ax, (title, mean) in zip(
        axes, (("m(x) = 0", None), ("m(x) = x / 2", lambda Z: 0.5 * Z[:, 0])), strict=True
    ):
        gp = GaussianProcessRegressor(1.0 * RBF(0.7), noise_variance=0.01, mean=mean, optimizer=None)
        gp.fit(data[:, None], y)
        value, std = gp.predict(x[:, None], return_std=True)
        ax.fill_between(x, value - 2.0 * std, value + 2.0 * std, color=BLUE, alpha=0.18, linewidth=0)
        ax.plot(x, value, color=BLUE, linewidth=1.6)
        ax.plot(data, y, "o", color="black", markersize=3.5)
        ax.set(title=title, xlabel="x")
    return figure


PICTURES = {
    "sequential": sequential,
    "basis_functions": basis_functions,
    "learned_features": learned_features,
    "laplace_posterior": laplace_posterior,
    "metrics": metrics,
    "grid_interpolation": grid_interpolation,
    "conditional_density": conditional_density,
    "density_and_components": density_and_components,
    "prior_mean": prior_mean,
}
