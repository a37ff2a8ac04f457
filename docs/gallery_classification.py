"""The pictures of docs/gallery for the classifiers: probabilities, decision borders, inference side by side.

    python docs/gallery_classification.py [folder]

Run it where gp_core is importable: installed, or with PYTHONPATH=. in the repository. The same data give the
same pictures; matplotlib only draws, every number comes from gp_core.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from gp_core import (
    BayesianLogisticRegression,
    GaussianProcessClassifier,
    KernelNearestNeighbors,
    LocalLogisticRegression,
    LogisticRegression,
    SparseGaussianProcessClassifier,
    SupportVectorClassifier,
)
from gp_core.basis import PolynomialBasis
from gp_core.kernels import RBF, Linear, Polynomial

ROOT = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN = "#1f6f8b", "#e07a1f", "#3c8d40"
COLORS = (BLUE, ORANGE, GREEN)
TWO = LinearSegmentedColormap.from_list("two", [BLUE, "#f7f7f7", ORANGE])
STYLE = {"font.size": 9, "axes.titlesize": 10, "legend.frameon": False, "savefig.dpi": 110}
LIMIT = 3.2


def crescents(n: int = 80, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Two interleaved half circles with noise."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, np.pi, n)
    y = np.arange(n) % 2
    x = np.where(y == 0, np.cos(angle), 1.0 - np.cos(angle)) * 1.6 - 0.8
    z = np.where(y == 0, np.sin(angle), 0.5 - np.sin(angle)) * 1.6 - 0.4
    return np.stack([x, z], axis=1) + 0.42 * rng.normal(size=(n, 2)), y


def grid(size: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of one axis (S,) and all points (S², 2)."""
    t = np.linspace(-LIMIT, LIMIT, size)
    return t, np.stack(np.meshgrid(t, t), axis=-1).reshape(-1, 2)


def draw_two(ax: Axes, model: Any, X: np.ndarray, y: np.ndarray, title: str) -> Any:
    """Probability of the second class as colour, its contours, and the points."""
    t, points = grid()
    # A machine without probabilities shows its labels.
    p = model.predict_proba(points)[:, 1] if hasattr(model, "predict_proba") else model.predict(points)
    p = np.asarray(p, dtype=float).reshape(len(t), len(t))
    image = ax.imshow(
        p, origin="lower", extent=(-LIMIT, LIMIT, -LIMIT, LIMIT), cmap=TWO, vmin=0.0, vmax=1.0, alpha=0.75
    )
    ax.contour(t, t, p, levels=[0.5], colors="black", linewidths=1.4)
    ax.contour(t, t, p, levels=[0.1, 0.9], colors="black", linewidths=0.6, linestyles="dashed")
    for code in (0, 1):
        ax.scatter(*X[y == code].T, s=16, color=COLORS[code], edgecolor="white", linewidth=0.5)
    ax.set(title=title, xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=[], yticks=[])
    return image


def borders() -> Figure:
    """Every classifier on the same two crescents."""
    X, y = crescents()
    models: list[tuple[str, Any]] = [
        ("KernelNearestNeighbors, RBF", KernelNearestNeighbors(RBF(1.0), n_neighbors=5)),
        ("LogisticRegression", LogisticRegression(0.1)),
        (
            "LogisticRegression, cubic basis",
            LogisticRegression(0.1, basis=PolynomialBasis(3, intercept=False)),
        ),
        (
            "BayesianLogisticRegression, cubic basis",
            BayesianLogisticRegression(PolynomialBasis(3), prior_covariance=10.0),
        ),
        ("LocalLogisticRegression, degree 0", LocalLogisticRegression(RBF(0.7), degree=0)),
        ("LocalLogisticRegression, degree 1", LocalLogisticRegression(RBF(0.7))),
        ("GaussianProcessClassifier", GaussianProcessClassifier(1.0 * RBF(1.0))),
        (
            "GaussianProcessClassifier, Laplace",
            GaussianProcessClassifier(1.0 * RBF(1.0), inference="laplace", link="logit"),
        ),
        ("GaussianProcessClassifier, mean -1", GaussianProcessClassifier(1.0 * RBF(1.0), mean=-1.0)),
        (
            "SparseGaussianProcessClassifier, 12 points",
            SparseGaussianProcessClassifier(1.0 * RBF(1.0), n_inducing=12, random_state=0),
        ),
        ("SupportVectorClassifier (labels only)", SupportVectorClassifier(RBF(1.0), C=3.0)),
        ("KernelNearestNeighbors, 1 neighbour", KernelNearestNeighbors(RBF(1.0), n_neighbors=1)),
    ]
    figure, axes = plt.subplots(3, 4, figsize=(13.0, 9.8), layout="constrained")
    for ax, (title, model) in zip(axes.flat, models, strict=True):
        image = draw_two(ax, model.fit(X, y), X, y, title)
    figure.colorbar(image, ax=axes, shrink=0.4, label="probability of the orange class")
    return figure


