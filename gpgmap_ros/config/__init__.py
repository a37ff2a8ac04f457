"""Every setting of the project: default, unit, range, meaning and check in one place (settings.py).

schema.py has what a setting is, access.py settings by dotted name, yaml.py the files.
"""

from gpgmap_ros.config.access import Setting, settings, with_settings
from gpgmap_ros.config.schema import ConfigError, Value
from gpgmap_ros.config.settings import (
    ClearingConfig,
    ClosureConfig,
    Config,
    DriveConfig,
    FilterConfig,
    GateConfig,
    GpsConfig,
    ImuConfig,
    LidarConfig,
    LocalizationConfig,
    MappingConfig,
    NoiseConfig,
    SubmapConfig,
    TraversabilityConfig,
    VisualConfig,
)

__all__ = [
    "ClearingConfig",
    "ClosureConfig",
    "Config",
    "ConfigError",
    "DriveConfig",
    "FilterConfig",
    "GateConfig",
    "GpsConfig",
    "ImuConfig",
    "LidarConfig",
    "LocalizationConfig",
    "MappingConfig",
    "NoiseConfig",
    "Setting",
    "SubmapConfig",
    "TraversabilityConfig",
    "Value",
    "VisualConfig",
    "settings",
    "with_settings",
]
