"""`gpgmap demo`: make a drive, let the real node map it over DDS and close the loop, show what came out."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path

from gpgmap_ros.config import with_settings
from gpgmap_ros.config.yaml import load_config
from gpgmap_ros.demo.figures import save_demo_figures
from gpgmap_ros.demo.live import DemoFailed, map_live
from gpgmap_ros.demo.outcome import read_outcome
from gpgmap_ros.demo.page import demo_content
from gpgmap_ros.demo.scene import record_scene
from gpgmap_ros.demo.summary import Summary, summarize
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.map_products import write_map_npz
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import write_tum
from gpgmap_ros.progress import ProgressBar
from gpgmap_ros.report.page import write_report
from gpgmap_ros.share import share_file
from gpgmap_ros.storage.atomic import write_json
from gpgmap_ros.viz.rendering import STYLES, layer_values, limits

MARKER = ".gpgmap-demo"


def run_demo(out: Path, animation: Path | None = None) -> Summary:
    """Leaves a run folder in `out`, as `gpgmap replay` does, with pictures, the recording, logs and summary.json.

    animation: GIF of the map as it grows and of the loop as it closes; None for none
    """
    start = time.monotonic()
    prepare_folder(out)
    folder = RunFolder(out)
    config = with_settings(load_config(share_file("config", "demo.yaml")), {"map_folder": str(out)})
    folder.begin({"kind": "demo", "name": "demo"}, config)
    scene = record_scene(out / "drive")
    history = None if animation is None else out / "history"
    events = map_live(scene.bag, out, history)
    with ProgressBar("drawing the results", 4) as bar:
        outcome = read_outcome(out, config)
        before, after = outcome.stitch(outcome.odometry_poses), outcome.stitch_corrected()
        bar.advance(1, "map")
        write_map_npz(folder.map, after, Crs(name=f"local frame '{after.frame_id}'"))
        write_tum(folder.odometry, scene.odometry)
        write_tum(folder.trajectory, outcome.correct(scene.odometry))
        pictures = save_demo_figures(out, scene, outcome, before, after)
        bar.advance(1, "pictures")
        if animation is not None and history is not None:
            from gpgmap_ros.demo.animation import write_animation

            scale = limits(layer_values(after, "elevation"), STYLES["elevation"])
            write_animation(animation, history, scene, outcome, set(events.closures), scale)
            pictures.append(animation)
        bar.advance(1, "animation")
        files = [folder.report, *pictures, folder.map, scene.bag]
        summary = summarize(events, scene, outcome, before, after, time.monotonic() - start, files)
        write_report(folder.report, demo_content(events, scene, outcome, after, summary))
        bar.advance(1, "report")
    write_json(out / "summary.json", asdict(summary))
    write_json(folder.summary, {"kind": "demo", "name": "demo", "status": "complete", **asdict(summary)})
    return summary


def prepare_folder(out: Path) -> None:
    """Start from an empty folder, but never empty one that is not ours."""
    marker = out / MARKER
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise DemoFailed(f"{out} has other files in it: name an empty or a new folder with --out")
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    marker.touch()