def three_classes() -> Figure:
    """Three classes: colours mix by probability, black lines where the most probable class changes."""
    rng = np.random.default_rng(1)
    centres = np.array([[-1.4, -0.8], [1.4, -0.8], [0.0, 1.5]])
    y = np.arange(75) % 3
    X = centres[y] + 0.75 * rng.normal(size=(75, 2))
    models: list[tuple[str, Any]] = [
        ("KernelNearestNeighbors", KernelNearestNeighbors(RBF(1.0), n_neighbors=7)),
        ("LogisticRegression (softmax)", LogisticRegression(0.1)),
        ("GaussianProcessClassifier, EP", GaussianProcessClassifier(1.0 * RBF(1.0), inference="ep")),
    ]
    t, points = grid()
    palette = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLORS])
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.5), layout="constrained")
    for ax, (title, model) in zip(axes, models, strict=True):
        p = model.fit(X, y).predict_proba(points)
        # White where all are equally likely, the pure colour where one is certain.
        certainty = (p.max(axis=1, keepdims=True) - 1 / 3) * 1.5
        colour = certainty * (p @ palette) + (1.0 - certainty)
        ax.imshow(
            colour.reshape(len(t), len(t), 3),
            origin="lower",
            extent=(-LIMIT, LIMIT, -LIMIT, LIMIT),
            alpha=0.8,
        )
        winner = p.argmax(axis=1).reshape(len(t), len(t))
        for code in range(3):
            ax.contour(t, t, (winner == code).astype(float), levels=[0.5], colors="black", linewidths=0.9)
            ax.scatter(*X[y == code].T, s=16, color=COLORS[code], edgecolor="white", linewidth=0.5)
        ax.set(title=title, xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), xticks=[], yticks=[])
    return figure


def inference() -> Figure:
    """The latent function and the class probability under the three approximations, on a line."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-4, -1, 12), rng.uniform(-0.5, 1.5, 8), rng.uniform(2.5, 4, 8)])
    y = ((np.sin(1.2 * x) + 0.25 * rng.normal(size=len(x))) > 0).astype(int)
    t = np.linspace(-7, 7, 300)
    names = {"laplace": (BLUE, "-"), "ep": (ORANGE, "-"), "variational": (GREEN, "--")}
    figure, axes = plt.subplots(2, 1, figsize=(9.0, 5.2), sharex=True, layout="constrained")
    for name, (colour, line) in names.items():
        model = GaussianProcessClassifier(25.0 * RBF(1.3), inference=name, link="probit", optimizer=None)
        model.fit(x[:, None], y)
        mean, std = model.predict_latent(t[:, None], return_std=True)
        axes[0].fill_between(t, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.12, linewidth=0)
        for edge in (mean - 2 * std, mean + 2 * std):
            axes[0].plot(t, edge, line, color=colour, linewidth=0.7)
        axes[0].plot(t, mean, line, color=colour, linewidth=1.8, label=name)
        p = model.predict_proba(t[:, None])[:, 1]
        evidence = model.log_marginal_likelihood_value_
        axes[1].plot(t, p, line, color=colour, linewidth=1.8, label=f"{name}, log evidence {evidence:.2f}")
    axes[0].set_ylabel("latent f, two deviations")
    axes[0].legend(loc="lower center", ncols=3)
    axes[0].set_ylim(-15, 13)
    axes[1].set_ylabel("p(y = 1)")
    axes[1].set_xlabel("x")
    axes[1].legend(loc="upper center", ncols=3)
    axes[1].plot(x, y, "|", color="black", markersize=9)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="#e6e6e6", linewidth=0.6)
    axes[1].set_ylim(-0.05, 1.3)
    axes[1].set_yticks([0.0, 0.5, 1.0])
    return figure


def evidence_surface() -> Figure:
    """The evidence over variance and length scale, as each method sees it, with its maximum."""
    X, y = crescents(50)
    scale, length = np.geomspace(0.1, 1000.0, 20), np.geomspace(0.2, 10.0, 20)
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), sharey=True, layout="constrained")
    for ax, name in zip(axes, ("laplace", "ep", "variational"), strict=True):
        model = GaussianProcessClassifier(10.0 * RBF(1.0), inference=name).fit(X, y)
        value = np.array(
            [[model.log_marginal_likelihood(np.log([s, l])) for l in length] for s in scale]  # noqa: E741
        )
        top = model.log_marginal_likelihood_value_
        levels = top - np.array([16.0, 12.0, 8.0, 6.0, 4.0, 2.0, 1.0, 0.25])
        filled = ax.contourf(
            length, scale, np.maximum(value, levels[0]), levels=[*levels, top + 0.1], cmap="Blues"
        )
        ax.contour(length, scale, value, levels=levels, colors="black", linewidths=0.4, linestyles="solid")
        best = np.exp(model.kernel_.theta)
        ax.plot(best[1], best[0], "x", color=ORANGE, markersize=9, markeredgewidth=2)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"{name}: {top:.2f} at the cross")
        ax.set_xlabel("length scale")
    axes[0].set_ylabel("variance")
    figure.colorbar(filled, ax=axes, shrink=0.8, label="log evidence", format="%.1f")
    return figure


def kernel_trick() -> Figure:
    """Nearest neighbours in the plane and in the space of squares, trained on half an ellipse."""
    angle = np.linspace(0.05, np.pi - 0.05, 18)
    ring = np.stack([2.6 * np.cos(angle), 1.3 * np.sin(angle)], axis=1)
    X, y = np.vstack([ring, 0.55 * ring]), np.repeat([1, 0], len(angle))
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.6), layout="constrained")
    for ax, (title, kernel) in zip(
        axes,
        [("linear kernel: the Euclidean distance", Linear()), ("(x'z)²", Polynomial(2, 0.0))],
        strict=True,
    ):
        draw_two(ax, KernelNearestNeighbors(kernel, n_neighbors=1).fit(X, y), X, y, title)
    return figure


FIGURES = {
    "classifiers": borders,
    "three_classes": three_classes,
    "gp_inference": inference,
    "gp_evidence": evidence_surface,
    "kernel_neighbours": kernel_trick,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    plt.switch_backend("Agg")
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.png")
            plt.close(figure)
            print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
