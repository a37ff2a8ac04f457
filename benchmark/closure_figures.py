"""The pictures of docs/loop_closure.md, from real terrain where it is there.

python benchmark/closure_figures.py [--out docs/loop_closure]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from closure_nclt import read_loop, submaps_of
from closure_terrain import Submap, data_folder, from_dem, pose_error, terrains
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from gpgmap_ros.closure import ClosureConfig, Registration, register
from gpgmap_ros.closure.registration.overlay import overlay_maps
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.config import Config
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import GPGMap

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import LightSource
from matplotlib.patches import Ellipse

Array = NDArray[np.float64]
CONFIG = ClosureConfig()


def hillshade(axes: plt.Axes, submap: Submap, title: str) -> None:
    surface = make_registration_map(submap.map, CONFIG)
    seen = surface.weight > 0.0
    z = np.where(seen, surface.height, np.nan)
    shade = LightSource(315, 40).hillshade(np.nan_to_num(z, nan=float(np.nanmedian(z))), vert_exag=1.5)
    axes.imshow(np.where(seen, shade, np.nan), cmap="gray", origin="lower", vmin=0, vmax=1)
    axes.set_title(title, fontsize=8)
    axes.set_xticks([])
    axes.set_yticks([])


def residuals(axes: plt.Axes, source: Submap, target: Submap, found: Registration) -> None:
    """Height residuals where the maps share ground, over the standard deviation that the pair itself shows."""
    a, b = make_registration_map(source.map, CONFIG), make_registration_map(target.map, CONFIG)
    T, h = found.T_target_source, b.resolution
    t = (T[:3, :3] @ a.middle + T[:3, 3] - np.array([*b.origin, b.base])) / h
    over = overlay_maps(Alignment(T[:3, :3], t, t), a, b, CONFIG)
    assert found.evidence
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(
            over.weight > 0.0, over.residual / np.sqrt(found.evidence.height_scale * over.variance), np.nan
        )
    image = axes.imshow(value, cmap="RdBu_r", vmin=-4, vmax=4, origin="lower")
    axes.set_title("height residual / its std", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    plt.colorbar(image, ax=axes, shrink=0.7)


def verdict(found: Registration, error: tuple[float, float]) -> str:
    e = found.evidence
    lines = [
        "accepted" if found.accepted else "refused",
        found.reason.replace(": ", ":\n").replace(", unique", ",\nunique"),
    ]
    if e:
        lines += [
            f"overlap {found.overlap:.0%}, probability {found.probability:.3f}",
            f"surplus {e.surplus:.1f} nats, ratio of scales {e.ratio:.2f}, noise {e.noise_share:.0%}",
            f"coherence {e.coherence:.2f}, of detail {e.detail_coherence:.2f}",
            f"independent cells {e.independent:.0f}, of detail {e.detail_independent:.0f}",
        ]
    if np.isfinite(error[0]):
        lines.append(f"error {error[0]:.2f} cell, {error[1]:.2f} deg")
    return "\n".join(lines)


def row(axes: NDArray[np.object_], source: Submap, target: Submap, title: str, same: bool) -> None:
    found = register(source.map, target.map, CONFIG)
    hillshade(axes[0], source, title)
    hillshade(axes[1], target, "target")
    if found.evidence:
        residuals(axes[2], source, target, found)
    error = pose_error(found.T_target_source, source, target) if same else (np.inf, np.inf)
    axes[3].axis("off")
    axes[3].text(0.0, 0.5, verdict(found, error), va="center", fontsize=9)


def cases(path: Path, folder: Path) -> None:
    """Two that work, four that must be refused."""
    rng = np.random.default_rng(5)
    blanca, gabilan, davos = terrains(folder, ("blanca", "gabilan60", "davos"))
    x = np.arange(300.0)
    ridges = from_dem(
        "ridges", np.broadcast_to(1.5 * np.sin(2 * np.pi * x / 16.0), (300, 300)), 1.0, 24, 0.03
    )
    plain = from_dem("plain", np.zeros((300, 300)), 1.0, 24, 0.03)
    figure, axes = plt.subplots(6, 4, figsize=(11, 15.5), width_ratios=[1, 1, 1.2, 1.4])
    row(axes[0], *blanca.positive(0.5, rng), "gullies, two flight lines, half shared", True)
    row(axes[1], *gabilan.positive(0.5, rng), "ridges, half shared", True)
    here, there = (
        gabilan.submap(np.array([120.0, 150.0]), 0, rng),
        gabilan.submap(np.array([420.0, 500.0]), 1, rng),
    )
    assert here
    assert there
    row(axes[2], here, there, "ridges, different places", False)
    row(axes[3], *ridges.positive(0.7, rng), "parallel ridges, same place", True)
    row(axes[4], *plain.positive(1.0, rng), "a plain, same place", True)
    row(axes[5], *davos.positive(0.15, rng), "Alps, 15 % shared", True)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def sliding(path: Path) -> None:
    """The stated ellipse of the position on ground that is ever more like a straight wall."""
    rng = np.random.default_rng(2)
    x = np.arange(256.0)
    rough = rng.normal(size=(256, 256))
    f = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.fftfreq(256)[None, :])
    f[0, 0] = np.inf
    rough = np.fft.ifft2(np.fft.fft2(rough) * f**-2.0).real
    rough /= rough.std()
    wall = 6.0 / (1.0 + np.exp(-(x - 128.0) / 3.0))[None, :]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.8))
    for ax, amount in zip(axes, (1.5, 0.3, 0.08), strict=True):
        terrain = from_dem("wall", wall + amount * rough, 1.0, 24, 0.02)
        for _ in range(6):
            centre = np.array([128.0 + rng.uniform(-4.0, 4.0), rng.uniform(60.0, 190.0)])
            source, target = (
                terrain.submap(centre, 0, rng),
                terrain.submap(centre + rng.uniform(-4, 4, 2), 1, rng),
            )
            assert source
            assert target
            found = register(source.map, target.map, ClosureConfig(common_error=0.0))
            if found.evidence is None or pose_error(found.T_target_source, source, target)[0] > 3.0:
                continue
            # into the world: there the wall runs along y
            R = target.T_map_world[:3, :3].T
            middle = np.array([*np.mean(source.map.grid.centers.reshape(-1, 2), axis=0), 0.0])
            lever = found.T_target_source[:3, :3] @ middle
            M = np.hstack([np.eye(3), -np.cross(np.eye(3), lever)])
            S = (R @ M @ found.covariance @ M.T @ R.T)[:2, :2]
            truth = target.T_map_world @ np.linalg.inv(source.T_map_world)
            e = R @ ((found.T_target_source - truth) @ np.append(middle, 1.0))[:3]
            values, vectors = np.linalg.eigh(S)
            angle = float(np.rad2deg(np.arctan2(vectors[1, 1], vectors[0, 1])))
            size = 2.0 * np.sqrt(13.8 * values[::-1])  # 99.9 % of two dimensions
            ax.add_patch(Ellipse((0.0, 0.0), *size, angle=angle, fill=False, color="tab:blue", lw=0.8))
            ax.plot(e[0], e[1], "k.", ms=5)
        ax.set_title(f"wall along y, relief of {amount:g} m on it", fontsize=9)
        ax.set_xlim(-0.6, 0.6)
        ax.set_ylim(-0.6, 0.6)
        ax.set_aspect("equal")
        ax.set_xlabel("x error, cells")
    axes[0].set_ylabel("y error, cells")
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def loop(path: Path, folder: Path) -> None:
    """The drive of bag_nclt_loop, and its first and last submap laid on each other by odometry and by registration."""
    scans = read_loop(folder)
    submaps = submaps_of(scans, Config())
    first, last = submaps[0], submaps[-1]
    found = register(last.gpgmap, first.gpgmap, CONFIG)
    way = np.array([T[:2, 3] for _, _, T in scans])
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4))
    axes[0].plot(*way.T, "k-", lw=0.8)
    for submap, colour in ((first, "tab:red"), (last, "tab:cyan")):
        axes[0].plot(*submap.T_map_submap[:2, 3], "o", color=colour, label=f"submap {submap.id} begins")
    axes[0].set_aspect("equal")
    axes[0].legend(fontsize=8)
    axes[0].set_title("the way by odometry, m", fontsize=9)
    by_odometry = inverse(first.T_map_submap) @ last.T_map_submap
    for ax, T, title in (
        (axes[1], by_odometry, "first (red) and last (cyan) submap by odometry"),
        (axes[2], found.T_target_source, f"registered: {'accepted' if found.accepted else 'refused'}, "
         f"probability {found.probability:.4f}"),
    ):  # fmt: skip
        ax.imshow(composite(first.gpgmap, last.gpgmap, T), origin="lower", extent=[-30, 30, -30, 30])
        ax.set_xlim(-25, 15)
        ax.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def composite(target: GPGMap, source: GPGMap, T: Array, side: float = 60.0, cells: int = 400) -> Array:
    """(cells, cells, 3) steepness in the target's frame: red that of the target, cyan that of the source."""
    at = (np.arange(cells) + 0.5) * side / cells - side / 2.0
    x, y = np.meshgrid(at, at)
    back = inverse(T)
    moved = back[:2, :2] @ np.stack([x.ravel(), y.ravel()]) + back[:2, 3:]
    red = steepness(target, x.ravel(), y.ravel()).reshape(x.shape)
    cyan = steepness(source, *moved).reshape(x.shape)
    return np.stack([red, cyan, cyan], axis=2)


def steepness(map_: GPGMap, x: Array, y: Array) -> Array:
    """0 to 1, logarithmic, at positions; 0 beyond what is trusted."""
    surface = make_registration_map(map_, CONFIG)
    slope = np.where(surface.weight > 0.0, np.hypot(surface.slope_x, surface.slope_y), 0.0)
    column, row_ = ((v - o) / surface.resolution for v, o in zip((x, y), surface.origin, strict=True))
    value = map_coordinates(slope, [row_, column], order=1, cval=0.0)
    return np.clip(np.log1p(value / 0.05) / np.log1p(2.0 / 0.05), 0.0, 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/loop_closure"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sliding(args.out / "sliding.png")
    folder = data_folder()
    if folder is None:
        print("cases.png skipped: no data folder; set GPGMAP_DATA")
        return 0
    cases(args.out / "cases.png", folder)
    loop(args.out / "loop.png", folder / "bag_nclt_loop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
