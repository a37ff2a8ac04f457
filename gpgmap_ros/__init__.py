"""Gaussian-process gradient maps of bare ground: terrain mapping and loop closure for ROS 2 and plain Python."""

from gp_core import __version__

__all__ = ["__version__"]
