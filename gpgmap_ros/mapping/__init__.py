"""Terrain mapping without ROS: points in a gravity-aligned frame in, GPGMaps out."""

from gpgmap_ros.mapping.elevation_map import ElevationMap, gpgmap_from_points
from gpgmap_ros.mapping.gpgmap import GPGMap

__all__ = ["ElevationMap", "GPGMap", "gpgmap_from_points"]
