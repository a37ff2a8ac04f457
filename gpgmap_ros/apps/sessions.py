"""Saved runs for the commands: opened, localised in, merged."""

from gpgmap_ros.slam.merging import Merged, merge
from gpgmap_ros.slam.session import Session, SessionError

__all__ = ["Merged", "Session", "SessionError", "merge"]
