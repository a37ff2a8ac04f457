"""A map as a rosbag2 with one grid_map_msgs/GridMap on /grid_map, for RViz, Foxglove and grid_map's own tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from gpgmap_ros.io.bags import Stamped, write_bag
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import grid_map_from_layer, grid_map_geometry

TOPIC = "/grid_map"
# The definitions as of grid_map for ROS 2, also in interfaces/: a bag carries those of its types.
INFO = "float64 resolution\nfloat64 length_x\nfloat64 length_y\ngeometry_msgs/Pose pose\n"
GRID_MAP = (
    "std_msgs/Header header\ngrid_map_msgs/GridMapInfo info\nstring[] layers\nstring[] basic_layers\n"
    "std_msgs/Float32MultiArray[] data\nuint16 outer_start_index\nuint16 inner_start_index\n"
)


def write_grid_map_bag(path: Path, gpgmap: GPGMap, layers: Sequence[str]) -> None:
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg(INFO, "grid_map_msgs/msg/GridMapInfo"))
    store.register(get_types_from_msg(GRID_MAP, "grid_map_msgs/msg/GridMap"))
    types = store.types
    geometry = grid_map_geometry(gpgmap.grid)
    stamp = gpgmap.stamp
    time = types["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
    x, y = geometry.centre
    pose = types["geometry_msgs/msg/Pose"](
        position=types["geometry_msgs/msg/Point"](x=float(x), y=float(y), z=0.0),
        orientation=types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
    )
    dimension, layout = types["std_msgs/msg/MultiArrayDimension"], types["std_msgs/msg/MultiArrayLayout"]
    shape = layout(
        dim=[dimension(label=label, size=size, stride=stride) for label, size, stride in geometry.dimensions],
        data_offset=0,
    )
    message = types["grid_map_msgs/msg/GridMap"](
        header=types["std_msgs/msg/Header"](stamp=time, frame_id=gpgmap.frame_id),
        info=types["grid_map_msgs/msg/GridMapInfo"](
            resolution=float(geometry.resolution),
            length_x=float(geometry.length_x),
            length_y=float(geometry.length_y),
            pose=pose,
        ),
        layers=list(layers),
        basic_layers=["elevation"],
        data=[
            types["std_msgs/msg/Float32MultiArray"](
                layout=shape, data=np.asarray(grid_map_from_layer(gpgmap[name]))
            )
            for name in layers
        ],
        outer_start_index=0,
        inner_start_index=0,
    )
    write_bag(path, [Stamped(TOPIC, stamp, message)], store)
