"""Pictures of the demo: the map by odometry, with the loop closed, and how certain it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: works without a display

import matplotlib.pyplot as plt
import numpy as np

from gpgmap_ros.demo.outcome import Outcome, final_drift
from gpgmap_ros.demo.scene import Scene
from gpgmap_ros.geometry import Array
from gpgmap_ros.io.trajectory import Trajectory
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.viz.figures import save_figures, write_figure
from gpgmap_ros.viz.rendering import STYLES, colour_layer, layer_values, limits, picture

ODOMETRY, CORRECTED, TRUTH, CLOSURE = "#c2410c", "#0b6e8a", "#1d1d1b", "#15803d"
LAYERS = ("elevation", "variance", "gradient")


def save_demo_figures(
    folder: Path, scene: Scene, outcome: Outcome, before: GPGMap, after: GPGMap
) -> list[Path]:
    """before_after.png, and a figure per layer of the corrected map; returns the paths."""
    overview = folder / "before_after.png"
    draw_before_after(overview, scene, outcome, before, after)
    layers = {name: after["gradient_magnitude" if name == "gradient" else name] for name in LAYERS}
    layers["variance"] = np.where(after.known, layers["variance"], np.nan)
    track = outcome.correct(scene.odometry).positions[:, :2]
    x, y = after.grid.origin
    return [overview, *save_figures(layers, (x, y), after.grid.resolution, folder, track)]


def draw_before_after(path: Path, scene: Scene, outcome: Outcome, before: GPGMap, after: GPGMap) -> None:
    """Three panels: elevation by odometry, elevation with the loop closed, standard deviation of the latter."""
    corrected = outcome.correct(scene.odometry)
    drift = final_drift(scene, outcome)
    scale = limits(layer_values(after, "elevation"), STYLES["elevation"])
    figure, axes = plt.subplots(1, 3, figsize=(15.6, 5.2), layout="constrained")
    show(axes[0], before, picture(before, "elevation", scale))
    axes[0].set_title(f"by odometry: {drift[0]:.1f} m of drift", loc="left")
    draw_trajectory(axes[0], scene.truth, TRUTH, "truth", ":")
    draw_trajectory(axes[0], scene.odometry, ODOMETRY, "odometry", "-")
    show(axes[1], after, picture(after, "elevation", scale))
    axes[1].set_title(f"loop closed: {100 * drift[1]:.0f} cm of drift", loc="left")
    draw_trajectory(axes[1], scene.truth, TRUTH, "truth", ":")
    draw_trajectory(axes[1], corrected, CORRECTED, "corrected", "-")
    draw_closures(axes[1], outcome)
    style = STYLES["standard_deviation"]
    std = layer_values(after, "standard_deviation")
    show(axes[2], after, colour_layer(std, style))
    low, high = limits(std, style)
    axes[2].set_title("uncertainty (one standard deviation)", loc="left")
    colours = plt.cm.ScalarMappable(matplotlib.colors.LogNorm(low, high), style.colours)
    figure.colorbar(colours, ax=axes[2], fraction=0.046, pad=0.02, label="m")
    for panel in axes[:2]:
        panel.legend(loc="lower left", fontsize=9, framealpha=0.9)
    bounds = np.array([before.grid.bounds, after.grid.bounds])
    for panel in axes:
        panel.set_xlim(bounds[:, 0].min(), bounds[:, 2].max())
        panel.set_ylim(bounds[:, 1].min(), bounds[:, 3].max())
        panel.set_xlabel("x [m]")
    axes[0].set_ylabel("y [m]")
    write_figure(figure, path)


def show(axes: Any, gpgmap: GPGMap, pixels: Any) -> None:
    x_min, y_min, x_max, y_max = gpgmap.grid.bounds
    visible = np.dstack([pixels, np.where(gpgmap.known, 255, 0).astype(np.uint8)])
    axes.imshow(visible, origin="lower", extent=(x_min, x_max, y_min, y_max), interpolation="nearest")
    axes.set_facecolor("#e4e4e0")
    axes.set_aspect("equal")


def draw_trajectory(axes: Any, trajectory: Trajectory, colour: str, label: str, dash: str) -> None:
    x, y = trajectory.positions[:, 0], trajectory.positions[:, 1]
    if dash == ":":
        axes.plot(x, y, dash, color=colour, linewidth=1.8, label=label)
    else:
        axes.plot(x, y, color="white", linewidth=3.6, alpha=0.8)
        axes.plot(x, y, color=colour, linewidth=1.8, label=label)
        axes.plot(x[0], y[0], "o", color=colour, markeredgecolor="white", markersize=7)
        axes.plot(x[-1], y[-1], "s", color=colour, markeredgecolor="white", markersize=7)


def draw_closures(axes: Any, outcome: Outcome) -> None:
    label = "loop closure"
    for closure in outcome.closures:
        if closure.accepted:
            ends: Array = np.array([outcome.corrected_poses[closure.a], outcome.corrected_poses[closure.b]])
            x, y = ends[:, 0, 3], ends[:, 1, 3]
            axes.plot(x, y, color="white", linewidth=4.0, alpha=0.8)
            axes.plot(x, y, color=CLOSURE, linewidth=2.0, marker="o", markersize=5, label=label)
            label = ""
