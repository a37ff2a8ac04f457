"""Terrain mapping without ROS: points in a gravity-aligned frame in, GPGMaps out."""

from gpgmap_ros.mapping.archive import ArchiveError
from gpgmap_ros.mapping.elevation_map import ElevationMap, gpgmap_from_points
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.map_file import load_map, save_map
from gpgmap_ros.mapping.stitching import StitchError, stitch, stitched_tiles
from gpgmap_ros.mapping.submap_store import SubmapInfo, SubmapStore
from gpgmap_ros.mapping.submaps import Submap

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
    "stitched_tiles",
]
