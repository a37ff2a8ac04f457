"""Settings of the loop closure: the section `closure` of gpgmap_ros/config/settings.py, which is their one home."""

from gpgmap_ros.config import ClosureConfig

__all__ = ["ClosureConfig"]
