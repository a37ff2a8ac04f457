"""Gaussian-process gradient maps of bare ground: terrain mapping and loop closure for ROS 2 and plain Python."""

__version__ = "0.1.0"
