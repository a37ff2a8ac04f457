"""A mesh in a window of Open3D, or rendered off screen to a PNG."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.interpreter import module_command
from gpgmap_ros.open3d_import import import_open3d

RENDER_TIMEOUT = 120.0  # seconds: a software renderer on a busy machine
FIELD_OF_VIEW = 35.0  # degrees
TILT = 40.0  # degrees above the horizon from which the surface is seen
SRGB_GAMMA = 2.2


class RenderingFailed(RuntimeError):
    """Nothing was rendered: why."""


def has_screen() -> bool:
    """Is there a display to open a window on?"""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def show_window(mesh: Any, title: str) -> None:
    """Open a window and wait until it is closed. RenderingFailed where none opens."""
    open3d = import_open3d()
    viewer = open3d.visualization.Visualizer()
    if not viewer.create_window(window_name=title, width=1280, height=800):
        raise RenderingFailed("Open3D opens no window on this display")
    viewer.add_geometry(mesh)
    options = viewer.get_render_option()
    options.mesh_show_back_face = True
    control = viewer.get_view_control()
    control.set_front([0.0, -np.cos(np.radians(TILT)), np.sin(np.radians(TILT))])
    control.set_up([0.0, 0.0, 1.0])
    control.set_zoom(0.6)
    viewer.run()
    viewer.destroy_window()


def render_png(mesh: Any, path: Path, width: int, height: int) -> None:
    """Render a mesh off screen. RenderingFailed where Open3D has no renderer on this machine.

    In a process of its own: where a driver is missing some versions of Open3D end the process instead of raising.
    """
    open3d = import_open3d()
    with tempfile.TemporaryDirectory() as folder:
        file, picture = Path(folder) / "mesh.ply", Path(folder) / "picture.png"
        centred = open3d.geometry.TriangleMesh(mesh)
        centred.translate((0.0, 0.0, 0.0), relative=False)  # renderers calculate in single precision
        open3d.io.write_triangle_mesh(str(file), centred)
        command = module_command(
            "gpgmap_ros.viz.open3d_window", str(file), str(picture), str(width), str(height)
        )
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=RENDER_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise RenderingFailed(f"Open3D rendered nothing within {RENDER_TIMEOUT:.0f} s") from None
        if result.returncode or not picture.exists():
            said = [line for line in result.stderr.splitlines() if line.strip()]
            raise RenderingFailed(said[-1] if said else f"its renderer ended with code {result.returncode}")
        path.write_bytes(picture.read_bytes())


def render_file(file: Path, picture: Path, width: int, height: int) -> None:
    """Render a mesh file; runs in the child process."""
    open3d = import_open3d()
    rendering = open3d.visualization.rendering
    mesh = open3d.io.read_triangle_mesh(str(file))
    linear = (
        np.asarray(mesh.vertex_colors) ** SRGB_GAMMA
    )  # the renderer calculates with light, not with its encoding
    mesh.vertex_colors = open3d.utility.Vector3dVector(linear)
    renderer = rendering.OffscreenRenderer(width, height)
    material = rendering.MaterialRecord()
    material.shader = "defaultLit"
    material.base_roughness = 0.95
    material.base_reflectance = 0.0
    renderer.scene.add_geometry("surface", mesh, material)
    renderer.scene.set_background([1.0, 1.0, 1.0, 1.0])
    renderer.scene.scene.set_sun_light([0.6, -0.6, -0.42], [1.0, 1.0, 1.0], 90_000)
    renderer.scene.scene.enable_sun_light(True)
    renderer.scene.scene.enable_indirect_light(True)
    renderer.scene.scene.set_indirect_light_intensity(9_000)
    box = mesh.get_axis_aligned_bounding_box()
    middle = box.get_center()
    across = float(np.hypot(*box.get_extent()[:2]))
    distance = 0.33 * across / np.tan(np.radians(FIELD_OF_VIEW) / 2.0)
    tilt = np.radians(TILT)
    eye = middle + distance * np.array([-0.25, -np.cos(tilt), np.sin(tilt)])
    renderer.setup_camera(FIELD_OF_VIEW, middle.tolist(), eye.tolist(), [0.0, 0.0, 1.0])
    open3d.io.write_image(str(picture), renderer.render_to_image())


def main(arguments: list[str]) -> int:
    file, picture, width, height = arguments
    try:
        render_file(Path(file), Path(picture), int(width), int(height))
    except RuntimeError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
