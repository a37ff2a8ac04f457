"""The surface of a map as a triangle mesh of Open3D, with normals and colours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import triangles_of
from gpgmap_ros.open3d_import import import_open3d
from gpgmap_ros.viz.rendering import STYLES, colour_layer, layer_values

COLOURS = {"height": "elevation", "uncertainty": "standard_deviation"}
"""What a surface can be coloured by, and the layer that says it."""


def triangle_mesh(gpgmap: GPGMap, colour: str = "height") -> Any:
    """open3d.geometry.TriangleMesh: a vertex per known cell, two triangles per square of four known cells.

    Normals are those of the posterior gradient, not of the triangles. colour: "height" or "uncertainty"
    """
    colours = surface_colours(gpgmap, colour)
    open3d = import_open3d()
    known = gpgmap.known
    iy, ix = np.nonzero(known)
    vertices = np.column_stack([gpgmap.grid.x[ix], gpgmap.grid.y[iy], gpgmap["elevation"][known]])
    normals = np.column_stack([gpgmap[f"normal_{axis}"][known] for axis in "xyz"])
    mesh = open3d.geometry.TriangleMesh(
        open3d.utility.Vector3dVector(vertices.astype(np.float64)),
        open3d.utility.Vector3iVector(triangles_of(known).astype(np.int32)),
    )
    mesh.vertex_normals = open3d.utility.Vector3dVector(normals.astype(np.float64))
    mesh.vertex_colors = open3d.utility.Vector3dVector(colours[known] / 255.0)
    return mesh


def surface_colours(gpgmap: GPGMap, colour: str) -> NDArray[np.uint8]:
    """(rows, columns, 3) colours of the cells."""
    if colour not in COLOURS:
        raise ValueError(f"colour must be one of {', '.join(COLOURS)}, got '{colour}'")
    layer = COLOURS[colour]
    return colour_layer(layer_values(gpgmap, layer), STYLES[layer])
