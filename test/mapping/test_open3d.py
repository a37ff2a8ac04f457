"""Open3D's clouds in, Open3D's mesh out; and what is said where Open3D does not import."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from optional import require_open3d

from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.point_input import points_array
from gpgmap_ros.open3d_import import Open3DMissing, explain_import_error, import_open3d


@pytest.fixture(scope="module")
def open3d() -> Any:
    return require_open3d()


def slope_points() -> np.ndarray:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 8.0, (6000, 2))
    return np.column_stack([xy, 0.3 * xy[:, 0] - 0.2 * xy[:, 1] + 0.01 * rng.normal(size=len(xy))])


@pytest.fixture(scope="module")
def slope() -> GPGMap:
    return gpgmap_from_points(slope_points(), 0.2)


def test_clouds_of_both_kinds_give_the_map_of_their_points(open3d: Any, slope: GPGMap) -> None:
    points = slope_points()
    legacy = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
    tensor = open3d.t.geometry.PointCloud(open3d.core.Tensor(points))
    for cloud in (legacy, tensor):
        gpgmap = gpgmap_from_points(cloud, 0.2)
        np.testing.assert_array_equal(gpgmap["elevation"], slope["elevation"])
    for empty in (open3d.geometry.PointCloud(), open3d.t.geometry.PointCloud()):
        with pytest.raises(ValueError, match="there are no points"):
            gpgmap_from_points(empty, 0.2)
    with pytest.raises(TypeError, match="expected a point cloud of Open3D, got TriangleMesh"):
        points_array(open3d.geometry.TriangleMesh())


def test_the_mesh_is_the_known_surface(open3d: Any, slope: GPGMap) -> None:
    mesh = slope.to_open3d()
    vertices = np.asarray(mesh.vertices)
    assert len(vertices) == slope.known.sum()
    _, ix = np.nonzero(slope.known)
    np.testing.assert_array_equal(vertices[:, 0], slope.grid.x[ix])
    np.testing.assert_array_equal(vertices[:, 2], slope["elevation"][slope.known])
    # a plane that rises by 0.3 along x and falls by 0.2 along y; triangles agree with the gradient's normals
    expected = np.array([-0.3, 0.2, 1.0]) / np.linalg.norm([-0.3, 0.2, 1.0])
    inside = (np.abs(vertices[:, :2] - 4.0) < 3.0).all(axis=1)
    normals = np.asarray(mesh.vertex_normals)
    np.testing.assert_allclose(normals[inside], np.broadcast_to(expected, (inside.sum(), 3)), atol=0.05)
    mesh.compute_triangle_normals()
    facing = np.asarray(mesh.triangle_normals)
    assert (facing[:, 2] > 0.0).all(), "every triangle faces up"
    assert np.median(facing @ expected) > 0.999


def test_colours_follow_height_or_uncertainty(open3d: Any, slope: GPGMap) -> None:
    by_height = np.asarray(slope.to_open3d("height").vertex_colors)
    by_uncertainty = np.asarray(slope.to_open3d("uncertainty").vertex_colors)
    assert by_height.min() >= 0.0
    assert by_height.max() <= 1.0
    std = np.sqrt(slope["variance"][slope.known])
    # the colours of the least and of the most certain cells differ, whatever their heights are
    certain, vague = std <= np.quantile(std, 0.1), std >= np.quantile(std, 0.9)
    assert by_uncertainty[vague].mean() > by_uncertainty[certain].mean() + 0.2
    low, high = np.quantile(slope["elevation"][slope.known], [0.02, 0.98])
    z = slope["elevation"][slope.known]
    assert np.abs(by_height[z < low].mean(axis=0) - by_height[z > high].mean(axis=0)).max() > 0.2
    with pytest.raises(ValueError, match="colour must be one of height, uncertainty, got 'mood'"):
        slope.to_open3d("mood")


@pytest.mark.parametrize(
    ("said", "package"),
    [
        ("libGL.so.1: cannot open shared object file: No such file or directory", "libgl1"),
        ("libEGL.so.1: cannot open shared object file: No such file or directory", "libegl1"),
        ("libX11.so.6: cannot open shared object file", "libx11-6"),
        ("libusb-1.0.so.0: cannot open shared object file", "libusb-1.0-0"),
        ("/usr/lib/libgomp.so.1: cannot allocate memory in static TLS block", "libgomp1"),
    ],
)
def test_a_missing_library_is_named_with_its_package(said: str, package: str) -> None:
    text = explain_import_error(OSError(said))
    assert said.partition(":")[0].rpartition("/")[2] in text
    assert text.endswith(f"sudo apt install {package}")


def test_without_open3d_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, slope: GPGMap) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)  # as if it were not installed
    with pytest.raises(Open3DMissing, match="Open3D is not installed: pip install open3d-cpu"):
        import_open3d()
    with pytest.raises(Open3DMissing):
        slope.to_open3d()
    other = explain_import_error(ImportError("libfoo.so.3: cannot open shared object file"))
    assert "install the package of your system that has libfoo.so.3" in other
    assert "undefined symbol" in explain_import_error(ImportError("undefined symbol: _Z3foo"))
