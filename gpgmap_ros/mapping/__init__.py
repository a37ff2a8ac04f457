"""Terrain mapping without ROS: points in a gravity-aligned frame in, GPGMaps out.

elevation_map  the map: points in, posterior out; `gpgmap_from_points`
model          the GP of the terrain, as the settings have it
filters        points that are ground: range, height, the robot itself, overhangs
noise          variance of each point's height, from sensor, incidence and pose
gate           points that contradict the map wait until other clouds confirm them
layers         the one table of layers: unit, colours, where each is published, exported and shown
gpgmap         `GPGMap`: layers, grid and frame
submaps        maps of a stretch of the trajectory (submap_store: on disk), for loop closures
stitching      one map from the statistics of many submaps
survey         point files of any size: points by tile (survey_parts: sums on disk, survey_window: solved windows)
conversions    layers as messages and images order them
"""

from gpgmap_ros.deprecation import deprecated_names
from gpgmap_ros.mapping.elevation_map import ElevationMap, gpgmap_from_points
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.map_file import load_map, save_map
from gpgmap_ros.mapping.stitching import StitchError, stitch, stitch_tiles
from gpgmap_ros.mapping.submap_store import SubmapInfo, SubmapStore
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.storage.archive import ArchiveError

__getattr__ = deprecated_names(__name__, {"stitched_tiles": "gpgmap_ros.mapping.stitching:stitch_tiles"})

__all__ = [
    "ArchiveError",
    "ElevationMap",
    "GPGMap",
    "StitchError",
    "Submap",
    "SubmapInfo",
    "SubmapStore",
    "gpgmap_from_points",
    "load_map",
    "save_map",
    "stitch",
    "stitch_tiles",
]
