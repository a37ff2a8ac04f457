"""The surface as a triangle mesh in a PLY file: two triangles for every square of four known cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import triangles_of
from gpgmap_ros.storage.atomic import atomic_write


def write_mesh(path: Path, gpgmap: GPGMap, colours: NDArray[np.uint8]) -> tuple[int, int]:
    """Vertices with normal, colour (rows, columns, 3) and standard deviation; numbers of vertices and triangles.

    Coordinates are double: those of a survey need it.
    """
    known = gpgmap.known
    iy, ix = np.nonzero(known)
    vertices = np.empty(
        len(iy),
        dtype=[
            ("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("nx", "<f4"), ("ny", "<f4"), ("nz", "<f4"),
            ("red", "u1"), ("green", "u1"), ("blue", "u1"), ("std", "<f4"),
        ],
    )  # fmt: skip
    vertices["x"], vertices["y"] = gpgmap.grid.x[ix], gpgmap.grid.y[iy]
    vertices["z"] = gpgmap["elevation"][known]
    for axis in "xyz":
        vertices[f"n{axis}"] = gpgmap[f"normal_{axis}"][known]
    for channel, name in enumerate(("red", "green", "blue")):
        vertices[name] = colours[known][:, channel]
    vertices["std"] = np.sqrt(gpgmap["variance"][known])
    triangles = triangles_of(known)
    faces = np.empty(len(triangles), dtype=[("count", "u1"), ("vertices", "<i4", (3,))])
    faces["count"], faces["vertices"] = 3, triangles
    names = {"<f8": "double", "<f4": "float", "|u1": "uchar"}
    properties = "".join(
        f"property {names[vertices.dtype[name].str]} {name}\n" for name in vertices.dtype.names or ()
    )
    header = (
        "ply\nformat binary_little_endian 1.0\n"
        f"comment frame {gpgmap.frame_id}, metres\n"
        f"element vertex {len(vertices)}\n{properties}"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    with atomic_write(path) as file:
        file.write(header.encode())
        file.write(vertices.tobytes())
        file.write(faces.tobytes())
    return len(vertices), len(faces)
