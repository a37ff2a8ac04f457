"""gpgmap register"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_settings,
    check_output_file,
    config_from,
    print_json,
    say,
    table,
)

DESCRIPTION = """Find the pose of map A (the source) in map B (the target), without an initial guess; print pose,
uncertainty, score and why it is accepted or not, and draw both maps, their overlap and the residuals
between them.

A map is a run folder, one of its submaps (RUN:7), a map or submap file (.npz), or a point cloud
with --resolution."""
EXAMPLES = """examples:
  gpgmap register run:3 run:21                           two submaps of a replay
  gpgmap register monday/map.npz tuesday/map.npz --out both.png
  gpgmap register scan_1.ply scan_2.ply --resolution 0.1 --json

exit code: 0 also where the registration is refused; `accepted` in --json says which
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="A", help="source map: the one that is moved")
    parser.add_argument("target", metavar="B", help="target map: the pose is given in its frame")
    parser.add_argument(
        "--out",
        "-o",
        type=Path,
        default=Path("registration.png"),
        metavar="PNG",
        help="figure (default: registration.png)",
    )
    parser.add_argument("--no-figure", action="store_true", help="print only, draw nothing")
    parser.add_argument("--resolution", type=float, metavar="M", help="cell size for point clouds")
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.apps.maps import open_map
    from gpgmap_ros.closure import register
    from gpgmap_ros.io.map_products import MapError

    config = config_from(arguments)
    if not arguments.no_figure:
        check_output_file(arguments.out)
    if arguments.resolution is not None and not 0.001 <= arguments.resolution <= 100.0:
        raise UsageError(f"--resolution {arguments.resolution:g}: expected metres from 0.001 to 100")
    try:
        source, target = (
            open_map(name, config, arguments.resolution, lambda text: say(arguments, f"  warning: {text}"))
            for name in (arguments.source, arguments.target)
        )
    except MapError as error:
        raise UsageError(str(error)) from error
    result = register(source, target, config.closure)
    figure = None
    if not arguments.no_figure:
        from gpgmap_ros.viz.registration_figure import registration_figure

        figure = arguments.out
        registration_figure(figure, source, target, result, (arguments.source, arguments.target))
    summary = describe_result(result, figure)
    if arguments.json:
        print_json(summary)
    else:
        print(format_result(summary, result))


def describe_result(result: Any, figure: Path | None) -> dict[str, Any]:
    finite = bool(np.isfinite(result.covariance).all())
    T = result.T_target_source
    std = np.sqrt(np.clip(np.diagonal(result.covariance), 0.0, None)) if finite else None
    return {
        "accepted": bool(result.accepted),
        "reason": result.reason,
        "probability": float(result.probability),
        "score_nats": float(result.score),
        "repetition_nats": float(result.self_similarity),
        "overlap": float(result.overlap),
        "candidates": int(result.candidates),
        "T_target_source": T.tolist(),
        "translation_m": T[:3, 3].tolist(),
        "yaw_deg": float(np.degrees(np.arctan2(T[1, 0], T[0, 0]))),
        "covariance": result.covariance.tolist() if finite else None,
        "std_m": std[:3].tolist() if std is not None else None,
        "std_deg": np.degrees(std[3:]).tolist() if std is not None else None,
        "figure": None if figure is None else str(figure),
    }


def format_result(summary: dict[str, Any], result: Any) -> str:
    x, y, z = summary["translation_m"]
    rows = [("accepted" if summary["accepted"] else "refused", summary["reason"])]
    if summary["std_m"] is not None:
        (sx, sy, sz), yaw_std = summary["std_m"], summary["std_deg"][2]
        rows += [
            (
                "position",
                f"x {x:.3f} ± {sx:.3f}  y {y:.3f} ± {sy:.3f}  z {z:.3f} ± {sz:.3f} m (A's frame in B's)",
            ),
            ("yaw", f"{summary['yaw_deg']:.3f} ± {yaw_std:.3f} deg"),
        ]
    rows += [
        ("probability", f"{summary['probability']:.4f}"),
        ("score", f"{summary['score_nats']:.1f} nats above the best of unrelated poses"),
        (
            "repetition",
            f"{summary['repetition_nats']:.1f} nats of these a map reaches against itself, elsewhere",
        ),
        ("overlap", f"{summary['overlap']:.0%} of the smaller map"),
        ("candidates", str(summary["candidates"])),
    ]
    if result.runner_up is not None:
        rows.append(("runner-up", f"score {result.runner_up.surplus:.1f} nats, elsewhere"))
    if summary["figure"]:
        rows.append(("figure", summary["figure"]))
    return table(rows)
